"""WebSocket frames that are no messages: each counts as one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from access_tokens import bearer, settings, token
from gateway_process import GatewayProcess, Store, row, view
from socket_tap import BINARY, PING, PONG, TEXT, SocketTap
from tailrace.dev.redis_server import RedisServer

_MESSAGES = 5
_BURST = 10 * _MESSAGES
# Frames are counted piece by piece, so some more than the burst may be answered.
_ANSWERED = _BURST + 1_000
# An empty, masked frame: what costs a client least.
_MASK = b"\x80\x00\x00\x00\x00"


@pytest.fixture(scope="module")
def store(redis_server: RedisServer) -> Store:
    """A view with one row."""
    store = Store(redis_server.url, "frames", view("averages"))
    store.publish_catalog()
    store.begin()
    store.put("averages", "1", 1, row(1))
    return store


@pytest.fixture(scope="module")
def gateway(
    redis_server: RedisServer, store: Store, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[GatewayProcess]:
    """A gateway that takes few messages."""
    directory = tmp_path_factory.mktemp("frames")
    given = settings(directory, open="metrics", limit_messages=str(_MESSAGES))
    process = GatewayProcess(directory, redis_server.url, store.catalog.app, given, introduction=600)
    process.wait_ready()
    yield process
    process.close()


@pytest.mark.parametrize("opcode", [PING, PONG], ids=["ping", "pong"])
def test_control_frames_count_as_messages(gateway: GatewayProcess, opcode: int) -> None:
    tap = gateway.socket()
    for _ in range(2 * _ANSWERED):
        tap.send_frame(opcode, b"")
    assert _pongs(tap) < _ANSWERED
    assert tap.code == 4429


def test_a_flood_in_one_write_is_not_worked_off(gateway: GatewayProcess) -> None:
    before = gateway.metric('tailrace_gateway_limited_total{limit="messages"}')
    taps = [gateway.socket() for _ in range(4)]
    for tap in taps:
        tap.send_bytes(40_000 * (b"\x89" + _MASK))
    for tap in taps:
        assert _pongs(tap) < _ANSWERED
        assert tap.code == 4429
    assert gateway.metric('tailrace_gateway_limited_total{limit="messages"}') == before + 4


@pytest.mark.parametrize("opcode", [TEXT, BINARY], ids=["text", "binary"])
def test_pieces_of_a_message_count_as_messages(gateway: GatewayProcess, opcode: int) -> None:
    tap = gateway.socket(headers=bearer(token("pieces")))
    tap.send_frame(opcode, b"", last=False)
    tap.send_bytes(20_000 * (b"\x00" + _MASK))
    assert list(tap.rest()) == []
    assert tap.code == 4429


def test_a_client_that_pings_now_and_then_is_served(gateway: GatewayProcess, store: Store) -> None:
    tap = gateway.socket(headers=bearer(token("polite")))
    for version in range(1, 6):
        tap.send_frame(PING, b"here")
        assert tap.frame() == (PONG, b"here")
        tap.send_frame(TEXT, b'{"type":', last=False)
        tap.send_frame(0, b'"ping"}')
        assert tap.message() == {"type": "pong"}, version
    assert [one["type"] for one in tap.subscribe("a", view="averages", keys=["1"])] == ["row", "ready"]
    store.put("averages", "1", 2, row(2))
    assert tap.message()["type"] == "row"
    tap.close()


def _pongs(tap: SocketTap) -> int:
    found = 0
    while (frame := tap.frame()) is not None:
        found += frame[0] == PONG
    return found

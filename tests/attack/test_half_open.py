"""Requests that never come whole: they end, and health answers whatever they hold."""

from __future__ import annotations

import resource
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from access_tokens import Socket, bearer, settings, token
from attacking import RawClient, request
from gateway_process import GatewayProcess, Store, row, view
from running import eventually
from tailrace.dev.redis_server import RedisServer

PARTIAL = b"GET /views/averages/1 HTTP/1.1\r\nHost: test\r\nX-Slow: "
_UPGRADE = ("Upgrade: websocket", "Connection: Upgrade", "Sec-WebSocket-Version: 13")
_KEY = "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="
# Few enough that a test can hold all of them.
DESCRIPTORS = 160


@pytest.fixture(scope="module")
def store(redis_server: RedisServer) -> Store:
    """A view with one row."""
    store = Store(redis_server.url, "half-open", view("averages"))
    store.publish_catalog()
    store.begin()
    store.put("averages", "1", 1, row(1))
    return store


@pytest.fixture(scope="module")
def hasty(
    redis_server: RedisServer, store: Store, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[GatewayProcess]:
    """A gateway that waits for requests for a moment only."""
    directory = tmp_path_factory.mktemp("hasty")
    process = GatewayProcess(directory, redis_server.url, store.catalog.app, request=0.5, idle=0.5)
    process.wait_ready()
    yield process
    process.close()


@pytest.fixture
def few(redis_server: RedisServer, store: Store, tmp_path: Path) -> Iterator[GatewayProcess]:
    """A gateway with few descriptors, which waits for requests for longer than any test lasts."""
    process = GatewayProcess(tmp_path, redis_server.url, store.catalog.app, request=600, idle=600)
    process.wait_ready()
    resource.prlimit(process.process.pid, resource.RLIMIT_NOFILE, (DESCRIPTORS, DESCRIPTORS))
    yield process
    process.close()


def test_health_answers_while_half_a_request_holds_every_descriptor(few: GatewayProcess) -> None:
    held = [RawClient(few.port, PARTIAL) for _ in range(2 * DESCRIPTORS)]
    for _ in range(5):
        assert few.get("/health/live").status_code == 200
    assert few.get("/views/averages/1").status_code == 200
    assert few.metric('tailrace_gateway_limited_total{limit="sockets"}') > 0
    assert "sockets=near-limit" in few.log.read_text()
    for one in held:
        one.close()


@pytest.mark.parametrize("path", ["/health/live", "/openapi.json", "/tickets"])
def test_half_a_body_makes_room(few: GatewayProcess, path: str) -> None:
    half = request("POST", path, "Content-Length: 1000") + b"a"
    held = [RawClient(few.port, half) for _ in range(2 * DESCRIPTORS)]
    assert few.get("/views/averages/1").status_code == 200
    for one in held:
        one.close()


def test_sockets_that_do_not_say_whose_they_are_make_room(
    redis_server: RedisServer, store: Store, tmp_path: Path
) -> None:
    gateway = GatewayProcess(tmp_path, redis_server.url, store.catalog.app, settings(tmp_path), introduction=600)
    gateway.wait_ready()
    resource.prlimit(gateway.process.pid, resource.RLIMIT_NOFILE, (DESCRIPTORS, DESCRIPTORS))
    known = Socket(gateway.port)
    known.say("auth", token=token("c7"))
    assert known.hear("authenticated")
    held = [RawClient(gateway.port, request("GET", "/ws", *_UPGRADE, _KEY)) for _ in range(2 * DESCRIPTORS)]
    assert gateway.get("/views/averages/1", **bearer(token("c7"))).status_code == 200
    known.say("ping")
    assert known.hear("pong")
    known.close()
    for one in held:
        one.close()
    gateway.close()


def test_a_refused_upload_may_end_before_its_connection_does(
    redis_server: RedisServer, store: Store, tmp_path: Path
) -> None:
    gateway = GatewayProcess(tmp_path, redis_server.url, store.catalog.app, request=600, idle=0.2)
    gateway.wait_ready()
    client = RawClient(gateway.port, request("POST", "/tickets", f"Content-Length: {10**7}"))
    assert client.answer()[0] == 413
    for _ in range(10):
        time.sleep(0.2)
        assert client.send(10**6 * b"a"), "the gateway has hung up"
    assert client.rest() == b""
    gateway.close()


def test_a_full_house_refuses_all_but_health(few: GatewayProcess) -> None:
    taps = []
    while (tap := few.follow("/views/averages/1/events")).status == 200:
        taps.append(tap)
        assert len(taps) < DESCRIPTORS, "there is a reserve"
    assert (tap.status, tap.json()["error"], tap.head["connection"]) == (503, "no room", "close")
    assert int(tap.head["retry-after"]) > 0
    refused = RawClient(few.port, request("GET", "/ws", *_UPGRADE, _KEY))
    assert refused.answer()[0] == 503
    for _ in range(5):
        assert few.get("/health/live").status_code == 200
    for one in taps:
        one.close()
    eventually(lambda: few.get("/views/averages/1").status_code == 200, "there is room again")


@pytest.mark.parametrize("before", [b"", request("GET", "/health/live")], ids=["first", "second"])
def test_half_a_head_is_ended(hasty: GatewayProcess, before: bytes) -> None:
    client = RawClient(hasty.port, before)
    if before:
        assert client.answer()[0] == 200
    client.send(PARTIAL)
    status, headers, body = client.answer()
    assert (status, body["error"], headers["connection"]) == (408, "request too slow", "close")
    assert client.rest() == b""


def test_a_head_that_comes_byte_by_byte_is_ended(hasty: GatewayProcess) -> None:
    client = RawClient(hasty.port, PARTIAL)
    eventually(lambda: not client.send(b"a"), "the gateway hangs up")


@pytest.mark.parametrize("bytes_before", [b"", b"\r\n", request("GET", "/health/live")], ids=["none", "crlf", "idle"])
def test_a_connection_without_a_request_is_closed(hasty: GatewayProcess, bytes_before: bytes) -> None:
    client = RawClient(hasty.port, bytes_before)
    if bytes_before.startswith(b"GET"):
        assert client.answer()[0] == 200
        client.send(b"\r\n")
    assert client.rest() == b""


def test_half_a_body_is_ended(hasty: GatewayProcess) -> None:
    client = RawClient(hasty.port, request("POST", "/tickets", "Content-Length: 10") + b"a")
    status, _, body = client.answer()
    assert (status, body["error"]) == (408, "body too slow")
    assert client.rest() == b""
    unasked = RawClient(hasty.port, request("GET", "/health/live", "Content-Length: 10") + b"a")
    assert unasked.answer()[0] == 200
    unasked.send(b"a")
    assert unasked.rest() == b""


def test_a_stream_outlasts_the_deadline(hasty: GatewayProcess, store: Store) -> None:
    tap = hasty.follow("/views/averages/1/events")
    assert [frame.event for frame in tap.frames("ready")] == ["row", "ready"]
    tap.comment()
    tap.comment()
    store.put("averages", "1", 2, row(2))
    assert tap.frame().data["version"] == 2
    tap.close()


def test_an_upgrade_that_is_none_is_answered(hasty: GatewayProcess) -> None:
    client = RawClient(hasty.port, request("POST", "/ws", *_UPGRADE, _KEY))
    status, headers, body = client.answer()
    assert (status, body["error"], headers["allow"]) == (405, "method not allowed", "GET")
    for lines in ([f"X-Long: {9000 * 'a'}"], [f"X-{n}: a" for n in range(200)], ["Content-Length: 5"]):
        client = RawClient(hasty.port, request("GET", "/ws", *_UPGRADE, _KEY, *lines))
        status, _, body = client.answer()
        assert (status, body["error"]) == (400, "bad request")
        assert client.rest() == b""


def test_bytes_that_are_no_request_are_refused_and_counted_and_do_not_fill_the_log(hasty: GatewayProcess) -> None:
    for _ in range(3):
        status, _, told = RawClient(hasty.port, b"\x16\x03\x01 nothing\r\n\r\n").answer()
        assert status == 400 and told["expected"] == "an HTTP/1.1 request"
    assert hasty.metric('tailrace_gateway_refused_total{status="400"}') >= 3
    assert "Invalid HTTP" not in hasty.log.read_text()

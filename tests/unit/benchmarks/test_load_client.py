"""The load client of the benchmarks counts what servers send, wherever the pieces are cut."""

from __future__ import annotations

import shutil
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from load_client import LoadClient, Way, build
from tailrace.gateway.frames.surface import chunk, message
from under_load import SSE, WEBSOCKET, request, row

pytestmark = pytest.mark.skipif(shutil.which("go") is None, reason="the load client is compiled with Go")


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("client"))


@contextmanager
def connected(program: Path, place: Path, surface: str) -> Iterator[tuple[LoadClient, list[socket.socket]]]:
    """A client with two connections, and the server's ends of them, after the head and `ready`."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        websocket = surface == WEBSOCKET
        way = Way(address, request("/{key}", surface), "ready", "hello {key}" if websocket else "", websocket)
        client = LoadClient(program, way, 2, 2, place)
        ends = []
        try:
            for key in range(2):
                end, _ = listener.accept()
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                assert end.recv(4096).startswith(b"GET /%d HTTP/1.1\r\n" % key)
                ends.append(end)
                end.sendall(b"HTTP/1.1 101 Switching\r\n\r\n" if websocket else b"HTTP/1.1 200 OK\r\n\r\n")
                if websocket:
                    assert end.recv(4096).endswith(b"hello %d" % key)
                end.sendall(message(b"ready") if websocket else chunk(b"ready\n\n"))
            client.wait_connected()
            yield client, ends
        finally:
            client.stop()
            for end in ends:
                end.close()


def frame(surface: str, number: int, at: int) -> bytes:
    payload = row(number, 0, at)
    return message(payload) if surface == WEBSOCKET else chunk(b"data: %b\n\n" % payload)


def arrived(client: LoadClient, number: float) -> None:
    deadline = time.monotonic() + 10
    while client.progress() < number:
        assert time.monotonic() < deadline, client.progress()
        time.sleep(0.001)


@pytest.mark.parametrize("surface", [SSE, WEBSOCKET])
def test_every_row_counts_once_wherever_a_read_ends(program: Path, tmp_path: Path, surface: str) -> None:
    with connected(program, tmp_path, surface) as (client, ends):
        client.begin(timed=True)
        ago = 5_000_000_000_000
        at = time.time_ns() - ago
        cuts = len(frame(surface, 1, at))
        for cut in range(1, cuts + 1):
            # The number of a row rises, so that each is news.
            data = frame(surface, 2 * cut - 1, at) + frame(surface, 2 * cut, at)
            ends[0].sendall(data[:cut])
            time.sleep(0.001)
            ends[0].sendall(data[cut:])
        ends[1].sendall(frame(surface, 1, at) + frame(surface, 2, at))
        arrived(client, cuts + 1)
        counted = client.end()
        assert (counted.rows, counted.skipped, counted.lost) == (2 * cuts + 2, 0, 0)
        assert sum(count for _, count in counted.delays) == counted.rows
        # Long ago, so that what the test takes is less than a bucket is wide.
        assert all(ago <= top <= ago * 1.04 for top, _ in counted.delays)


def test_versions_that_were_left_out_and_repeated_are_told_apart(program: Path, tmp_path: Path) -> None:
    with connected(program, tmp_path, SSE) as (client, ends):
        ends[0].sendall(frame(SSE, 5, 0))
        arrived(client, 5 / 2)
        client.begin()
        for number in (6, 6, 9):
            ends[0].sendall(frame(SSE, number, 0))
        arrived(client, 9 / 2)
        counted = client.end()
        assert (counted.rows, counted.skipped) == (2, 2)


def test_pings_are_answered_and_a_lost_connection_is_told(program: Path, tmp_path: Path) -> None:
    with connected(program, tmp_path, WEBSOCKET) as (client, ends):
        client.begin()
        ends[0].sendall(b"\x89\x02hi" + frame(WEBSOCKET, 1, 0))
        assert ends[0].recv(100) == b"\x8a\x82\0\0\0\0hi"
        ends[1].close()
        arrived(client, 1 / 2)
        deadline = time.monotonic() + 10
        while client.end().lost == 0:
            assert time.monotonic() < deadline

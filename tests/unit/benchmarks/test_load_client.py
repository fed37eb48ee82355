"""The load client of the benchmarks counts what servers send, wherever the pieces are cut, also under TLS."""

from __future__ import annotations

import shutil
import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fanout_servers import ShownCertificate
from load_client import LoadClient, Way, build
from tailrace.gateway.frames.surface import chunk, message
from under_load import SSE, WEBSOCKET, request, row

pytestmark = pytest.mark.skipif(shutil.which("go") is None, reason="the load client is compiled with Go")


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("client"))


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> ShownCertificate:
    return ShownCertificate.made(tmp_path_factory.mktemp("shown") / "files")


class End:
    """The server's end of a connection. `wire` gives the bytes on the wire that say something to the client."""

    def __init__(self, link: socket.socket, context: ssl.SSLContext | None) -> None:
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        link.settimeout(10)
        self.link = link
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = None if context is None else context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        while self._tls is not None:
            try:
                self._tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                link.sendall(self._outgoing.read())
                self._incoming.write(link.recv(65536))
        self.flush()

    def wire(self, data: bytes) -> bytes:
        if self._tls is None:
            return data
        self._tls.write(data)
        return self._outgoing.read()

    def send(self, data: bytes) -> None:
        self.link.sendall(self.wire(data))

    def receive(self) -> bytes:
        if self._tls is None:
            return self.link.recv(4096)
        while True:
            try:
                return self._tls.read(4096)
            except ssl.SSLWantReadError:
                self._incoming.write(self.link.recv(65536))

    def flush(self) -> None:
        if self._outgoing.pending:
            self.link.sendall(self._outgoing.read())


@contextmanager
def connected(
    program: Path, place: Path, surface: str, shown: ShownCertificate | None = None
) -> Iterator[tuple[LoadClient, list[End]]]:
    """A client with two connections, and the server's ends of them, after the head and `ready`."""
    context = None
    if shown is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(shown.certificate, shown.key)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(10)
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        websocket = surface == WEBSOCKET
        first, trusted = "hello {key}" if websocket else "", None if shown is None else shown.trusted
        way = Way(address, request("/{key}", surface), "ready", first, websocket, trusted)
        client = LoadClient(program, way, 2, 2, place)
        ends: list[End] = []
        try:
            # Under TLS the client waits for one handshake after the other, and for nothing else.
            ends.extend(End(listener.accept()[0], context) for _ in range(2))
            for key, end in enumerate(ends):
                assert end.receive().startswith(b"GET /%d HTTP/1.1\r\n" % key)
                end.send(b"HTTP/1.1 101 Switching\r\n\r\n" if websocket else b"HTTP/1.1 200 OK\r\n\r\n")
                if websocket:
                    assert end.receive().endswith(b"hello %d" % key)
                end.send(message(b"ready") if websocket else chunk(b"ready\n\n"))
            client.wait_connected()
            yield client, ends
        finally:
            client.stop()
            for end in ends:
                end.link.close()


def frame(surface: str, number: int, at: int) -> bytes:
    payload = row(number, 0, at)
    return message(payload) if surface == WEBSOCKET else chunk(b"data: %b\n\n" % payload)


def arrived(client: LoadClient, number: float) -> None:
    deadline = time.monotonic() + 10
    while client.progress() < number:
        assert time.monotonic() < deadline, client.progress()
        time.sleep(0.001)


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
@pytest.mark.parametrize("surface", [SSE, WEBSOCKET])
def test_every_row_counts_once_wherever_a_read_ends(
    program: Path, shown: ShownCertificate, tmp_path: Path, surface: str, tls: bool
) -> None:
    with connected(program, tmp_path, surface, shown if tls else None) as (client, ends):
        client.begin(timed=True)
        ago = 5_000_000_000_000
        at = time.time_ns() - ago
        # TLS puts a head before the bytes and a tag after them.
        cuts = len(frame(surface, 1, at)) + (22 if tls else 0)
        for cut in range(1, cuts + 1):
            # The number of a row rises, so that each is news.
            data = ends[0].wire(frame(surface, 2 * cut - 1, at)) + ends[0].wire(frame(surface, 2 * cut, at))
            ends[0].link.sendall(data[:cut])
            time.sleep(0.001)
            ends[0].link.sendall(data[cut:])
        ends[1].send(frame(surface, 1, at) + frame(surface, 2, at))
        arrived(client, cuts + 1)
        counted = client.end()
        assert (counted.rows, counted.skipped, counted.lost) == (2 * cuts + 2, 0, 0)
        assert sum(count for _, count in counted.delays) == counted.rows
        # Long ago, so that what the test takes is less than a bucket is wide.
        assert all(ago <= top <= ago * 1.04 for top, _ in counted.delays)


def test_versions_that_were_left_out_and_repeated_are_told_apart(program: Path, tmp_path: Path) -> None:
    with connected(program, tmp_path, SSE) as (client, ends):
        ends[0].send(frame(SSE, 5, 0))
        arrived(client, 5 / 2)
        client.begin()
        for number in (6, 6, 9):
            ends[0].send(frame(SSE, number, 0))
        arrived(client, 9 / 2)
        counted = client.end()
        assert (counted.rows, counted.skipped) == (2, 2)


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
def test_pings_are_answered_and_a_lost_connection_is_told(
    program: Path, shown: ShownCertificate, tmp_path: Path, tls: bool
) -> None:
    with connected(program, tmp_path, WEBSOCKET, shown if tls else None) as (client, ends):
        client.begin()
        ends[0].send(b"\x89\x02hi" + frame(WEBSOCKET, 1, 0))
        assert ends[0].receive() == b"\x8a\x82\0\0\0\0hi"
        ends[1].link.close()
        arrived(client, 1 / 2)
        deadline = time.monotonic() + 10
        while client.end().lost == 0:
            assert time.monotonic() < deadline

"""Lanes: bytes go straight to the system while nothing waits, and nothing overtakes what does."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Coroutine
from typing import Any

import uvloop

from tailrace.gateway.connection.direct_transport import DirectTransport, made_direct
from tailrace.gateway.connection.fanout import Writers
from tailrace.gateway.connection.wire import Framing, Wire
from tailrace.gateway.live.keys.watched import Follower

PART = 50_000


class Connection(asyncio.Protocol):
    """A server's end, whose direct transport shuts with it; the client's end is a plain socket."""

    direct: DirectTransport
    paused = False

    def __init__(self) -> None:
        self.made, self.lost = asyncio.Event(), asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.direct = made_direct(transport)
        self.made.set()

    def pause_writing(self) -> None:
        self.paused = True

    def resume_writing(self) -> None:
        self.paused = False

    def connection_lost(self, _: Exception | None) -> None:
        self.direct.shut()
        self.lost.set()


def play(run: Callable[[Connection, socket.socket], Coroutine[Any, Any, None]]) -> None:
    """Run it with a connection whose client reads nothing by itself."""

    async def served() -> None:
        connection = Connection()
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: connection, "127.0.0.1", 0)
        client = socket.socket()
        client.setblocking(False)
        await loop.sock_connect(client, server.sockets[0].getsockname())
        await connection.made.wait()
        try:
            await asyncio.wait_for(run(connection, client), 30)
        finally:
            client.close()
            connection.direct.abort()
            server.close()
            await server.wait_closed()

    uvloop.run(served())


def part(number: int) -> bytes:
    return b"%d:" % number + b"x" * PART


async def taken(client: socket.socket, size: int) -> bytes:
    """So many bytes, as the client reads them."""
    found = b""
    while len(found) < size:
        data = await asyncio.get_running_loop().sock_recv(client, 65536)
        assert data, f"the connection ended after {len(found)} of {size} bytes"
        found += data
    return found


def fill(direct: DirectTransport) -> list[bytes]:
    """Write until something waits in the transport."""
    written: list[bytes] = []
    for number in range(1000):
        if not direct.clear:
            return written
        written.append(part(number))
        direct.write(written[-1])
    raise AssertionError("50 MB were written, and nothing waits")


def test_nothing_overtakes_what_waits_for_a_client_that_does_not_read() -> None:
    async def run(connection: Connection, client: socket.socket) -> None:
        direct = connection.direct
        assert direct.clear, "nothing waits yet"
        written = fill(direct)
        assert direct.get_write_buffer_size() > 0
        expected = b"".join(written)
        half = await taken(client, len(expected) // 2)
        # There is room in the system now, but the transport still has the rest of a part.
        for number in range(3):
            written.append(part(100 + number))
            direct.write(written[-1])
        expected = b"".join(written)
        assert half + await taken(client, len(expected) - len(half)) == expected
        assert not connection.paused
        direct.write(b"last")
        assert await taken(client, 4) == b"last"
        assert direct.clear, "nothing waits any more"

    play(run)


def test_a_lane_that_was_shut_never_writes_to_its_descriptor() -> None:
    async def run(connection: Connection, client: socket.socket) -> None:
        direct = connection.direct
        descriptor = direct.descriptor
        direct.close()
        assert not direct.clear and direct.descriptor != descriptor
        # As the transport: who writes to what is closing is not told.
        direct.write(b"late")
        await connection.lost.wait()
        assert await asyncio.get_running_loop().sock_recv(client, 100) == b""

    play(run)


def test_a_connection_that_broke_is_found_by_the_transport() -> None:
    async def run(connection: Connection, client: socket.socket) -> None:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        client.close()
        while not connection.lost.is_set():
            connection.direct.write(b"x")
            await asyncio.sleep(0)
        assert not connection.direct.clear

    play(run)


class Watching:
    """A subscription of one key, as far as writers know it."""

    def __init__(self, wire: Wire) -> None:
        self.wire = wire

    def rebuild(self) -> None: ...

    def start(self) -> None: ...


def test_a_client_without_room_holds_nobody_up_and_misses_nothing() -> None:
    async def run(connection: Connection, client: socket.socket) -> None:
        direct, others = connection.direct, [[], []]  # type: ignore[var-annotated]
        writers = Writers()
        wires = [Wire(direct.write, direct.abort, Framing.PLAIN, direct=direct)]
        wires += [Wire(other.append, lambda: None, Framing.PLAIN) for other in others]
        for wire in wires:
            writers.include(Follower(Watching(wire), None))  # type: ignore[arg-type]
        written = []
        for number in range(200):
            written.append(part(number))
            assert writers.write(written[-1]) == 3
        assert not direct.clear and others == [written, written]
        assert await taken(client, sum(map(len, written))) == b"".join(written)

    play(run)


def test_what_is_written_to_a_connection_that_closes_is_dropped() -> None:
    async def run(connection: Connection, client: socket.socket) -> None:
        connection.direct.abort()
        connection.direct.write(b"late")
        await connection.lost.wait()
        connection.direct.write(b"later")

    play(run)

"""Snapshots that are far larger than what the gateway may hold, for clients that stop reading: nobody else pays."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gateway_process import Tap
from materializing import ready, running
from query_gateway import QueryGateway
from running import PATIENCE
from socket_tap import PING, PONG, SocketTap
from streaming import Streams
from tailrace.dev.broker import Broker
from tailrace.dev.redis_server import RedisServer

# Of the ordinary run; `--examples 20` makes it a million.
ROWS = 50_000
PAD = "x" * 400
# What the gateway may grow by, in bytes; the rows alone have some 22 MB for each client, in Python several times that.
ROOM = 48 * 1024 * 1024
# How often everyone who reads stops, to see that others get their updates.
STOPS = 5


def row(key: str, n: int) -> bytes:
    return json.dumps({"k": key, "n": n, "s": PAD}, separators=(",", ":")).encode()


@pytest.fixture(scope="module")
def count(examples: int) -> int:
    """How many rows there are."""
    return ROWS * examples


@pytest.fixture(scope="module")
def streams(broker: Broker) -> Streams:
    return Streams(broker, "large-views")


@pytest.fixture(scope="module")
def gateway(
    streams: Streams, count: int, redis_server: RedisServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[QueryGateway]:
    """A gateway beside a materializer that holds so many rows."""
    for number in range(count):
        streams.log.put_later(f"k{number}".encode(), 1, row(f"k{number}", number))
        if number % 10_000 == 0:
            streams.log.flush()
    streams.log.flush()
    with running(streams.log, redis_server.url) as materializer:
        ready(materializer)
        # Who does not read does not answer pings, either.
        process = QueryGateway(tmp_path_factory.mktemp("gateway"), streams, redis_server.url, keep_alive=60)
        process.wait_ready()
        yield process
        process.close()


def resident(gateway: QueryGateway) -> int:
    """How many bytes of memory the gateway has."""
    pages = Path(f"/proc/{gateway.process.pid}/statm").read_text().split()[1]
    return int(pages) * 4096


class Reader:
    """A client of a snapshot, which reads when told to; `rows` has the number in each row that it holds."""

    def __init__(self, take: Callable[[], tuple[str, Any]]) -> None:
        self._take = take
        self.rows: dict[str, int] = {}
        self.ready = False

    def read(self, most: int) -> None:
        """Read so many frames, or up to `ready`."""
        for _ in range(most):
            if self.ready:
                return
            kind, found = self._take()
            self.ready = kind == "ready"
            if kind == "row":
                self.rows[found["k"]] = found["n"]
            elif kind == "gone":
                self.rows.pop(found["k"], None)
            else:
                assert kind in ("ready", "progress"), kind


class Bytes:
    """What comes over a connection, taken a piece at a time without copying the rest; nothing is read ahead."""

    def __init__(self, tap: Tap | SocketTap) -> None:
        self._socket, self._data, self._at = tap._socket, tap._raw, 0
        # A query is complete once each row was looked at.
        self._socket.settimeout(10 * PATIENCE)

    def take(self, size: int) -> bytes:
        """The next bytes, so many of them."""
        while len(self._data) - self._at < size:
            self._fill()
        self._at += size
        return self._data[self._at - size : self._at]

    def line(self) -> bytes:
        """The next line."""
        while (end := self._data.find(b"\n", self._at)) < 0:
            self._fill()
        return self.take(end + 1 - self._at)

    def _fill(self) -> None:
        more = self._socket.recv(65536)
        assert more, "the connection has ended"
        self._data, self._at = self._data[self._at :] + more, 0


def events(gateway: QueryGateway) -> Reader:
    # HTTP/1.0 has no chunks.
    found = Bytes(gateway.query(buffer=65536, version="1.0").tap)

    def take() -> tuple[str, Any]:
        while not (line := found.line()).startswith(b"event: "):
            pass
        kind = line[7:-1].decode()
        while not (line := found.line()).startswith(b"data: "):
            pass
        return kind, json.loads(line[6:])

    return Reader(take)


def messages(gateway: QueryGateway, view: str) -> Reader:
    tap = gateway.socket(buffer=65536)
    tap.send(type="subscribe", id="q", view=view, where="n >= 0")
    assert tap.message()["type"] == "subscribed"
    found = Bytes(tap)

    def take() -> tuple[str, Any]:
        while True:
            opcode, size = found.take(2)
            if size >= 126:
                size = int.from_bytes(found.take(2 if size == 126 else 8), "big")
            payload = found.take(size)
            if opcode & 0x0F == PING:
                tap.send_frame(PONG, payload)
                continue
            message = json.loads(payload)
            return message["type"], message.get("row", {"k": message.get("key")})

    return Reader(take)


def written(gateway: QueryGateway) -> list[float]:
    """How many rows the gateway has written over each surface."""
    return [gateway.metric(f'tailrace_gateway_frames_total{{kind="row",surface="{one}"}}') for one in ("sse", "ws")]


def test_a_snapshot_that_is_not_read_takes_no_memory_and_holds_up_nobody(
    gateway: QueryGateway, streams: Streams, count: int
) -> None:
    other = gateway.follow(f"/views/{streams.log.view}/k7/events")
    other.frames("ready")
    before = most = resident(gateway)
    readers = [events(gateway), messages(gateway, streams.log.view)]
    newest = 7
    for reader in readers:
        reader.read(1_000)
    counts = written(gateway)
    while counts != (counts := written(gateway)):
        time.sleep(0.3)
    assert max(counts) < count / 2, "rows wait in Redis, not in the gateway, until they are read"
    for stop in range(1, STOPS + 1):
        for reader in readers:
            reader.read(count // (STOPS + 1))
            assert not reader.ready and len(reader.rows) < count, "the snapshot goes on"
        newest = -stop if stop % 2 else stop
        streams.log.put(b"k7", 1 + stop, row("k7", newest))
        assert other.frame().data["n"] == newest, "another client has its update while the snapshots wait"
        most = max(most, resident(gateway))
    for reader in readers:
        while not reader.ready:
            reader.read(1_000)
        most = max(most, resident(gateway))
    whole, some = readers
    held = {**{f"k{number}": number for number in range(count)}, "k7": newest}
    assert whole.rows == held
    assert {key: n for key, n in held.items() if n >= 0} == some.rows
    assert most - before < ROOM, f"{count} rows took {(most - before) >> 20} MB"
    print(f"{count} rows: {before >> 20} MB before, {most >> 20} MB at most")

"""Two gateways beside a materializer, streams that are opened on them, and a client of one on a WebSocket."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx

from materializing import ready, running
from query_gateway import Copy, QueryGateway
from socket_tap import SocketTap
from streaming import Streams
from tailrace.dev.redis_server import RedisServer
from tailrace.kafka.brokers import Brokers
from tailrace.kafka.commands_topic import CommandsReader

KEYS = [f"k{n}" for n in range(6)]

# One client for all requests, because making a client takes longer than most requests. Each has its own connection.
HTTP = httpx.Client(timeout=30, limits=httpx.Limits(max_keepalive_connections=0))

Pair = tuple[QueryGateway, QueryGateway]
Stream = dict[str, Any]


def row(key: str, n: int) -> bytes:
    return json.dumps({"k": key, "n": n, "s": "a"}).encode()


@contextmanager
def two_gateways(streams: Streams, redis_server: RedisServer, directory: Path) -> Iterator[Pair]:
    """Two gateways beside a running materializer, over a view with a row for each of KEYS."""
    streams.log.put_many((key.encode(), 1, row(key, 3)) for key in KEYS)
    with running(streams.log, redis_server.url) as materializer:
        ready(materializer)
        pair = [QueryGateway(directory, streams, redis_server.url, query_lease=6, linger=1) for _ in range(2)]
        for gateway in pair:
            gateway.wait_ready()
        yield pair[0], pair[1]
        for gateway in pair:
            gateway.close()


def opened(gateway: QueryGateway, streams: Streams, **what: Any) -> Stream:
    wanted = {"view": streams.log.view, "ttl": 5, **what}
    answer = HTTP.post(f"{gateway.url}/streams", json=wanted)
    assert answer.status_code == 201, answer.text
    found: Stream = answer.json()
    return found


def connected(gateway: QueryGateway, stream: Stream, position: str | None = None) -> Copy:
    headers = {} if position is None else {"Last-Event-ID": position}
    return Copy(gateway.follow(stream["events"], headers=headers))


def command(gateway: QueryGateway, method: str, stream: Stream, path: str = "", **body: Any) -> httpx.Response:
    return HTTP.request(method, f"{gateway.url}/streams/{stream['id']}{path}", json=body or None)


def commands(streams: Streams) -> dict[str, bytes]:
    reader = CommandsReader(Brokers(streams.log.broker.address), streams.log.app)
    try:
        return reader.read_whole()
    finally:
        reader.close()


class SocketCopy:
    """What a client of a stream holds if it applies the messages of a WebSocket in order.

    `positions` are those of the keys that it holds, and `position` is that of the last `ready`. `messages`
    has every message that came.
    """

    def __init__(self, tap: SocketTap, id: str) -> None:
        self.tap = tap
        self.id = id
        self.rows: dict[str, Any] = {}
        self.positions: dict[str, str] = {}
        self.position: str | None = None
        self.messages: list[dict[str, Any]] = []

    def take(self) -> dict[str, Any]:
        """Apply one message."""
        message = self.tap.message()
        self.messages.append(message)
        kind, key = message["type"], message.get("key", "")
        if kind == "row":
            self.rows[key] = message["row"]
            self.positions[key] = message.get("position", "")
        elif kind == "gone":
            self.rows.pop(key, None)
            self.positions.pop(key, None)
        elif kind == "reset" and message["id"] == self.id:
            self.rows.clear()
            self.positions.clear()
        elif kind == "ready" and message["id"] == self.id:
            self.position = message["position"]
            self.positions = dict.fromkeys(self.rows, message["position"])
        return message

    def ready(self) -> list[dict[str, Any]]:
        """Wait for `ready`; returns the messages up to it, without `subscribed`."""
        found = [self.take()]
        while found[-1]["type"] != "ready":
            found.append(self.take())
        return [message for message in found if message["type"] != "subscribed"]

    def until(self, keys: Iterable[str], holds: Callable[[dict[str, Any]], bool] = lambda _: True) -> None:
        """Apply messages until the client holds exactly these keys, and `holds` is true of their rows."""
        wanted = set(keys)
        while set(self.rows) != wanted or not holds(self.rows):
            self.take()

    def close(self) -> None:
        self.tap.close()


def attached(gateway: QueryGateway, stream: Stream, position: str | None = None) -> SocketCopy:
    """A client on the stream's own WebSocket."""
    path = stream["ws"] + ("" if position is None else f"?position={quote(position)}")
    return SocketCopy(gateway.socket(path), stream["id"])


def subscribed(gateway: QueryGateway, stream: Stream, id: str = "e", **resume: Any) -> SocketCopy:
    """A client that subscribes to the stream on `/ws`."""
    tap = gateway.socket()
    tap.send(type="subscribe", id=id, stream=stream["id"], **resume)
    return SocketCopy(tap, id)

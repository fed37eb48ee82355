"""Many clients: none is forgotten in a drain, none leaves anything behind, and one that does not read costs nobody."""

from __future__ import annotations

import os
import resource
import selectors
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from gateway_process import GatewayProcess, Store, row
from running import eventually
from socket_tap import SocketTap
from tailrace.dev.redis_server import RedisServer
from tailrace.store.layout.keys import default_prefix

KEY = "362"


@pytest.fixture(autouse=True)
def many_descriptors() -> Iterator[None]:
    before, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(8192, most), most))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (before, most))


@pytest.fixture
def own(redis_server: RedisServer, store: Store, tmp_path: Path, many_descriptors: None) -> Iterator[GatewayProcess]:
    """A gateway of the test's own."""
    store.put("averages", KEY, 1, row(1))
    process = GatewayProcess(tmp_path, redis_server.url, store.catalog.app, sweep=3600, slow=1.0, keep_alive=15.0)
    process.wait_ready()
    yield process
    process.close()


def upgrade(keys: str) -> tuple[bytes, bytes]:
    """What a client sends to open a WebSocket, and to subscribe to keys."""
    head = (
        b"GET /ws HTTP/1.1\r\nHost: test\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
    )
    text = b'{"type":"subscribe","id":"a","view":"averages","keys":[%b]}' % keys.encode()
    return head, bytes((0x81, 0x80 | len(text))) + bytes(4) + text


class Crowd:
    """Plain sockets that are read together."""

    def __init__(self, gateway: GatewayProcess) -> None:
        self._port = gateway.port
        self._selector = selectors.DefaultSelector()
        self.read: dict[socket.socket, bytes] = {}
        self.ended: set[socket.socket] = set()
        self._then: dict[socket.socket, bytes] = {}

    def connect(self, request: bytes, then: bytes = b"") -> None:
        """Connect and send a request; `then` is sent once the head of the answer has come."""
        one = socket.create_connection(("127.0.0.1", self._port))
        one.sendall(request)
        one.setblocking(False)
        self.read[one], self._then[one] = b"", then
        self._selector.register(one, selectors.EVENT_READ)

    def until(self, what: bytes) -> None:
        """Read until every client has been sent this."""
        waiting = {one for one, data in self.read.items() if what not in data}
        deadline = time.monotonic() + 60
        while waiting:
            assert time.monotonic() < deadline, f"{len(waiting)} clients still wait for {what!r}"
            waiting -= {one for one in self._some() if what in self.read[one]}

    def until_ended(self) -> None:
        """Read until every connection has ended."""
        while len(self.ended) < len(self.read):
            self._some()

    def close(self) -> None:
        for one in self.read:
            one.close()
        self._selector.close()

    def _some(self) -> list[socket.socket]:
        ready = self._selector.select(60)
        assert ready, f"still waiting for {len(self.read) - len(self.ended)} clients"
        found = []
        for event, _ in ready:
            one = event.fileobj
            assert isinstance(one, socket.socket)
            data = one.recv(65536)
            self.read[one] += data
            if b"\r\n\r\n" in self.read[one] and (then := self._then.pop(one, b"")):
                one.sendall(then)
            if not data:
                self.ended.add(one)
                self._selector.unregister(one)
            found.append(one)
        return found


def test_a_drain_lets_two_thousand_clients_go_with_a_word(own: GatewayProcess) -> None:
    crowd = Crowd(own)
    event = f"GET /views/averages/{KEY}/events HTTP/1.1\r\nHost: test\r\n\r\n".encode()
    for _ in range(1000):
        crowd.connect(event)
        crowd.connect(*upgrade(f'"{KEY}"'))
    crowd.until(b"ready")
    assert own.metric('tailrace_gateway_connections{surface="sse"}') == 1000
    assert own.metric('tailrace_gateway_connections{surface="ws"}') == 1000
    idle = socket.create_connection(("127.0.0.1", own.port))
    own.process.terminate()
    crowd.until_ended()
    assert own.process.wait(30) == 0
    for data in crowd.read.values():
        if data.startswith(b"HTTP/1.1 101"):
            assert data.count(b"\x03\xe9") == 1, "1001, once"
        else:
            assert data.count(b'"reason":"shutdown"') == 1 and data.endswith(b"0\r\n\r\n"), "the end of the body"
    crowd.close()
    idle.close()


def test_ten_thousand_connects_and_disconnects_leave_nothing(
    own: GatewayProcess, store: Store, redis_server: RedisServer
) -> None:
    client = redis.Redis.from_url(redis_server.url)

    def held() -> tuple[float, float]:
        return len(os.listdir(f"/proc/{own.process.pid}/fd")), own.metric("tailrace_gateway_tasks")  # noqa: PTH208

    def left() -> dict[str, float]:
        return {
            "listened": len(client.pubsub_channels(f"{default_prefix(store.catalog.app)}:{{*")),
            **{
                name: own.metric(f"tailrace_gateway_{name}")
                for name in (
                    "followers",
                    "channels",
                    'connections{surface="sse"}',
                    'connections{surface="ws"}',
                    'subscriptions{surface="sse"}',
                    'subscriptions{surface="ws"}',
                )
            },
        }

    before, (descriptors, tasks) = left(), held()
    assert set(before.values()) == {0}
    head, subscribe = upgrade('"1","2"')
    for batch in range(50):
        crowd = Crowd(own)
        for number in range(200):
            key = (batch * 200 + number) % 300
            if number % 4 == 0:
                crowd.connect(head, subscribe)
            elif number % 4 == 1:
                crowd.connect(head)
            elif number % 4 == 2:
                crowd.connect(f"GET /views/averages/events?key={key}&key=x HTTP/1.1\r\nHost: t\r\n\r\n".encode())
            else:
                crowd.connect(f"GET /views/averages/{key}/events HTTP/1.1\r\nHost: t\r\n\r\n".encode())
        if batch % 2 == 0:
            crowd.until(b"\r\n\r\n")
        crowd.close()
    eventually(lambda: left() == before, "everything is as before")
    # Connections to Redis, and what uses them, come and go.
    eventually(lambda: held()[0] <= descriptors + 8, "no connection is kept")
    eventually(lambda: held()[1] <= tasks + 8, "no task is left")


@pytest.mark.parametrize(("surface", "key"), [("sse", "900"), ("ws", "901")])
def test_a_client_that_never_reads_is_ended_and_the_others_go_on(
    own: GatewayProcess, store: Store, surface: str, key: str
) -> None:
    reading: SocketTap = own.socket()
    reading.subscribe("a", view="averages", keys=[key])
    if surface == "ws":
        own.socket(buffer=4096).send(type="subscribe", id="a", view="averages", keys=[key, "1"])
    else:
        own.follow(f"/views/averages/events?key={key}&key=1", buffer=4096)
    sample = f'tailrace_gateway_closed_total{{reason="slow",surface="{surface}"}}'
    version = 1
    while own.metric(sample) == 0:
        version += 1
        store.put("averages", key, version, row(version, pad="x" * 65536))
        assert reading.message()["row"]["version"] == version
    eventually(lambda: own.metric(f'tailrace_gateway_connections{{surface="{surface}"}}') == (surface == "ws"), "gone")
    store.put("averages", key, version + 1, row(version + 1))
    assert reading.message()["row"] == {"version": version + 1}

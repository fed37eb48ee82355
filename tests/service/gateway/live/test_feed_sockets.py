"""Feeds over WebSockets, on a real Redis: the same promises as over SSE, beside other subscriptions."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect
from websockets.sync.connection import Connection

from feed_serving import FEED, FeedStore, begun
from gateway_process import GatewayProcess
from running import eventually
from tailrace.dev.redis_server import RedisServer


@pytest.fixture(scope="module")
def store(redis_server: RedisServer) -> FeedStore:
    return begun(FeedStore(redis_server.url, "test-gateway-feed-sockets", length=4))


@pytest.fixture(scope="module")
def gateway(
    redis_server: RedisServer, store: FeedStore, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[GatewayProcess]:
    directory = tmp_path_factory.mktemp("gateway")
    process = GatewayProcess(directory, redis_server.url, store.app, {"feed-backlog": "300000"}, lease=3600)
    process.wait_ready()
    yield process
    process.close()


class Socket:
    """A client that says and hears JSON."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    def subscribe(self, id: str, client: str, position: str | None = None, feed: str = FEED) -> None:
        """Ask for a feed."""
        said = {"type": "subscribe", "id": id, "feed": feed, "client": client, "position": position}
        self.connection.send(json.dumps(said))

    def hear(self) -> dict[str, Any]:
        """The next message that is not `progress`."""
        while True:
            found: dict[str, Any] = json.loads(self.connection.recv(timeout=30))
            if found["type"] != "progress":
                return found

    def until(self, kind: str) -> list[dict[str, Any]]:
        """The next messages, up to the first of a type."""
        found = [self.hear()]
        while found[-1]["type"] != kind:
            found.append(self.hear())
        return found


@contextmanager
def socket(gateway: GatewayProcess, **options: Any) -> Iterator[Socket]:
    with connect(f"ws://127.0.0.1:{gateway.port}/ws", compression=None, **options) as connection:
        yield Socket(connection)


def told(messages: list[dict[str, Any]]) -> list[str]:
    return [one["event"]["text"] if one["type"] == "event" else one["type"] for one in messages]


def test_a_subscription_is_ready_and_then_every_event(gateway: GatewayProcess, store: FeedStore) -> None:
    with socket(gateway) as one, socket(gateway) as other:
        one.subscribe("a", "ann")
        other.subscribe("b", "ann")
        assert one.hear() == {"type": "subscribed", "id": "a"}
        assert one.hear() == {"type": "ready", "id": "a", "position": store.position(store.offset)}
        other.until("ready")
        offset = store.put("ann", "ü")
        event = one.hear()
        assert event == {
            "type": "event",
            "feed": FEED,
            "client": "ann",
            "position": store.position(offset),
            "event": {"text": "ü"},
        }
        assert other.hear() == event
        position = event["position"]
    with socket(gateway) as back:
        store.put("ann", "1", "2")
        back.subscribe("c", "ann", position)
        assert told(back.until("ready")) == ["subscribed", "1", "2", "ready"]


def test_a_position_that_is_not_covered_gets_reset_and_what_is_kept(gateway: GatewayProcess, store: FeedStore) -> None:
    with socket(gateway) as one:
        one.subscribe("a", "bob")
        position = one.until("ready")[-1]["position"]
        store.put("bob", *"123456")
        assert told([one.hear() for _ in range(6)]) == list("123456")
        with socket(gateway) as late:
            late.subscribe("z", "bob", position)
            found = late.until("ready")
            assert told(found) == ["subscribed", "reset", *"3456", "ready"]
            assert (found[1]["id"], found[1]["reason"]) == ("z", "missed") and "at most 4" in found[1]["message"]


def test_subscriptions_of_one_socket_do_not_disturb_each_other(gateway: GatewayProcess, store: FeedStore) -> None:
    with socket(gateway) as one:
        for id, client in (("a", "cat"), ("b", "dan")):
            one.subscribe(id, client)
            one.until("ready")
        one.subscribe("c", "cat")
        refused = one.until("error")[-1]
        assert (refused["id"], refused["error"], refused["retry"]) == ("c", "already followed", False)
        one.subscribe("d", "cat", feed="notes")
        refused = one.until("error")[-1]
        assert (refused["id"], refused["error"], refused["expected"]) == ("d", "unknown feed", [FEED])
        store.put("cat", "1")
        store.put("dan", "2")
        assert sorted(told([one.hear(), one.hear()])) == ["1", "2"]
        one.connection.send(json.dumps({"type": "unsubscribe", "id": "a"}))
        assert one.hear() == {"type": "unsubscribed", "id": "a"}
        eventually(lambda: store.redis.hget(store.keys.leases, "cat") is None, "it is signed off")
        store.put("cat", "3")
        store.put("dan", "4")
        assert told([one.hear()]) == ["4"]
        one.subscribe("a", "cat", store.position(store.offset - 2))
        assert told(one.until("ready")) == ["subscribed", "3", "ready"]


def test_a_slow_client_is_closed_with_a_code_that_says_so(gateway: GatewayProcess, store: FeedStore) -> None:
    with socket(gateway, max_queue=1) as slow, socket(gateway) as fast:
        for one in (slow, fast):
            one.subscribe("a", "eve")
            one.until("ready")
        pad, count = "x" * 30_000, 500
        for n in range(count):
            store.put("eve", f"{n} {pad}")
            assert fast.hear()["event"]["text"].startswith(f"{n} ")
        seen, code = [], 0
        while not code:
            try:
                seen.append(int(slow.hear()["event"]["text"].split()[0]))
            except ConnectionClosed as closed:
                code = closed.rcvd.code if closed.rcvd is not None else -1
        assert code == 4408
        assert seen == list(range(len(seen))) and len(seen) < count
        assert gateway.metric('tailrace_gateway_closed_total{reason="slow",surface="ws"}') == 1


def test_a_removed_feed_ends_its_subscription_and_no_other(
    redis_server: RedisServer, fresh: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    store = begun(FeedStore(redis_server.url, fresh))
    gateway = GatewayProcess(tmp_path_factory.mktemp("gateway"), redis_server.url, fresh)
    gateway.wait_ready()
    with socket(gateway) as one:
        one.subscribe("a", "ann")
        one.until("ready")
        store.declare(removed=True)
        error = one.hear()
        assert (error["type"], error["id"], error["error"], error["retry"]) == ("error", "a", "unknown feed", False)
        one.connection.send(json.dumps({"type": "ping"}))
        assert one.hear() == {"type": "pong"}
    eventually(lambda: gateway.metric("tailrace_gateway_feed_listeners") == 0, "nobody listens")
    gateway.close()

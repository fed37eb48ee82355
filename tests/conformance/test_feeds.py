"""Feeds: docs/protocol.md against a running gateway, and what both clients promise of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from conformance.client_process import ClientProcess
from conformance.network import Network
from conformance.shapes import event_problems, message_problems, order_problems
from conformance.surfaces import any_message
from conformance.world import LANGUAGES
from feed_serving import FEED, FeedStore, begun
from gateway_process import GatewayProcess
from running import eventually
from tailrace.dev.redis_server import RedisServer

KEPT = 2500


@pytest.fixture(scope="module")
def store(redis_server: RedisServer) -> FeedStore:
    """One feed; clients are named by the test."""
    return begun(FeedStore(redis_server.url, "conformance-feeds", length=KEPT))


@pytest.fixture(scope="module")
def gateway(
    redis_server: RedisServer, store: FeedStore, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[GatewayProcess]:
    """A gateway that serves it."""
    process = GatewayProcess(tmp_path_factory.mktemp("gateway"), redis_server.url, store.app)
    process.wait_ready()
    yield process
    process.close()


@pytest.fixture(scope="module")
def network(gateway: GatewayProcess) -> Iterator[Network]:
    """The network in front of it."""
    network = Network(gateway.port)
    yield network
    network.close()


@pytest.fixture
def clients(network: Network) -> Iterator[list[ClientProcess]]:
    """A client in each language over each transport."""
    made = [ClientProcess(one, network.url, transport) for one in LANGUAGES for transport in ("socket", "events")]
    yield made
    for client in made:
        client.kill()


class Followed:
    """A feed over one surface; each frame's shape is checked as it comes."""

    def __init__(self, gateway: GatewayProcess, surface: str, client: str, position: str | None = None) -> None:
        self._events = self._socket = None
        if surface == "events":
            headers = {} if position is None else {"Last-Event-ID": position}
            self._events = gateway.follow(f"/feeds/{FEED}/{client}/events", headers=headers)
        else:
            self._socket = gateway.socket()
            self._socket.send(type="subscribe", id="f", feed=FEED, client=client, position=position)
            assert any_message(self._socket) == {"type": "subscribed", "id": "f"}

    def frame(self) -> tuple[str, Any, str | None]:
        """The next frame: its kind, its event's text or its reason, and its position."""
        if self._events is not None:
            frame = self._events.any_frame()
            assert not event_problems(frame.event, frame.id, frame.data)
            return frame.event, frame.data.get("text", frame.data.get("reason")), frame.id
        assert self._socket is not None
        message = any_message(self._socket)
        assert not message_problems(message)
        return message["type"], message.get("event", {}).get("text", message.get("reason")), message.get("position")

    def until_ready(self) -> list[tuple[str, Any, str | None]]:
        """The frames up to `ready`, without `progress`."""
        found = [self.frame()]
        while found[-1][0] != "ready":
            found.append(self.frame())
        assert not order_problems([kind for kind, *_ in found])
        return [frame for frame in found if frame[0] != "progress"]

    def close(self) -> None:
        """Disconnect."""
        for one in (self._events, self._socket):
            if one is not None:
                one.close()


@pytest.mark.parametrize("surface", ["events", "socket"])
def test_a_feed_is_ready_and_then_every_event_and_goes_on_where_it_was(
    gateway: GatewayProcess, store: FeedStore, surface: str
) -> None:
    client = f"protocol-{surface}"
    feed = Followed(gateway, surface, client)
    assert [kind for kind, *_ in feed.until_ready()] == ["ready"]
    store.put(client, "1", "1", "2")
    frames = [feed.frame() for _ in range(3)]
    assert [(kind, text) for kind, text, _ in frames] == [("event", "1"), ("event", "1"), ("event", "2")]
    feed.close()
    feed = Followed(gateway, surface, client, frames[0][2])
    assert [text for _, text, _ in feed.until_ready()] == ["1", "2", None], "the exact suffix"
    feed.close()
    position = frames[2][2]
    for _ in range(2):
        feed = Followed(gateway, surface, client, position)
        ((_, _, position),) = feed.until_ready()
        feed.close()


@pytest.mark.parametrize("surface", ["events", "socket"])
@pytest.mark.parametrize("reason", ["unreadable", "foreign", "ahead", "missed"])
def test_a_position_that_cannot_be_used_gets_reset_and_what_is_kept(
    gateway: GatewayProcess, store: FeedStore, surface: str, reason: str
) -> None:
    client = f"{reason}-{surface}"
    lineage = store.place.lineage
    position = {"unreadable": "x", "foreign": "ffffffff.1.0-1", "ahead": f"{lineage}.1.0-999999"}
    first = Followed(gateway, surface, client)
    ((_, _, begin),) = first.until_ready()
    store.put(client, "kept")
    # Who was never registered that long ago has missed what there was.
    feed = Followed(gateway, surface, client, position.get(reason, f"{lineage}.1.7-3"))
    reset, event, _ = feed.until_ready()
    assert (reset[:2], event[:2]) == (("reset", reason), ("event", "kept")) and begin is not None
    for one in (feed, first):
        one.close()


def heard(client: ClientProcess, number: int) -> list[str]:
    """The texts of the next events of a feed."""
    return [client.change("f")["event"]["text"] for _ in range(number)]


def test_clients_get_every_event_once_and_in_order_over_lost_connections(
    store: FeedStore, network: Network, clients: list[ClientProcess]
) -> None:
    for client in clients:
        client.order("feed", "f", arguments=[FEED, "ann"])
        assert client.ready("f") == [], client.label
    store.put("ann", "1", "1")
    for client in clients:
        assert heard(client, 2) == ["1", "1"], client.label
    network.black_hole()
    store.put("ann", "2", "3")
    network.mend()
    network.cut()
    for client in clients:
        assert [told["event"]["text"] for told in client.ready("f")] == ["2", "3"], client.label
    store.put("ann", "4")
    network.cut()
    for client in clients:
        found = client.until(lambda told: told["type"] == "event" and told["event"]["text"] == "4", "the last event")
        assert [told["type"] for told in found if told["type"] != "ready"] == ["event"], client.label
        client.close()


def test_clients_that_read_slowly_hold_a_thousand_events_and_lose_none(
    gateway: GatewayProcess, store: FeedStore, clients: list[ClientProcess]
) -> None:
    for client in clients:
        client.order("pause")
        client.order("feed", "f", arguments=[FEED, "bea"])
        assert client.change("f")["type"] == "ready", client.label
    texts = [str(number) for number in range(2000)]
    for start in range(0, 2000, 100):
        store.put("bea", *texts[start : start + 100])
    # Each has a thousand, and has left: nobody sends it more than it takes.
    eventually(
        lambda: sum(gateway.metric(f'tailrace_gateway_subscriptions{{surface="{one}"}}') for one in ("sse", "ws")) == 0,
        "the clients have left",
    )
    for client in clients:
        client.order("go on")
        found: list[str] = []
        while len(found) < 2000:
            told = client.change("f")
            assert told["type"] in ("event", "ready"), f"{client.label}: {told}"
            found += [told["event"]["text"]] if told["type"] == "event" else []
        assert found == texts, client.label
        client.close()


def test_clients_go_on_after_an_event_that_a_program_remembers_and_are_told_what_they_missed(
    store: FeedStore, clients: list[ClientProcess]
) -> None:
    for client in clients:
        client.order("feed", "f", arguments=[FEED, "cid"])
        client.ready("f")
    store.put("cid", "1", "2")
    for client in clients:
        first = client.change("f")
        client.change("f")
        client.order("feed", "g", arguments=[FEED, "cid"], position=first["position"])
        assert [told["event"]["text"] for told in client.ready("g")] == ["2"], client.label
        client.order("feed", "h", arguments=[FEED, "cid"], position="ffffffff.1.0-1")
        reset, *events = client.ready("h")
        assert (reset["type"], reset["reason"]) == ("reset", "foreign"), client.label
        assert [told["event"]["text"] for told in events] == ["1", "2"], client.label
    store.put("cid", "3")
    for client in clients:
        waiting = {"f", "g", "h"}
        while waiting:
            last = client.until(lambda told: told["type"] == "event", f"the last event of {waiting}")[-1]
            assert last["event"]["text"] == "3", f"{client.label}: who had events before is not told again"
            waiting.discard(last["name"])
        client.close()

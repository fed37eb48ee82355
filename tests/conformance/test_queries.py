"""Queries, whole views and streams: docs/protocol.md against a running gateway, and what both clients promise."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from conformance.client_process import ClientProcess, Told
from conformance.network import Network
from conformance.shapes import event_problems, message_problems, order_problems, problem_problems
from conformance.surfaces import any_message
from conformance.world import LANGUAGES
from gateway_process import Tap
from materializing import ready, running
from query_gateway import QueryGateway
from socket_tap import SocketTap
from streaming import Streams
from tailrace.dev.broker import Broker
from tailrace.dev.redis_server import RedisServer


class Rows:
    """Rows of one test, told apart by a column from those of others."""

    def __init__(self, streams: Streams, tag: str) -> None:
        self.view = streams.log.view
        self.where = f"s = '{tag}' and n > 2"
        self._log, self._tag = streams.log, tag
        self._version = 0

    def key(self, name: str) -> str:
        """The key of a name."""
        return f"{self._tag}-{name}"

    def put(self, **numbers: int | None) -> dict[str, Any]:
        """Rows with these numbers, or none where it is None; returns those that match, by key."""
        self._version += 1
        rows = {self.key(name): {"k": self.key(name), "n": n, "s": self._tag} for name, n in numbers.items()}
        self._log.put_many(
            (key.encode(), self._version, None if row["n"] is None else json.dumps(row).encode())
            for key, row in rows.items()
        )
        return {key: row for key, row in rows.items() if isinstance(row["n"], int) and row["n"] > 2}


@pytest.fixture(scope="module")
def streams(broker: Broker) -> Streams:
    """A view with its changelog and its commands."""
    return Streams(broker, "conformance-queries")


@pytest.fixture(scope="module")
def gateway(
    streams: Streams, redis_server: RedisServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[QueryGateway]:
    """A gateway beside a running materializer."""
    with running(streams.log, redis_server.url) as materializer:
        ready(materializer)
        process = QueryGateway(tmp_path_factory.mktemp("gateway"), streams, redis_server.url)
        process.wait_ready()
        yield process
        process.close()


@pytest.fixture(scope="module")
def network(gateway: QueryGateway) -> Iterator[Network]:
    """The network in front of it."""
    network = Network(gateway.port)
    yield network
    network.close()


@pytest.fixture
def rows(streams: Streams, gateway: QueryGateway, fresh: str) -> Rows:
    """Rows of this test."""
    return Rows(streams, fresh)


@pytest.fixture
def clients(network: Network) -> Iterator[list[ClientProcess]]:
    """A client in each language over each transport."""
    made = [ClientProcess(one, network.url, transport) for one in LANGUAGES for transport in ("socket", "events")]
    yield made
    for client in made:
        client.kill()


class Followed:
    """A query over one surface, and the copy of a client that applies its frames; each one's shape is checked."""

    def __init__(self, gateway: QueryGateway, surface: str, rows: Rows, position: str | None = None) -> None:
        self.rows: dict[str, Any] = {}
        self.kinds: list[str] = []
        self.position = position
        self._events = self._socket = None
        if surface == "events":
            headers = {} if position is None else {"Last-Event-ID": position}
            self._events = gateway.follow(f"/views/{rows.view}/events?where={quote(rows.where)}", headers=headers)
        else:
            self._socket = gateway.socket()
            self._socket.send(type="subscribe", id="q", view=rows.view, where=rows.where, position=position)
            subscribed = any_message(self._socket)
            assert subscribed["type"] == "subscribed" and not message_problems(subscribed)
            self.query = subscribed["query"]

    def take(self) -> str:
        """Apply the next frame; returns its kind."""
        if self._events is not None:
            frame = self._events.any_frame()
            assert not event_problems(frame.event, frame.id, frame.data)
            kind, row, position = frame.event, frame.data, frame.id
            key = row.get("k", "")
        else:
            assert self._socket is not None
            message = any_message(self._socket)
            assert not message_problems(message)
            kind, row, position, key = message["type"], message.get("row"), message.get("position"), message.get("key")
            if kind in ("row", "gone"):
                assert message["query"] == self.query and "id" not in message
        if kind == "row":
            self.rows[key] = row
        elif kind == "gone":
            self.rows.pop(key, None)
        self.position = position if kind == "ready" else self.position
        self.kinds.append(kind)
        assert not order_problems(self.kinds)
        return kind

    def until(self, wanted: Callable[[Followed], bool]) -> None:
        """Apply frames until something is so."""
        while not wanted(self):
            self.take()

    def close(self) -> None:
        """Disconnect."""
        for one in (self._events, self._socket):
            if one is not None:
                one.close()


@pytest.mark.parametrize("surface", ["events", "socket"])
def test_a_query_is_what_matches_and_goes_on_where_it_was(gateway: QueryGateway, rows: Rows, surface: str) -> None:
    before = rows.put(a=3, b=4, c=1)
    query = Followed(gateway, surface, rows)
    query.until(lambda one: "ready" in one.kinds and one.rows == before)
    after = {**before, **rows.put(c=5)}
    query.until(lambda one: one.rows == after)
    rows.put(a=0)
    query.until(lambda one: rows.key("a") not in one.rows)
    query.close()
    # A position that was merged from frames is for clients; the one of `ready` is whole.
    query = Followed(gateway, surface, rows, query.position)
    query.until(lambda one: "ready" in one.kinds)
    assert "reset" not in query.kinds
    query.close()
    for _ in range(2):
        query = Followed(gateway, surface, rows, query.position)
        query.until(lambda one: "ready" in one.kinds)
        assert [kind for kind in query.kinds if kind != "progress"] == ["ready"], "a second idle resume is nothing"
        query.close()


@pytest.mark.parametrize("surface", ["events", "socket"])
@pytest.mark.parametrize("position", ["nonsense", "ffffffff.1.0-1"])
def test_a_position_that_cannot_be_used_gets_reset_and_everything(
    gateway: QueryGateway, rows: Rows, surface: str, position: str
) -> None:
    before = rows.put(a=3)
    query = Followed(gateway, surface, rows)
    query.until(lambda one: one.rows == before)
    query.close()
    query = Followed(gateway, surface, rows, position)
    query.until(lambda one: "ready" in one.kinds)
    assert [kind for kind in query.kinds if kind != "progress"] == ["reset", "row", "ready"] and query.rows == before
    query.close()


class FollowedStream:
    """A stream over one surface, and the copy of a client that applies its frames; each one's shape is checked.

    `own` is the stream's own WebSocket, `shared` a subscription on `/ws`.
    """

    def __init__(self, gateway: QueryGateway, surface: str, stream: dict[str, Any], resume: str | None = None) -> None:
        self.id = "e" if surface == "shared" else stream["id"]
        self.rows: dict[str, Any] = {}
        self.kinds: list[str] = []
        self.position = resume
        self.tap: Tap | SocketTap
        if surface == "events":
            self.tap = gateway.follow(stream["events"] + ("" if resume is None else f"?last_event_id={resume}"))
            assert self.tap.status == 200
        elif surface == "own":
            self.tap = gateway.socket(stream["ws"] + ("" if resume is None else f"?position={resume}"))
        else:
            self.tap = gateway.socket()
            self.tap.send(type="subscribe", id=self.id, stream=stream["id"], position=resume)
        if isinstance(self.tap, SocketTap):
            assert any_message(self.tap) == {"type": "subscribed", "id": self.id}

    def take(self) -> str:
        """Apply the next frame; returns its kind."""
        if isinstance(self.tap, SocketTap):
            message = any_message(self.tap)
            assert not message_problems(message) and message.get("id", self.id) == self.id
            kind, row, position, key = message["type"], message.get("row"), message.get("position"), message.get("key")
            position = position if kind == "ready" else None
        else:
            frame = self.tap.any_frame()
            assert not event_problems(frame.event, frame.id, frame.data)
            kind, row, position, key = frame.event, frame.data, frame.id, frame.data.get("k")
        if kind == "row":
            self.rows[str(key)] = row
        elif kind == "gone":
            self.rows.pop(str(key), None)
        self.position = position or self.position
        self.kinds.append(str(kind))
        assert not order_problems(self.kinds)
        return self.kinds[-1]

    def until(self, rows: dict[str, Any]) -> None:
        """Apply frames until `ready` has come and these rows are held."""
        while "ready" not in self.kinds or self.rows != rows:
            self.take()


@pytest.mark.parametrize("surface", ["events", "own", "shared"])
def test_a_stream_begins_changes_goes_on_and_ends(gateway: QueryGateway, rows: Rows, surface: str) -> None:
    before = rows.put(a=3, b=4, c=5)
    a, b, c = (rows.key(name) for name in "abc")
    opened = httpx.post(f"{gateway.url}/streams", json={"view": rows.view, "keys": [a, b]}, timeout=30)
    assert opened.status_code == 201
    stream, path = opened.json(), f"{gateway.url}/streams/{opened.json()['id']}"
    one = FollowedStream(gateway, surface, stream)
    assert httpx.post(f"{path}/begin", timeout=30).json()["begun"]
    one.until({a: before[a], b: before[b]})
    assert httpx.patch(path, json={"add": [c], "remove": [a]}, timeout=30).json()["keys"] == [b, c]
    one.until({b: before[b], c: before[c]})
    one.tap.close()
    assert httpx.patch(path, json={"add": [a], "remove": [b]}, timeout=30).json()["keys"] == [c, a]
    back = FollowedStream(gateway, surface, stream, one.position)
    back.rows = one.rows
    back.until({c: before[c], a: before[a]})
    assert "reset" not in back.kinds
    back.tap.close()
    back = FollowedStream(gateway, surface, stream, back.position)
    while back.take() == "progress":
        pass
    assert back.kinds[-1] == "ready", "a second idle resume is nothing"
    assert httpx.delete(path, timeout=30).status_code == 204
    if isinstance(back.tap, SocketTap):
        assert back.take() == "error"
        if surface == "own":
            assert list(back.tap.rest()) == [] and back.tap.code == 1000
        else:
            back.tap.send(type="ping")
            assert any_message(back.tap) == {"type": "pong"}, "the connection goes on"
    else:
        assert back.take() == "close" and list(back.tap.rest()) == []
    back.tap.close()
    again = httpx.post(f"{path}/begin", timeout=30)
    assert again.status_code == 404 and not problem_problems(again.json())


def test_a_stream_that_is_not_there_is_refused_on_its_own_connection(gateway: QueryGateway) -> None:
    tap = gateway.socket("/streams/s-nobody-has-opened-it/ws")
    error = any_message(tap)
    assert error["type"] == "error" and error["id"] == "s-nobody-has-opened-it" and not message_problems(error)
    assert list(tap.rest()) == [] and tap.code == 1000


def held(client: ClientProcess, name: str, rows: dict[str, Any]) -> None:
    """Wait until a client holds these rows."""
    found: list[Told] = []
    while client.rows(name) != rows:
        found = client.until(lambda told: told["name"] == name and told["type"] in ("row", "gone"), f"rows {rows}")
    assert all(told["type"] != "reset" for told in found), client.label


def test_clients_hold_what_matches_over_lost_connections(
    rows: Rows, network: Network, clients: list[ClientProcess]
) -> None:
    before = rows.put(a=3, b=4, c=1)
    for client in clients:
        client.follow("q", rows.view, where=rows.where)
        client.ready("q")
        held(client, "q", before)
    network.black_hole()
    after = {rows.key("b"): before[rows.key("b")], **rows.put(a=0, c=5)}
    network.mend()
    network.cut()
    for client in clients:
        client.ready("q")
        held(client, "q", after)
    last = {**after, **rows.put(d=9)}
    for client in clients:
        held(client, "q", last)
        assert "reset" not in {told["type"] for told in client.heard}, client.label
        client.close()


def test_clients_follow_a_whole_view_beside_its_keys(rows: Rows, clients: list[ClientProcess]) -> None:
    before = rows.put(a=3, b=4)
    for client in clients:
        client.follow("all", rows.view)
        client.follow("one", rows.view, keys=[rows.key("a")])
        client.ready("one")
        held(client, "one", {rows.key("a"): before[rows.key("a")]})
    after = rows.put(a=7, b=8)
    for client in clients:
        held(client, "one", {rows.key("a"): after[rows.key("a")]})
        while not after.items() <= (found := client.rows("all")).items():
            client.until(lambda told: told["name"] == "all" and told["type"] == "row", f"rows of all, not {found}")
        client.close()


def test_clients_follow_a_stream_whose_keys_change(
    gateway: QueryGateway, network: Network, rows: Rows, clients: list[ClientProcess]
) -> None:
    before = rows.put(a=3, b=4)
    keys = [rows.key("a")]
    opened = httpx.post(f"{gateway.url}/streams", json={"view": rows.view, "keys": keys}, timeout=30)
    assert opened.status_code == 201, opened.text
    path = f"{gateway.url}/streams/{opened.json()['id']}"
    for client in clients:
        client.order("stream", "s", arguments=[opened.json()["id"]])
    assert httpx.post(f"{path}/begin", timeout=30).is_success
    for client in clients:
        client.ready("s")
        held(client, "s", {key: before[key] for key in keys})
    assert httpx.patch(path, json={"add": [rows.key("b")], "remove": keys}, timeout=30).is_success
    for client in clients:
        held(client, "s", {rows.key("b"): before[rows.key("b")]})
    # What was added while it was live may come once more.
    network.cut()
    for client in clients:
        client.ready("s")
        assert client.rows("s") == {rows.key("b"): before[rows.key("b")]}, client.label
    network.cut()
    for client in clients:
        assert client.ready("s") == [], f"{client.label}: a second idle reconnect delivers nothing"
    assert httpx.delete(path, timeout=30).is_success
    for client in clients:
        assert client.change("s")["type"] == "refused", f"{client.label}: its end is for good"
        client.close()

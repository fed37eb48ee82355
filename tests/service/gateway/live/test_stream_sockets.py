"""Streams on WebSockets, on one of their own and beside others, through two real gateways."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import pytest

from query_gateway import Copy
from running import eventually
from stream_serving import (
    Pair,
    SocketCopy,
    attached,
    command,
    connected,
    opened,
    row,
    subscribed,
    two_gateways,
)
from streaming import Streams
from tailrace.dev.broker import Broker
from tailrace.dev.redis_server import RedisServer

VERSIONS = count(2)

Connect = Callable[..., SocketCopy]
sockets = pytest.mark.parametrize("connect", [attached, subscribed], ids=["own", "shared"])


@pytest.fixture(scope="module")
def streams(broker: Broker) -> Streams:
    return Streams(broker, "stream-sockets")


@pytest.fixture(scope="module")
def gateways(streams: Streams, redis_server: RedisServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """Two gateways beside a running materializer."""
    with two_gateways(streams, redis_server, tmp_path_factory.mktemp("gateways")) as pair:
        yield pair


@pytest.fixture(scope="module", autouse=True)
def abandoned(gateways: Pair, streams: Streams) -> str:
    """The id of a stream that nobody uses; it expires while other tests run."""
    id: str = opened(gateways[0], streams, keys=["k0"])["id"]
    return id


@pytest.fixture
def put(streams: Streams) -> Callable[[str, int], None]:
    """Write a row."""

    def write(key: str, n: int) -> None:
        streams.log.put(key.encode(), next(VERSIONS), row(key, n))

    return write


@sockets
def test_nothing_comes_before_a_stream_has_begun_then_a_snapshot_and_updates(
    gateways: Pair, streams: Streams, put: Callable[[str, int], None], connect: Connect
) -> None:
    first, second = gateways
    stream = opened(first, streams, where="k in ('k0', 'k1') and n > 2")
    copy = connect(second, stream)
    answer = copy.take()
    assert (answer["type"], answer["id"]) == ("subscribed", copy.id) and answer["query"]
    copy.tap.send(type="ping")
    assert copy.take() == {"type": "pong"}, "nothing comes before it has begun"
    command(first, "POST", stream, "/begin")
    assert {message.get("query") for message in copy.ready()} == {answer["query"], None}
    assert set(copy.rows) == {"k0", "k1"}
    put("k0", 9)
    copy.until({"k0", "k1"}, lambda rows: rows["k0"]["n"] == 9)
    put("k1", 0)
    copy.until({"k0"})
    put("k1", 3)
    copy.until({"k0", "k1"})


@sockets
def test_keys_come_and_go_while_a_stream_is_live(
    gateways: Pair, streams: Streams, put: Callable[[str, int], None], connect: Connect
) -> None:
    first, second = gateways
    stream = opened(first, streams, keys=["k2", "k3"])
    command(second, "POST", stream, "/begin")
    copy = connect(first, stream)
    copy.ready()
    assert set(copy.rows) == {"k2", "k3"} and "query" not in copy.messages[0]
    command(second, "PATCH", stream, add=["k4", "later"], remove=["k2"])
    copy.until({"k3", "k4"})
    put("later", 1)
    copy.until({"k3", "k4", "later"})
    command(second, "PATCH", stream, remove=["later"])
    copy.until({"k3", "k4"})


@pytest.mark.parametrize("resume", ["own", "position", "positions"])
def test_who_comes_back_gets_what_is_newer_also_of_the_keys_themselves(
    gateways: Pair, streams: Streams, put: Callable[[str, int], None], resume: str
) -> None:
    first, second = gateways
    stream = opened(first, streams, keys=["k0", "k1", "k2", "k3"], ttl=60)
    command(first, "POST", stream, "/begin")
    copy = subscribed(first, stream)
    copy.ready()
    copy.close()
    put("k3", 7)
    eventually(lambda: first.get(f"/views/{streams.log.view}/k3").json()["n"] == 7, "the change is in the store")
    command(second, "PATCH", stream, add=["k4"], remove=["k0"])

    def back(held: SocketCopy) -> tuple[SocketCopy, list[tuple[str, Any]]]:
        if resume == "own":
            found = attached(second, stream, held.position)
        elif resume == "position":
            found = subscribed(second, stream, position=held.position)
        else:
            found = subscribed(second, stream, positions=held.positions)
        found.rows = held.rows
        return found, sorted((one["type"], one.get("key")) for one in found.ready()[:-1])

    copy, news = back(copy)
    assert news == [("gone", "k0"), ("row", "k3"), ("row", "k4")] and set(copy.rows) == {"k1", "k2", "k3", "k4"}
    copy.close()
    copy, news = back(copy)
    assert news == [], "a second idle one gets nothing"
    copy.close()


def test_a_query_goes_on_from_the_position_of_ready(gateways: Pair, streams: Streams) -> None:
    first, second = gateways
    stream = opened(first, streams, where="n > 2", ttl=60)
    command(first, "POST", stream, "/begin")
    copy = attached(first, stream)
    copy.ready()
    copy.close()
    assert [one["type"] for one in attached(second, stream, copy.position).ready()] == ["ready"]
    again = attached(second, stream, "no position at all")
    assert again.ready()[0]["type"] == "reset" and set(again.rows) == set(copy.rows)


def test_a_deleted_stream_ends_its_own_connection_and_only_its_subscription_elsewhere(
    gateways: Pair, streams: Streams, put: Callable[[str, int], None]
) -> None:
    first, second = gateways
    stream = opened(first, streams, keys=["k0"])
    command(first, "POST", stream, "/begin")
    own, events = attached(first, stream), connected(first, stream)
    plain = Copy(first.follow(stream["events"], version="1.0"))
    # Under the id of the stream itself: that does not make the connection its own.
    shared = subscribed(second, stream, stream["id"])
    for copy in (own, events, plain, shared):
        copy.ready()
    shared.tap.subscribe("other", view=streams.log.view, keys=["k1"])
    assert command(second, "DELETE", stream).status_code == 204
    assert (ended := own.take())["type"] == "error" and (ended["id"], ended["retry"]) == (stream["id"], False)
    assert list(own.tap.rest()) == [] and own.tap.code == 1000
    for tap in (events.tap, plain.tap):
        assert tap.frame().data["reason"] == "gone" and list(tap.rest()) == []
    ended = shared.take()
    assert (ended["type"], ended["id"], ended["error"]) == ("error", stream["id"], "unknown stream")
    put("k1", 5)
    assert shared.tap.message()["row"]["n"] == 5, "the others go on"
    put("k0", 5)
    shared.tap.send(type="ping")
    assert shared.tap.message() == {"type": "pong"}, "nothing comes of what has ended"


@pytest.mark.parametrize("id", ["s-never-opened", "expired", "not one of ours", "%ff", "x" * 200])
def test_a_stream_that_is_not_there_is_refused_and_the_connection_made_for_it_ends(
    gateways: Pair, abandoned: str, id: str
) -> None:
    first, second = gateways
    if id == "expired":
        id = abandoned
        eventually(lambda: command(first, "GET", {"id": id}).status_code == 404, "it has expired")
    own = second.socket(f"/streams/{id.replace(' ', '%20')}/ws")
    refused = own.message()
    assert (refused["type"], refused["error"], refused["retry"]) == ("error", "unknown stream", False)
    assert list(own.rest()) == [] and own.code == 1000
    shared = second.socket()
    shared.send(type="subscribe", id="e", stream=id)
    refused = shared.message()
    assert (refused["type"], refused["id"], refused["error"]) == ("error", "e", "unknown stream")
    shared.send(type="ping")
    assert shared.message() == {"type": "pong"}


def test_one_stream_is_followed_on_both_surfaces_and_gateways_at_once(
    gateways: Pair, streams: Streams, put: Callable[[str, int], None]
) -> None:
    first, second = gateways
    stream = opened(first, streams, keys=["k0", "k5"])
    copies = [connect(gateway, stream) for gateway in gateways for connect in (attached, connected, subscribed)]
    command(second, "POST", stream, "/begin")
    for copy in copies:
        copy.ready()
        assert set(copy.rows) == {"k0", "k5"}
    command(first, "PATCH", stream, add=["k4"], remove=["k0"])
    for copy in copies:
        copy.until({"k4", "k5"})
    put("k5", 8)
    for copy in copies:
        copy.until({"k4", "k5"}, lambda rows: rows["k5"]["n"] == 8)
    # Who leaves takes nothing from the others.
    for copy in copies[::2]:
        copy.close()
    put("k4", 9)
    for copy in copies[1::2]:
        copy.until({"k4", "k5"}, lambda rows: rows["k4"]["n"] == 9)

"""What both clients promise, over a WebSocket and Server-Sent Events, with a real gateway and a broken network."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from conformance.world import ANEW, VIEW, World, world
from tailrace.dev.redis_server import RedisServer


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory, redis_server: RedisServer) -> Iterator[World]:
    """A gateway with the view of averages, and a network, for all tests; each takes keys of its own."""
    with world(tmp_path_factory.mktemp("world"), redis_server, "conformance-clients") as made:
        yield made


@pytest.fixture
def network(here: World) -> Iterator[None]:
    """Gives the next test a network that is whole."""
    yield
    here.network.mend()


def row(key: str, value: dict[str, Any]) -> dict[str, Any]:
    return {"name": "a", "type": "row", "key": key, "row": value}


def gone(key: str) -> dict[str, Any]:
    return {"name": "a", "type": "gone", "key": key}


def test_a_snapshot_then_every_change(here: World) -> None:
    (key,) = here.keys(1)
    first = here.put(key, 8.5)
    clients = here.clients("socket", "events")
    for client in clients:
        client.follow("a", VIEW, keys=[key])
        assert client.ready("a") == [row(key, first)], client.label
    second = here.put(key, 9.0)
    for client in clients:
        assert client.change("a") == row(key, second), client.label
    here.remove(key)
    for client in clients:
        assert client.change("a") == gone(key), client.label
    third = here.put(key, 1.0)
    for client in clients:
        assert client.change("a") == row(key, third), client.label
        assert client.rows("a") == {key: third}, client.label
        client.close()


@pytest.mark.parametrize("end", ["killed", "shut down", "cut off"])
def test_what_was_missed_comes_and_nothing_else(here: World, network: None, end: str) -> None:
    still, changed, removed, born = here.keys(4)
    before = {key: here.put(key, 1.0) for key in (still, changed, removed)}
    clients = here.clients("socket", "events")
    for client in clients:
        client.follow("a", VIEW, keys=[still, changed, removed, born])
        client.ready("a")
        assert client.rows("a") == before, client.label
    if end == "cut off":
        here.network.black_hole()
    elif end == "killed":
        here.kill_gateway()
    else:
        here.stop_gateway()
    news = here.put(changed, 20.0)
    here.remove(removed)
    birth = here.put(born, 4.0)
    if end == "cut off":
        here.network.mend()
        here.network.cut()
    else:
        here.start_gateway()
    for client in clients:
        missed = sorted(client.ready("a"), key=lambda told: int(told["key"]))
        assert missed == [row(changed, news), gone(removed), row(born, birth)], client.label
        assert client.rows("a") == {still: before[still], changed: news, born: birth}, client.label
    sent = here.rows_sent()
    here.network.cut()
    for client in clients:
        assert client.ready("a") == [], f"{client.label}: a second idle reconnect delivers nothing"
    assert here.rows_sent() == sent > 0, "nothing was sent, and not only passed over"
    for client in clients:
        assert not [told for told in client.heard if told["type"] == "reset"], client.label
        client.close()


def test_a_view_that_is_built_anew_is_shown_when_it_is_complete(here: World) -> None:
    for key in ("1", "2", "3"):
        here.put(key, float(key), name=ANEW)
    clients = here.clients("socket", "events")
    for client in clients:
        client.follow("a", ANEW, keys=["1", "2", "3"])
        assert len(client.ready("a")) == 3, client.label
    here.build_anew({"1": 1.0, "2": 20.0})
    for client in clients:
        reset, *changes = client.ready("a")
        assert (reset["type"], reset["reason"]) == ("reset", "rebuilt"), client.label
        new = {"movie_id": 2, "rating": 20.0}
        assert changes == [gone("3"), row("2", new)], f"{client.label}: what has not changed is not told"
        client.close()


def test_a_network_that_swallows_everything_is_found_out(here: World, network: None) -> None:
    (key,) = here.keys(1)
    here.put(key, 1.0)
    clients = here.clients("socket", "events")
    for client in clients:
        client.follow("a", VIEW, keys=[key])
        client.ready("a")
    here.network.black_hole()
    for client in clients:
        client.status("a", "waiting")
    second = here.put(key, 2.0)
    here.network.mend()
    for client in clients:
        assert client.ready("a") == [row(key, second)], client.label
    # Node's WebSocket holds on to a connection until the other side has taken leave, too.
    here.network.cut()
    for client in clients:
        client.close()


def test_events_are_taken_where_a_socket_does_not_get_through(here: World, network: None) -> None:
    (key,) = here.keys(1)
    first = here.put(key, 1.0)
    here.network.refuse_sockets()
    clients = here.clients("auto")
    for client in clients:
        client.follow("a", VIEW, keys=[key])
        assert client.ready("a") == [row(key, first)], client.label
    here.network.cut()
    for client in clients:
        assert client.ready("a") == [], client.label
    assert here.network.sockets_refused == len(clients), "what gets through is kept"
    for client in clients:
        client.close()


def test_what_is_refused_for_good_is_told_and_ends_alone(here: World) -> None:
    (key,) = here.keys(1)
    first = here.put(key, 1.0)
    clients = here.clients("socket", "events")
    for client in clients:
        client.follow("a", VIEW, keys=[key])
        assert client.ready("a") == [row(key, first)], client.label
        client.follow("b", "no-such-view", keys=["1"])
        refused = client.change("b")
        assert refused["type"] == "refused" and refused["details"]["error"] == "unknown view", client.label
        assert client.change("b")["type"] == "end", client.label
    second = here.put(key, 2.0)
    for client in clients:
        assert client.change("a") == row(key, second), client.label
        client.close()


def test_two_subscriptions_to_one_key_are_both_told(here: World) -> None:
    key, other = here.keys(2)
    first = here.put(key, 1.0)
    clients = here.clients("socket", "events")
    for client in clients:
        client.follow("a", VIEW, keys=[key])
        assert client.ready("a") == [row(key, first)], client.label
        client.follow("b", VIEW, keys=[key, other])
        client.ready("b")
        assert client.rows("b") == client.rows("a") == {key: first}, client.label
    second = here.put(other, 2.0)
    for client in clients:
        assert client.change("b")["row"] == second, client.label
        client.order("leave", "b")
        assert client.change("b")["type"] == "end", client.label
    third = here.put(key, 3.0)
    for client in clients:
        found = client.until(lambda told: told["name"] == "a" and told.get("row") == third, "the last row of a")
        assert [told for told in found if told["name"] == "b"] == [], client.label
        client.close()

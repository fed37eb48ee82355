"""docs/protocol.md against a running gateway, over both surfaces: frames and their order, resets, refusals, ends."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest

from conformance.shapes import CODES, message_problems, order_problems, problem_problems
from conformance.surfaces import EventSurface, SocketSurface, Surface, any_message, until
from conformance.world import ANEW, VIEW, World, world
from tailrace.contracts.position import Position
from tailrace.dev.redis_server import RedisServer
from tailrace.store.write.tombstones import StoredTombstones

# At the store's memory of tombstones: each is a second and two batches after the one before.
LOOKS = count()

Follow = type[EventSurface] | type[SocketSurface]
surfaces = pytest.mark.parametrize("follow", [EventSurface, SocketSurface], ids=lambda surface: surface.name)


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory, redis_server: RedisServer) -> Iterator[World]:
    """A gateway with the view of averages; each test takes keys of its own."""
    with world(tmp_path_factory.mktemp("world"), redis_server, "conformance-protocol") as made:
        yield made


def kinds(frames: list[Any]) -> list[str]:
    return [frame.kind for frame in frames]


@surfaces
def test_a_stream_is_rows_ready_and_then_changes(here: World, follow: Follow) -> None:
    held, empty = here.keys(2)
    first = here.put(held, 1.0)
    stream: Surface = follow(here.gateway, VIEW, [held, empty])
    row, ready = until(stream, "ready")
    assert (row.kind, row.key, row.row) == ("row", held, first) and ready.position is not None
    second = here.put(empty, 2.0)
    assert stream.frame().row == second
    here.remove(held)
    gone = stream.frame()
    assert (gone.kind, gone.key) == ("gone", held)
    third = here.put(held, 3.0)
    assert stream.frame().row == third
    stream.close()


@surfaces
def test_a_resume_is_the_exact_suffix_and_a_second_one_is_idle(here: World, follow: Follow) -> None:
    still, changed, removed, born = keys = here.keys(4)
    for key in (still, changed, removed):
        here.put(key, 1.0)
    stream: Surface = follow(here.gateway, VIEW, keys)
    assert len(until(stream, "ready")) == 4
    stream.close()
    row = here.put(changed, 2.0)
    here.remove(removed)
    birth = here.put(born, 4.0)
    stream = follow(here.gateway, VIEW, keys, stream.resume() or None)  # type: ignore[arg-type]
    *missed, ready = until(stream, "ready")
    assert sorted((one.kind, one.key, json.dumps(one.row)) for one in missed) == sorted(
        [("row", changed, json.dumps(row)), ("gone", removed, "null"), ("row", born, json.dumps(birth))]
    )
    stream.close()
    for _ in range(2):
        stream = follow(here.gateway, VIEW, keys, stream.resume() or None)  # type: ignore[arg-type]
        assert kinds(until(stream, "ready")) == ["ready"]
        stream.close()
    assert ready.position is not None


def test_a_position_of_one_surface_is_one_of_the_other(here: World) -> None:
    keys = here.keys(3)
    for key in keys:
        here.put(key, 1.0)
    socket = SocketSurface(here.gateway, VIEW, keys)
    whole = until(socket, "ready")[-1].position
    events = EventSurface(here.gateway, VIEW, keys, whole)
    assert kinds(until(events, "ready")) == ["ready"]
    row = here.put(keys[1], 2.0)
    assert events.frame().row == row
    socket.close()
    socket = SocketSurface(here.gateway, VIEW, keys, whole)
    assert [one.row for one in until(socket, "ready")] == [row, None]
    for one in (socket, events):
        one.close()


@surfaces
@pytest.mark.parametrize("reason", ["unreadable", "foreign", "generation", "ahead", "forgotten"])
def test_a_position_that_cannot_be_used_gets_reset_and_everything(here: World, follow: Follow, reason: str) -> None:
    held, removed = here.keys(2)
    first = here.put(held, 1.0)
    here.put(removed, 1.0)
    store = here.store
    lineage = store.catalog.lineage(store.catalog.views[VIEW])
    partition = store.partition(VIEW, removed)
    position = {
        "unreadable": "no position at all",
        "foreign": "ffffffff.1.0-1.1-1",
        "generation": f"{lineage}.0.0-1.1-1",
        "ahead": f"{lineage}.1.0-999999.1-999999",
        "forgotten": str(Position(lineage, 1, {partition: store.offsets[VIEW, partition]})),
    }[reason]
    if reason == "forgotten":
        here.remove(removed)
        for look in (next(LOOKS), next(LOOKS), next(LOOKS)):
            StoredTombstones(store.writer).prune(
                VIEW,
                partition,
                lineage,
                generation=1,
                now=1000 * look,
                keep=1000,
                batch=2 * look,
                keys=[removed.encode()],
            )
    stream: Surface = follow(here.gateway, VIEW, [held, removed], position)
    frames = until(stream, "ready")
    assert not order_problems(kinds(frames))
    reset, *rows = [frame for frame in frames[:-1] if frame.kind != "progress"]
    assert (reset.kind, reset.reason) == ("reset", reason)
    assert {frame.key: frame.row for frame in rows}[held] == first, "everything follows, also what was right"
    assert removed in {frame.key for frame in rows} or reason == "forgotten"
    stream.close()


def test_a_view_that_is_built_anew_resets_everyone_who_follows_it(here: World) -> None:
    here.put("1", 1.0, name=ANEW)
    streams = [surface(here.gateway, ANEW, ["1", "2"]) for surface in (EventSurface, SocketSurface)]
    for stream in streams:
        until(stream, "ready")
    here.build_anew({"2": 2.0})
    for stream in streams:
        frames = until(stream, "ready")
        assert not order_problems(["ready", *kinds(frames)][1:])
        reset, row, _ = [frame for frame in frames if frame.kind != "progress"]
        assert (reset.kind, reset.reason, row.key) == ("reset", "rebuilt", "2")
        stream.close()


def test_events_begin_with_retry_and_are_kept_alive(here: World) -> None:
    (key,) = here.keys(1)
    stream = EventSurface(here.gateway, VIEW, [key])
    until(stream, "ready")
    assert stream.tap.retry == "1000" and stream.tap.head["content-type"].startswith("text/event-stream")
    stream.tap.comment()
    stream.close()


def test_the_position_may_be_a_parameter_and_the_header_wins(here: World) -> None:
    (key,) = here.keys(1)
    here.put(key, 1.0)
    stream = EventSurface(here.gateway, VIEW, [key])
    position = until(stream, "ready")[-1].position
    stream.close()
    path = f"/views/{VIEW}/{key}/events"
    for options, first in (
        ({"path": f"{path}?last_event_id={position}"}, "ready"),
        ({"path": f"{path}?last_event_id=nonsense", "headers": {"Last-Event-ID": position}}, "ready"),
        ({"path": f"{path}?last_event_id={position}", "headers": {"Last-Event-ID": "nonsense"}}, "reset"),
    ):
        tap = here.gateway.follow(**options)
        assert tap.frame().event == first
        tap.close()


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/views/no-such-view/1/events", 404),
        ("/views/no-such-view/events?key=1", 404),
        (f"/views/{VIEW}/%ff/events", 400),
        (f"/views/{VIEW}/events?key=1&where=true", 400),
        ("/feeds/no-such-feed/c/events", 404),
        ("/streams/no-such-stream/events", 404),
    ],
)
def test_a_stream_that_is_refused_says_why_in_json(here: World, path: str, status: int) -> None:
    answer = here.gateway.get(path)
    assert answer.status_code == status and answer.headers["content-type"] == "application/json"
    assert not problem_problems(answer.json())


def test_a_socket_speaks_its_subprotocol_or_none(here: World) -> None:
    for offered, chosen in (("tailrace.v1", "tailrace.v1"), ("other, tailrace.v1", "tailrace.v1"), (None, None)):
        tap = here.gateway.socket(subprotocol=offered)
        assert (tap.status, tap.head.get("sec-websocket-protocol")) == (101, chosen)
        assert "sec-websocket-extensions" not in tap.head, "compression is not offered"
        tap.send(type="ping")
        assert any_message(tap) == {"type": "pong"}
        tap.close()


def test_a_socket_has_many_subscriptions_and_a_frame_is_for_all_that_follow_its_key(here: World) -> None:
    key, other = here.keys(2)
    here.put(key, 1.0)
    tap = here.gateway.socket()
    tap.send(type="subscribe", id="a", view=VIEW, keys=[key], colour="red")
    tap.send(type="subscribe", id="b", view=VIEW, keys=[key, other])
    seen: list[dict[str, Any]] = []
    while [one.get("id") for one in seen if one["type"] == "ready"] != ["a", "b"]:
        seen.append(any_message(tap))
        assert not message_problems(seen[-1])
    assert [one["id"] for one in seen if one["type"] == "subscribed"] == ["a", "b"]
    row = here.put(key, 2.0)
    assert any_message(tap)["row"] == row
    last = here.put(other, 3.0)
    while (message := any_message(tap))["row"] == row:
        assert "id" not in message, "it may come once more, and names no subscription"
    assert message["row"] == last
    tap.send(type="unsubscribe", id="a")
    assert any_message(tap) == {"type": "unsubscribed", "id": "a"}
    row = here.put(key, 4.0)
    assert any_message(tap)["row"] == row, "the other subscription still has it"
    tap.send(type="unsubscribe", id="b")
    assert any_message(tap) == {"type": "unsubscribed", "id": "b"}
    here.put(key, 5.0)
    tap.send(type="ping")
    assert any_message(tap) == {"type": "pong"}
    tap.close()


@pytest.mark.parametrize(
    ("what", "named"),
    [
        ({"view": "no-such-view", "keys": ["1"]}, True),
        ({"view": VIEW, "keys": []}, True),
        ({"view": VIEW, "keys": [1]}, True),
        ({"view": VIEW, "keys": ["1"], "where": "true"}, True),
        ({"view": VIEW, "where": "no such column = 1 ("}, True),
        ({"feed": "no-such-feed", "client": "c"}, True),
        ({"stream": "no-such-stream"}, True),
        ({}, True),
        ({"id": ""}, False),
        ({"id": "x" * 65}, False),
        ({"id": 7}, False),
    ],
)
def test_a_subscription_that_is_refused_ends_alone(here: World, what: dict[str, Any], named: bool) -> None:
    (key,) = here.keys(1)
    stream = SocketSurface(here.gateway, VIEW, [key])
    until(stream, "ready")
    stream.tap.send(**{"type": "subscribe", "id": "b", **what})
    error = any_message(stream.tap)
    assert error["type"] == "error" and not message_problems(error)
    assert error.get("id") == ("b" if named else None) and error["retry"] is False
    row = here.put(key, 1.0)
    assert stream.frame().row == row, "the others go on"
    stream.close()


def test_an_id_that_is_in_use_is_refused_and_its_subscription_goes_on(here: World) -> None:
    (key,) = here.keys(1)
    stream = SocketSurface(here.gateway, VIEW, [key])
    until(stream, "ready")
    stream.tap.send(type="subscribe", id="a", view=VIEW, keys=["1"])
    error = any_message(stream.tap)
    assert error["type"] == "error" and "id" not in error and not message_problems(error)
    row = here.put(key, 1.0)
    assert stream.frame().row == row
    stream.close()


@pytest.mark.parametrize("text", ["", "{", "[]", "7", '{"type":"dance"}', '{"type":7}', "{}"])
def test_a_message_that_cannot_be_read_is_told_and_many_end_the_connection(here: World, text: str) -> None:
    tap = here.gateway.socket()
    tap.send_text(text)
    error = any_message(tap)
    assert error["type"] == "error" and not message_problems(error)
    tap.send(type="ping")
    assert any_message(tap) == {"type": "pong"}
    for _ in range(50):
        tap.send_text(text)
    assert all(not message_problems(one) for one in tap.rest())
    assert tap.code == 4400 and tap.code in CODES


def test_a_message_that_is_too_long_ends_the_connection(here: World) -> None:
    tap = here.gateway.socket()
    tap.send_text(json.dumps({"type": "ping", "x": "x" * (4 << 20)}))
    assert list(tap.rest()) == [] and tap.code in (1009, None)


def test_a_gateway_that_shuts_down_says_so_on_every_surface(here: World) -> None:
    (key,) = here.keys(1)
    events, socket = EventSurface(here.gateway, VIEW, [key]), SocketSurface(here.gateway, VIEW, [key])
    until(events, "ready")
    until(socket, "ready")
    here.stop_gateway()
    try:
        close = events.frame()
        assert (close.kind, close.reason) == ("close", "shutdown")
        assert list(events.tap.rest()) == []
        assert list(socket.tap.rest()) == [] and socket.tap.code == 1001
        events.close()
        socket.close()
    finally:
        here.start_gateway()

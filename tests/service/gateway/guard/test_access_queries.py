"""Rights over queries, whole views and keys, through a real gateway and materializer: rows go by the filter."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from access_tokens import Socket, bearer, settings, token
from gateway_process import GatewayProcess
from materializing import ready, running
from query_gateway import Copy
from streaming import Streams
from tailrace.dev.broker import Broker
from tailrace.dev.redis_server import RedisServer


@pytest.fixture(scope="module")
def streams(broker: Broker) -> Streams:
    return Streams(broker, "access-queries")


@pytest.fixture(scope="module")
def gateway(
    streams: Streams, redis_server: RedisServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[GatewayProcess]:
    log, directory = streams.log, tmp_path_factory.mktemp("gateway")
    with running(log, redis_server.url) as materializer:
        ready(materializer)
        given = settings(directory, limit_connection_keys="4")
        given |= {"kafka": log.broker.address, "prefix": log.prefix}
        process = GatewayProcess(directory, redis_server.url, log.app, given, introduction=4)
        process.wait_ready()
        yield process
        process.close()


def put(streams: Streams, key: str, version: int, owner: str, n: int) -> None:
    streams.log.put_many([(key.encode(), version, json.dumps({"k": key, "n": n, "s": owner}).encode())])


def test_whatever_a_client_follows_its_rows_come_and_go_by_the_filter(
    gateway: GatewayProcess, streams: Streams
) -> None:
    view = streams.log.view
    own = bearer(token("c7", rights={"views": {view: {"where": "s = {sub}"}}}))
    put(streams, "a", 1, "c7", 1)
    put(streams, "b", 1, "c8", 1)
    whole = Copy(gateway.follow(f"/views/{view}/events", headers=own))
    query = Copy(gateway.follow(f"/views/{view}/events?where={quote('n > 0 or true')}", headers=own))
    keys = Copy(gateway.follow(f"/views/{view}/events?key=a&key=b", headers=own))
    copies = [whole, query, keys]
    for copy in copies:
        copy.ready()
        copy.until({"a"})
    put(streams, "b", 2, "c7", 2)
    for copy in copies:
        copy.until({"a", "b"})
    again = Copy(gateway.follow(f"/views/{view}/events", headers={**own, "Last-Event-ID": str(whole.position)}))
    again.ready()
    again.until({"a", "b"})
    assert again.resets == ["rights"]
    copies.append(again)
    put(streams, "a", 2, "c8", 9)
    for copy in copies:
        copy.until({"b"})
        assert all(frame.data.get("s", "c7") == "c7" for frame in copy.seen if frame.event == "row")
    socket = Socket(gateway.port, **own)
    socket.say("subscribe", id="k", view=view, keys=["a", "b"])
    assert socket.hear("subscribed")["query"]
    assert socket.hear("row")["key"] == "b"
    socket.hear("ready")
    put(streams, "a", 3, "c7", 3)
    assert socket.hear("row")["key"] == "a"
    put(streams, "b", 3, "c8", 3)
    assert socket.hear("gone")["key"] == "b"
    socket.close()
    listed = gateway.get(f"/views/{view}?where={quote('n > 0 or true')}", **own)
    assert [found["k"] for found in listed.json()["rows"]] == ["a"] and "private" in listed.headers["cache-control"]
    newer = gateway.get(f"/views/{view}?after={listed.json()['position']}", **own).json()
    assert newer["reset"]["reason"] == "rights" and [found["k"] for found in newer["rows"]] == ["a"]
    everything = gateway.get(f"/views/{view}", **bearer(token("admin"))).json()
    assert {found["k"] for found in everything["rows"]} == {"a", "b"}
    refused = httpx.post(f"{gateway.url}/streams", json={"view": view, "keys": ["a"]}, headers=own, timeout=30)
    assert (refused.status_code, refused.json()["error"]) == (403, "query only")
    opened = httpx.post(f"{gateway.url}/streams", json={"view": view}, headers=own, timeout=30)
    assert opened.status_code == 201
    tap = Copy(gateway.follow(opened.json()["events"], headers=own))
    httpx.post(f"{gateway.url}/streams/{opened.json()['id']}/begin", headers=own, timeout=30)
    tap.ready()
    tap.until({"a"})
    for copy in (*copies, tap):
        copy.close()


def opened(gateway: GatewayProcess, streams: Streams, held: dict[str, str], **what: Any) -> dict[str, Any]:
    """A stream that has begun."""
    wanted = {"view": streams.log.view, **what}
    stream: dict[str, Any] = httpx.post(f"{gateway.url}/streams", json=wanted, headers=held, timeout=30).json()
    assert asked(gateway, "POST", stream, held, "/begin").status_code == 200
    return stream


def asked(
    gateway: GatewayProcess, method: str, stream: dict[str, Any], held: dict[str, str], path: str = "", **body: Any
) -> httpx.Response:
    url = f"{gateway.url}/streams/{stream['id']}{path}"
    return httpx.request(method, url, json=body or None, headers=held, timeout=30)


def owned(streams: Streams, sub: str) -> str:
    return token(sub, rights={"views": {streams.log.view: {"where": "s = {sub}"}}})


def unto(socket: Socket, kind: str) -> list[dict[str, Any]]:
    """The next messages, up to the first of a type."""
    found = [socket.hear()]
    while found[-1]["type"] != kind:
        found.append(socket.hear())
    return found


def test_the_socket_of_a_stream_begins_when_it_is_known_whose_it_is(gateway: GatewayProcess, streams: Streams) -> None:
    put(streams, "w1", 1, "w7", 1)
    put(streams, "w2", 1, "w8", 1)
    stream = opened(gateway, streams, bearer(owned(streams, "w7")))
    for first in (False, True):
        socket = Socket(gateway.port, stream["ws"], **({} if first else bearer(owned(streams, "w7"))))
        if first:
            socket.say("auth", token=owned(streams, "w7"))
            assert socket.hear()["type"] == "authenticated"
        subscribed, *rows, ready = unto(socket, "ready")
        assert (subscribed["type"], subscribed["id"], ready["id"]) == ("subscribed", stream["id"], stream["id"])
        assert [found["key"] for found in rows] == ["w1"]
        socket.close()
    # Whoever does not say who it is learns nothing, not even whether there is such a stream.
    paths = (stream["ws"], "/streams/s-nothing/ws")
    silent, talking = ([Socket(gateway.port, path) for path in paths] for _ in range(2))
    for socket in talking:
        socket.say("subscribe", id="a", stream=stream["id"])
    for socket in (*talking, *silent):
        assert (socket.rest(), socket.code()) == ([], 4401)


def test_a_stream_is_for_those_who_may_follow_it(gateway: GatewayProcess, streams: Streams) -> None:
    stream = opened(gateway, streams, bearer(token("admin")), keys=["a"])
    foreign = bearer(token("w9", rights={"views": {"elsewhere": True}}))
    for method, path, body in (
        ("GET", "", {}),
        ("POST", "/begin", {}),
        ("PATCH", "", {"add": ["b"]}),
        ("DELETE", "", {}),
        ("GET", "/events", {}),
    ):
        found = asked(gateway, method, stream, foreign, path, **body)
        assert (found.status_code, found.json()["error"]) == (403, "not allowed"), (method, path)
    socket = Socket(gateway.port, stream["ws"], **foreign)
    error = socket.hear()
    assert (error["type"], error["id"], error["error"]) == ("error", stream["id"], "not allowed")
    socket.close()
    some = bearer(token("w9", rights={"views": {streams.log.view: ["a"]}}))
    tap = gateway.follow(stream["events"], headers=some)
    tap.frames("ready")
    assert asked(gateway, "PATCH", stream, some, add=["b"]).json()["error"] == "key not allowed"
    assert asked(gateway, "PATCH", stream, bearer(token("admin")), add=["b"]).json()["keys"] == ["a", "b"]
    last = tap.frame()
    assert (last.event, last.data["reason"], last.data["retry"]) == ("close", "forbidden", False)


def test_a_position_that_was_had_under_a_filter_is_not_resumed_from_by_a_stream_or_a_listing(
    gateway: GatewayProcess, streams: Streams
) -> None:
    put(streams, "p1", 1, "p7", 1)
    view, own, everything = streams.log.view, bearer(owned(streams, "p7")), bearer(token("p7"))
    stream = opened(gateway, streams, own)
    first = Copy(gateway.follow(stream["events"], headers=own))
    first.ready()
    first.until({"p1"})
    put(streams, "p2", 1, "p8", 1)
    put(streams, "p1", 2, "p7", 2)
    first.until({"p1"}, lambda rows: rows["p1"]["n"] == 2)
    resuming = {"Last-Event-ID": str(first.position)}
    keys = opened(gateway, streams, everything, keys=["p1", "p2"])
    for held, path in ((own, stream["events"]), (everything, stream["events"]), (everything, keys["events"])):
        again = Copy(gateway.follow(path, headers={**held, **resuming}))
        again.ready()
        assert again.resets == ["rights"] and "p1" in again.rows and ("p2" in again.rows) is (held is everything)
        again.close()
    listed = gateway.get(f"/views/{view}", **bearer(owned(streams, "p9"))).json()["position"]
    found = gateway.get(f"/views/{view}?after={listed}", **bearer(token("p9"))).json()
    assert found["reset"]["reason"] == "rights" and {one["k"] for one in found["rows"]} >= {"p1", "p2"}
    # Who was never shown a part goes on from its position.
    free = bearer(token("p0"))
    before = Copy(gateway.follow(stream["events"], headers=free))
    before.ready()
    after = Copy(gateway.follow(stream["events"], headers={**free, "Last-Event-ID": str(before.position)}))
    assert [frame.event for frame in after.ready()] == ["ready"]
    assert "reset" not in gateway.get(f"/views/{view}?after={listed}", **free).json()
    for copy in (first, before, after):
        copy.close()


def test_another_token_on_a_socket_starts_anew_what_it_shows_other_rows_of(
    gateway: GatewayProcess, streams: Streams
) -> None:
    view = streams.log.view
    for key, owner in (("x1", "x7"), ("x2", "x8")):
        put(streams, key, 1, owner, 1)
    stream = opened(gateway, streams, bearer(owned(streams, "x7")), where="n > 0")
    socket = Socket(gateway.port, **bearer(owned(streams, "x7")))
    asked_for: dict[str, dict[str, Any]] = {
        "keys": {"view": view, "keys": ["x1", "x2"]},
        "query": {"view": view, "where": "n > 0"},
        "whole": {"view": view},
        "stream": {"stream": stream["id"]},
    }
    for id, what in asked_for.items():
        socket.say("subscribe", id=id, **what)
        assert [one["key"] for one in unto(socket, "ready")[1:-1]] == ["x1"]
    # The same rights: nothing begins anew.
    socket.say("auth", token=owned(streams, "x7"))
    assert socket.hear()["type"] == "authenticated"
    socket.say("ping")
    assert socket.hear()["type"] == "pong"
    socket.say("auth", token=owned(streams, "x8"))
    assert socket.hear()["type"] == "authenticated"
    put(streams, "x1", 2, "x7", 2)
    told: list[dict[str, Any]] = []
    while sum(one["type"] == "ready" for one in told) < len(asked_for):
        told.append(socket.hear())
    queries = {one["id"]: one["query"] for one in told if one["type"] == "subscribed"}
    assert {one["id"]: one["reason"] for one in told if one["type"] == "reset"} == dict.fromkeys(asked_for, "rights")
    rows = [one for one in told if one["type"] == "row"]
    assert {one["key"] for one in rows} == {"x2"} and {one["query"] for one in rows} == set(queries.values())
    assert queries.keys() == asked_for.keys()
    put(streams, "x1", 3, "x7", 3)
    put(streams, "x2", 2, "x8", 2)
    news: set[str] = set()
    while news != set(queries.values()):
        one = socket.hear()
        assert (one["type"], one["key"], one["row"]["n"]) == ("row", "x2", 2)
        news.add(one["query"])
    # No rights at all to it: everything ends, and the connection stays.
    socket.say("auth", token=token("x8", rights={"views": {"elsewhere": True}}))
    errors = [one for one in unto(socket, "authenticated") if one["type"] == "error"]
    assert {one["id"]: one["error"] for one in errors} == dict.fromkeys(asked_for, "not allowed")
    put(streams, "x2", 3, "x8", 3)
    socket.say("ping")
    assert socket.hear()["type"] == "pong"
    socket.close()


def test_a_stream_of_keys_ends_where_a_filter_comes_over_it(gateway: GatewayProcess, streams: Streams) -> None:
    stream = opened(gateway, streams, bearer(token("y7")), keys=["y1", "y2"])
    socket = Socket(gateway.port, stream["ws"], **bearer(token("y7")))
    socket.hear("ready")
    put(streams, "y1", 1, "y8", 1)
    assert socket.hear("row")["key"] == "y1"
    socket.say("auth", token=owned(streams, "y7"))
    assert socket.hear()["type"] == "authenticated"
    error = socket.hear()
    assert (error["type"], error["id"], error["error"]) == ("error", stream["id"], "query only")
    put(streams, "y1", 2, "y8", 2)
    assert socket.rest() == [] and socket.link.close_code == 4403


def test_keys_that_a_stream_gets_later_count_for_the_connection(gateway: GatewayProcess, streams: Streams) -> None:
    held = bearer(token("z7"))
    stream = opened(gateway, streams, held, keys=["z1", "z2"])
    alone, socket = Socket(gateway.port, stream["ws"], **held), Socket(gateway.port, **held)
    alone.hear("ready")
    socket.say("subscribe", id="s", stream=stream["id"])
    socket.hear("ready")
    socket.say("subscribe", id="k", view=streams.log.view, keys=["z3"])
    socket.hear("ready")
    assert asked(gateway, "PATCH", stream, held, add=["z4", "z5"]).status_code == 200
    error = socket.hear()
    assert (error["id"], error["error"]) == ("s", "too many keys on a connection")
    put(streams, "z3", 1, "z7", 1)
    assert socket.hear()["key"] == "z3"
    put(streams, "z5", 1, "z7", 1)
    assert alone.hear("row")["key"] == "z5"
    for one in (alone, socket):
        one.close()

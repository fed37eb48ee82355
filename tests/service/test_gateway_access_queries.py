"""Rights over queries, whole views and keys, through a real gateway and materializer: rows go by the filter."""

from __future__ import annotations

import json
from collections.abc import Iterator
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
        given = {**settings(directory), "kafka": log.broker.address, "prefix": log.prefix}
        process = GatewayProcess(directory, redis_server.url, log.app, given)
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

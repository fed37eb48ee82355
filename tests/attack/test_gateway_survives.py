"""Whatever stands in Redis or is published, and whatever clients ask, the gateway goes on and serves everybody else."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import httpx
import redis

from gateway_process import Frame
from poisoning import GARBAGE, ODD, MaterializerProcess, damaged
from query_gateway import QueryGateway
from running import eventually
from stream_serving import KEYS, attached, command, connected, opened, row
from streaming import Streams
from tailrace.contracts.catalog import APP_RECORD, PROGRESS_RECORDS, Catalog, ViewProgress
from tailrace.contracts.partitions import partition_of
from tailrace.dev.redis_server import RedisServer
from tailrace.store.layout.keys import QueryNames, catalog_key, partition_keys, stream_key


def test_no_message_catalog_or_stream_ends_it_or_stops_others(
    streams: Streams, redis_server: RedisServer, tmp_path: Path, examples: int
) -> None:
    log, url, chance = streams.log, redis_server.url, random.Random(1)
    store = redis.Redis.from_url(url)
    catalog = Catalog(log.app, {log.view: log.entry})
    lineage = catalog.lineage(log.entry)
    log.put_many((key.encode(), 1, row(key, 3)) for key in KEYS)
    materializer = MaterializerProcess(tmp_path, log, url)
    gateway = QueryGateway(tmp_path, streams, url, query_lease=6, linger=1)
    gateway.wait_ready()
    by_key = gateway.follow(f"/views/{log.view}/k0/events")
    query = gateway.query("n > 2")
    query.until(KEYS)
    good = opened(gateway, streams, keys=["k0"])
    broken = opened(gateway, streams, keys=["k1"])
    stream = connected(gateway, good)
    command(gateway, "POST", good, "/begin")
    attacker = attached(gateway, broken)
    of_query = [QueryNames(log.prefix, log.view, n).channel(lineage, streams.query("n > 2")) for n in range(3)]
    partition = partition_of(b"k0", 3)
    of_key = partition_keys(log.prefix, log.view, partition).channel(lineage, b"k0")
    names = [of_key, *of_query, catalog_key(log.prefix), stream_key(log.prefix, good["id"])]
    progress = ViewProgress(log.view, 1, 3, 5).encode()
    for version in range(2, examples + 3):
        before = gateway.metric('tailrace_gateway_set_aside_total{what="message"}')
        for _ in range(100):
            message = chance.choice([*GARBAGE, b"1 2 3", b"1 1 row x 1 1 1 x y", b"x 9 9 9 {", b"1 1 ready 1 1"])
            store.publish(chance.choice(names), message)  # type: ignore[arg-type]
        # One that could be read would be followed: views may be removed.
        bad = chance.choice([*GARBAGE, catalog.encode().replace(b'"partitions":3', b'"partitions":"3"')])
        store.hset(catalog_key(log.prefix), APP_RECORD, bad)
        store.hset(catalog_key(log.prefix), PROGRESS_RECORDS + log.view, damaged(chance, progress))
        store.hset(stream_key(log.prefix, broken["id"]), "stream", chance.choice(GARBAGE[1:]))
        for name in (catalog_key(log.prefix), stream_key(log.prefix, broken["id"])):
            store.publish(name, b"")
        assert gateway.get(f"/streams/{broken['id']}").status_code == 404
        eventually(
            lambda before=before: gateway.metric('tailrace_gateway_set_aside_total{what="message"}') > before,  # type: ignore[misc]
            "messages are set aside",
        )
        log.put(b"k0", version, row("k0", 3 + version))
        query.until(KEYS, lambda rows, n=3 + version: rows["k0"]["n"] == n)  # type: ignore[misc]
        stream.until(["k0"], lambda rows, n=3 + version: rows["k0"]["n"] == n)  # type: ignore[misc]
        frame: Frame = by_key.frame()
        while frame.event != "row" or frame.data["n"] != 3 + version:
            frame = by_key.frame()
    assert gateway.metric('tailrace_gateway_set_aside_total{what="catalog"}') > 0
    assert gateway.metric('tailrace_gateway_set_aside_total{what="stream"}') > 0
    assert gateway.metric('tailrace_gateway_set_aside_total{what="part"}') == 0
    attacker.close()
    assert gateway.stop() == 0, gateway.log.read_text()
    gateway.disconnect()
    materializer.stop()
    store.close()


def test_no_request_is_answered_with_a_failure(
    streams: Streams, redis_server: RedisServer, tmp_path: Path, examples: int
) -> None:
    log, chance = streams.log, random.Random(1)
    materializer = MaterializerProcess(tmp_path, log, redis_server.url)
    gateway = QueryGateway(tmp_path, streams, redis_server.url)
    gateway.wait_ready()
    body = json.dumps({"view": log.view, "keys": ["a"], "where": "n > 2", "ttl": 5}).encode()
    wheres = ["s = '\\ud800'", "(" * 400, "s = 'x' and s = 'y'", "n = " + "9" * 50, "'" * 7, "a.b.c = 1", "n in ()"]
    with httpx.Client(base_url=gateway.url, timeout=30) as client:
        for _ in range(40 * examples):
            found = json.loads(body)
            del found[chance.choice(["keys", "where"])]
            if "where" in found and chance.random() < 0.5:
                found["where"] = chance.choice(wheres)
            if "keys" in found:
                found["keys"] = [chance.choice(["a", "[" * 3000, '["\\ud800"]', "\ud800", "", "\x00", "a" * 9000])]
            sent = chance.choice([json.dumps(found).encode(), damaged(chance, json.dumps(found).encode())])
            sent = chance.choice([sent, sent, sent, chance.choice(GARBAGE)])
            answer = client.post("/streams", content=sent, headers={"Content-Type": "application/json"})
            assert answer.status_code < 500, (sent[:300], answer.text)
            if answer.status_code == 201:
                id = answer.json()["id"]
                assert client.patch(f"/streams/{id}", json={"add": ["[[", "b"]}).status_code < 500
                if chance.random() < 0.7:
                    assert client.delete(f"/streams/{id}").status_code < 300
    socket = gateway.socket()
    for n in range(40 * examples):
        where = chance.choice([*wheres, *ODD])
        key = chance.choice(["[" * 3000, '["\\ud800"]', *ODD])
        what: dict[str, Any] = chance.choice([{"where": where}, {"key": key}, {"keys": [key]}, {"stream": key}])
        kind = chance.choice(["subscribe", "subscribe", "unsubscribe", "auth", "ping", 7])
        socket.send(type=kind, id=chance.choice([f"a{n}", 7, ""]), view=log.view, **what)
    log.put_many([(b"k", 1, row("k", 3)), (b"broken", 1, b"{")])
    answers = [httpx.get(f"{gateway.url}/views/{log.view}", params={"where": "n > 2"}, timeout=30) for _ in range(3)]
    assert {answer.status_code for answer in answers} == {200}
    copy = gateway.query("n > 2")
    copy.until(["k"])
    gateway.close()
    materializer.wait_ready()
    materializer.stop()

"""What fails around a gateway that follows queries: its clients' copies are right afterwards."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import redis

from materializing import ready, running
from query_gateway import QueryGateway
from running import eventually
from services import NewRedis
from streaming import Streams
from tailrace.dev.broker import Broker
from tailrace.dev.redis_server import RedisServer

KEYS = [f"k{n}" for n in range(12)]
BIG = "n > 2"


def put(streams: Streams, version: int, n: int | None, *keys: str) -> None:
    values = {key: None if n is None else json.dumps({"k": key, "n": n, "s": "a"}).encode() for key in keys}
    streams.log.put_many((key.encode(), version, value) for key, value in values.items())


@pytest.fixture
def streams(broker: Broker, fresh: str) -> Streams:
    found = Streams(broker, fresh)
    put(found, 1, 3, *KEYS)
    return found


def test_redis_is_emptied_while_queries_are_followed(streams: Streams, new_redis: NewRedis, tmp_path: Path) -> None:
    url = new_redis().url
    with running(streams.log, url) as materializer:
        ready(materializer)
        gateway = QueryGateway(tmp_path, streams, url)
        gateway.wait_ready()
        copies = [gateway.query(BIG), gateway.query()]
        for copy in copies:
            copy.ready()
            copy.until(KEYS)
        redis.Redis.from_url(url).flushall()
        put(streams, 2, 1, "k0")
        put(streams, 2, None, "k1")
        put(streams, 2, 8, "k2")
        copies[0].until(KEYS[2:], lambda held: held["k2"]["n"] == 8)
        copies[1].until({"k0", *KEYS[2:]}, lambda held: held["k2"]["n"] == 8 and held["k0"]["n"] == 1)
        assert [copy.resets for copy in copies] == [[], []], "clients that stay are told the difference"
        back = gateway.query(BIG, copies[0].position)
        back.ready()
        assert set(back.rows) == set(KEYS[2:]) or back.resets == []
        gateway.close()


def test_a_gateway_is_killed_and_its_clients_go_on_at_another(
    streams: Streams, redis_server: RedisServer, tmp_path: Path
) -> None:
    url = redis_server.url
    with running(streams.log, url) as materializer:
        ready(materializer)
        first, second = (QueryGateway(tmp_path, streams, url, query_lease=3, linger=1) for _ in range(2))
        for gateway in (first, second):
            gateway.wait_ready()
        copy = first.query(BIG)
        copy.ready()
        copy.until(KEYS)
        first.process.kill()
        first.process.wait()
        first.disconnect()
        put(streams, 2, 1, "k0")
        put(streams, 1, 9, "new")
        back = second.query(BIG, copy.position)
        back.rows = dict(copy.rows)
        back.ready()
        back.until({*KEYS[1:], "new"})
        assert back.resets == [], "the query was still evaluated"
        back.close()
        client = redis.Redis.from_url(url)
        eventually(
            lambda: (
                second.metric("tailrace_gateway_queries") == 0
                and not any(client.scan_iter(f"{streams.log.prefix}:*:matches:*", count=1000))
            ),
            "what the dead one followed has expired",
        )
        second.close()


def test_a_materializer_is_replaced_while_a_query_is_followed(
    streams: Streams, redis_server: RedisServer, tmp_path: Path
) -> None:
    url = redis_server.url
    gateway = None
    with running(streams.log, url) as materializer:
        ready(materializer)
        gateway = QueryGateway(tmp_path, streams, url)
        gateway.wait_ready()
        copy = gateway.query(BIG)
        copy.ready()
        copy.until(KEYS)
    put(streams, 2, 1, "k0")
    put(streams, 2, None, "k1")
    with running(streams.log, url):
        copy.until(KEYS[2:])
        put(streams, 3, 4, "k0")
        copy.until({"k0", *KEYS[2:]})
        assert copy.resets == []
        gateway.close()


def test_a_view_is_rebuilt_while_a_query_is_followed(
    streams: Streams, redis_server: RedisServer, tmp_path: Path
) -> None:
    url, log = redis_server.url, streams.log
    with running(log, url) as materializer:
        ready(materializer)
        gateway = QueryGateway(tmp_path, streams, url)
        gateway.wait_ready()
        copy = gateway.query(BIG)
        copy.ready()
        copy.until(KEYS)
        log.name_build(1, next=2)
        for key in KEYS[3:]:
            log.put(key.encode(), 1, json.dumps({"k": key, "n": 4, "s": "b"}).encode(), generation=2)
        log.name_build(2, since=log.ends())
        copy.until(KEYS[3:], lambda held: {row["n"] for row in held.values()} == {4})
        assert copy.resets == ["rebuilt"]
        gateway.close()

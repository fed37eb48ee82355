"""Queries through a real gateway, materializer, broker and Redis: a client's copy is what matches, whatever happens."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from materializing import ready, running
from query_gateway import QueryGateway
from streaming import Streams
from tailrace.dev.broker import Broker
from tailrace.dev.redis_server import RedisServer

KEYS = [f"k{n}" for n in range(12)]
BIG = "n > 2"


def row(key: str, n: int, **more: object) -> bytes:
    return json.dumps({"k": key, "n": n, "s": "a", **more}).encode()


def put(streams: Streams, version: int, n: int, keys: list[str] = KEYS) -> None:
    streams.log.put_many((key.encode(), version, row(key, n)) for key in keys)


@pytest.fixture
def streams(broker: Broker, fresh: str) -> Streams:
    return Streams(broker, fresh)


@pytest.fixture
def gateway(streams: Streams, redis_server: RedisServer, tmp_path: Path) -> Iterator[QueryGateway]:
    """A gateway beside a running materializer; pub/sub alone brings its messages."""
    put(streams, 1, 3)
    with running(streams.log, redis_server.url) as materializer:
        ready(materializer)
        process = QueryGateway(tmp_path, streams, redis_server.url, sweep=3600)
        process.wait_ready()
        yield process
        process.close()


def test_rows_that_match_come_then_ready_then_what_enters_changes_and_leaves(
    gateway: QueryGateway, streams: Streams
) -> None:
    copy = gateway.query(BIG)
    frames = copy.ready()
    assert [frame.event for frame in frames] == ["row"] * 12 + ["ready"]
    assert set(copy.rows) == set(KEYS) and all(frame.id is None for frame in frames[:-1])
    streams.log.put(b"k0", 2, row("k0", 1))
    streams.log.put(b"k1", 2, row("k1", 7))
    streams.log.put(b"k2", 2, None)
    streams.log.put(b"new", 1, row("new", 4))
    copy.until({*KEYS[3:], "k1", "new"})
    assert copy.rows["k1"]["n"] == 7 and copy.resets == []


def test_a_client_that_comes_back_gets_what_has_changed_and_the_second_time_nothing(
    gateway: QueryGateway, streams: Streams
) -> None:
    copy = gateway.query(BIG)
    copy.ready()
    copy.close()
    other = gateway.query(BIG)
    other.ready()
    streams.log.put(b"k0", 2, row("k0", 1))
    streams.log.put(b"k1", 2, row("k1", 7))
    other.until(KEYS[1:])
    while other.rows["k1"]["n"] != 7:
        other.take(other.tap.frame())
    back = gateway.query(BIG, copy.position)
    assert sorted((frame.event, frame.data["k"]) for frame in back.ready()[:-1]) == [("gone", "k0"), ("row", "k1")]
    back.close()
    again = gateway.query(BIG, back.position)
    assert [frame.event for frame in again.ready()] == ["ready"]

"""Query streams between a real broker and a real Redis: whatever happens, a client's copy is what matches."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest
import redis

from materializing import ready, running
from query_bench import row
from running import eventually
from services import NewRedis
from streaming import Streams, following
from tailrace.contracts.commands import commands_topic
from tailrace.dev.broker import Broker
from tailrace.dev.redis_server import RedisServer
from tailrace.kafka.brokers import Brokers
from tailrace.kafka.one_partition import OnePartitionWriter

KEYS = [b"%d" % n for n in range(12)]
BIG = "n > 2"


@pytest.fixture
def streams(broker: Broker, fresh: str) -> Streams:
    return Streams(broker, fresh)


def put_all(streams: Streams, version: int, n: int) -> None:
    for key in KEYS:
        streams.log.put(key, version, row(n))


def query_keys(streams: Streams, url: str) -> list[bytes]:
    client = redis.Redis.from_url(url)
    return [
        name
        for shape in ("quer*", "matches:*", "left:*")
        for name in client.scan_iter(f"{streams.log.prefix}:*:{shape}", count=1000)
    ]


def test_a_query_over_keys_that_are_there_and_keys_that_are_to_come(
    streams: Streams, redis_server: RedisServer
) -> None:
    url = redis_server.url
    put_all(streams, 1, 3)
    with running(streams.log, url) as materializer, following(streams, url, BIG) as client:
        ready(materializer)
        streams.open("s", BIG)
        eventually(lambda: client.copy() == dict.fromkeys(KEYS, row(3)), "the rows that were there")
        streams.log.put(b"0", 2, row(1))
        streams.log.put(b"1", 2, row(7))
        streams.log.put(b"2", 2, None)
        streams.log.put(b"new", 1, row(4))
        expected = {**dict.fromkeys(KEYS[3:], row(3)), b"1": row(7), b"new": row(4)}
        eventually(lambda: client.copy() == expected, "what comes, changes and goes")
        assert client.resumed() == expected and client.resets == 0


def test_a_rebalance_while_a_query_is_live_loses_nothing_and_resets_nobody(
    streams: Streams, redis_server: RedisServer
) -> None:
    url = redis_server.url
    with running(streams.log, url) as first, following(streams, url, BIG) as client:
        ready(first)
        streams.open("s", BIG)
        eventually(lambda: client.copy() == {}, "no rows yet")
        put_all(streams, 1, 3)
        with running(streams.log, url) as second:
            put_all(streams, 2, 4)
            eventually(lambda: second.reasons() == [], "the second is ready")
            put_all(streams, 3, 5)
            eventually(lambda: client.copy() == dict.fromkeys(KEYS, row(5)), "third versions")
            for key in KEYS[:6]:
                streams.log.put(key, 4, row(0))
        for key in KEYS[6:]:
            streams.log.put(key, 4, row(6))
        eventually(lambda: client.copy() == dict.fromkeys(KEYS[6:], row(6)), "fourth versions, from the first alone")
        eventually(lambda: client.resumed() == dict.fromkeys(KEYS[6:], row(6)), "the same for who comes back")
        assert client.resets == 0


def test_a_client_that_was_away_while_the_materializer_was_gets_the_suffix(
    streams: Streams, redis_server: RedisServer
) -> None:
    url = redis_server.url
    with following(streams, url, BIG) as client:
        with running(streams.log, url):
            streams.open("s", BIG)
            put_all(streams, 1, 3)
            eventually(lambda: client.copy() == dict.fromkeys(KEYS, row(3)), "all rows")
        streams.log.put(b"0", 2, row(1))
        streams.log.put(b"1", 2, None)
        streams.log.put(b"new", 1, row(9))
        with running(streams.log, url):
            expected = {**dict.fromkeys(KEYS[2:], row(3)), b"new": row(9)}
            eventually(lambda: client.copy() == expected, "what has changed since")
            assert client.resets == 0


def test_a_redis_emptied_while_a_query_is_live_is_filled_again_and_clients_are_told(
    streams: Streams, new_redis: NewRedis
) -> None:
    url = new_redis().url
    put_all(streams, 1, 3)
    with running(streams.log, url) as materializer, following(streams, url, BIG) as client:
        ready(materializer)
        streams.open("s", BIG)
        eventually(lambda: client.copy() == dict.fromkeys(KEYS, row(3)), "all rows")
        redis.Redis.from_url(url).flushall()
        streams.log.put(b"0", 2, row(1))
        streams.log.put(b"1", 2, row(8))
        expected = {**dict.fromkeys(KEYS[1:], row(3)), b"1": row(8)}
        eventually(lambda: client.copy() == expected, "the rows after the loss")
        # A partition without a change in it may be the last to be ready again.
        eventually(lambda: client.resumed() == expected, "the same for who comes back")


def test_a_row_enters_and_leaves_queries_by_the_clock_also_across_a_restart(
    streams: Streams, redis_server: RedisServer
) -> None:
    url, log = redis_server.url, streams.log
    to_come, begun = "t > now()", "t <= now()"
    with following(streams, url, to_come) as leaving, following(streams, url, begun) as entering:
        with running(log, url) as materializer:
            ready(materializer)
            streams.open("to come", to_come)
            streams.open("begun", begun)
            eventually(lambda: leaving.copy() == entering.copy() == {}, "the queries are ready")
            starts = datetime.now(UTC) + timedelta(seconds=5)
            value = json.dumps({"n": 1, "s": "a", "t": starts.isoformat(timespec="milliseconds")}).encode()
            log.put(b"meeting", 1, value)
            eventually(lambda: leaving.copy() == {b"meeting": value}, "it is to come")
        with running(log, url):
            eventually(lambda: entering.copy() == {b"meeting": value}, "it has begun")
            assert datetime.now(UTC) >= starts, "not before"
            eventually(lambda: leaving.copy() == {}, "it is no longer to come")


def test_a_stream_that_ends_or_expires_leaves_no_key_behind(streams: Streams, redis_server: RedisServer) -> None:
    url = redis_server.url
    put_all(streams, 1, 3)
    with running(streams.log, url) as materializer:
        ready(materializer)
        streams.open("ends", BIG)
        streams.open("expires", "n = 3 and s = 'a'", lasts=8000)
        streams.open("other", "n = 3 and s = 'a'", lasts=6000)
        eventually(lambda: len(query_keys(streams, url)) >= 3 * 2 * 2 + 3, "both queries are kept")
        streams.log.put(b"0", 2, row(0))
        streams.end("ends")
        eventually(lambda: query_keys(streams, url) == [], "nothing is left")


def test_a_bad_command_is_passed_over_and_the_next_one_is_taken(
    streams: Streams, redis_server: RedisServer, broker: Broker
) -> None:
    url = redis_server.url
    put_all(streams, 1, 3)
    raw = OnePartitionWriter(Brokers(broker.address), commands_topic(streams.log.app), "commands")
    raw.put("bad", b"\xff not json")
    raw.put("worse", b'{"format":1,"command":"open","stream":{"id":"other"}}')
    raw.flush()
    streams.open("no-such-column", "colour = 'red'")
    with running(streams.log, url) as materializer, following(streams, url, BIG) as client:
        ready(materializer)
        streams.open("s", BIG)
        eventually(lambda: client.copy() == dict.fromkeys(KEYS, row(3)), "the good stream")


def test_a_commands_topic_that_is_made_later_is_followed_then(
    broker: Broker, redis_server: RedisServer, fresh: str
) -> None:
    streams, url = Streams(broker, fresh, topic=False), redis_server.url
    put_all(streams, 1, 3)
    with running(streams.log, url) as materializer, following(streams, url, BIG) as client:
        eventually(lambda: len(streams.log.rows(url)) == len(KEYS), "rows need no commands")
        ready(materializer)
        streams.make_topic()
        streams.open("s", BIG)
        eventually(lambda: client.copy() == dict.fromkeys(KEYS, row(3)), "the query")


def test_a_hand_over_gives_clients_the_rows_of_the_new_build(streams: Streams, redis_server: RedisServer) -> None:
    url, log = redis_server.url, streams.log
    put_all(streams, 50, 3)
    with running(log, url) as materializer, following(streams, url, BIG) as client:
        ready(materializer)
        streams.open("s", BIG)
        eventually(lambda: client.copy() == dict.fromkeys(KEYS, row(3)), "the old build")
        log.name_build(1, next=2)
        for key in KEYS[3:]:
            log.put(key, 1, row(4), generation=2)
        log.name_build(2, since=log.ends())
        eventually(lambda: client.copy() == dict.fromkeys(KEYS[3:], row(4)), "the new one")
        log.put(KEYS[3], 2, row(1), generation=2)
        eventually(lambda: client.copy() == dict.fromkeys(KEYS[4:], row(4)), "which goes on")

"""Tombstones are forgotten in Redis when their time is over, and not before a replay of them is."""

from __future__ import annotations

import time

import pytest
import redis

from materializing import Changelog, ready, running
from running import eventually
from tailrace.dev.broker import Broker
from tailrace.dev.redis_server import RedisServer


@pytest.fixture
def log(broker: Broker, fresh: str) -> Changelog:
    return Changelog(broker, fresh)


def marked(log: Changelog, url: str, key: bytes) -> bool:
    return bool(redis.Redis.from_url(url).hexists(log.keys(key).position, "mark"))


def test_old_tombstones_go_when_the_pipeline_has_finished_their_batches_and_the_position_says_so(
    log: Changelog, redis_server: RedisServer
) -> None:
    url = redis_server.url
    gone = {b"%d" % n for n in range(30)}
    for key in gone:
        log.put(key, 3)
        log.put(key, 4, None)
    log.put(b"here", 1)
    log.finish_batch(7)
    with running(log, url, tombstones=0.2) as materializer:
        ready(materializer)
        eventually(lambda: all(marked(log, url, key) for key in gone), "every partition has its mark")
        for number in range(8, 14):
            log.finish_batch(number)
        log.put(b"0", 3)
        eventually(lambda: log.rows(url).keys() == {b"here"}, "only the row is left")
        client = redis.Redis.from_url(url)
        assert {int(client.hget(log.keys(key).position, "pruned") or -1) >= 0 for key in gone} == {True}
        log.put(b"0", 9)
        eventually(lambda: log.present(url) == {b"0", b"here"}, "a new row")


def test_a_replay_brings_nothing_back_however_long_the_pipeline_was_away(
    log: Changelog, redis_server: RedisServer
) -> None:
    url = redis_server.url
    log.finish_batch(7)
    with running(log, url, tombstones=0.001) as materializer:
        ready(materializer)
        log.put(b"a", 5)
        log.put(b"a", 6, None)
        eventually(lambda: marked(log, url, b"a") and log.rows(url) == {b"a": (1, 6, None)}, "the key is gone")
        log.finish_batch(8)
        # Several times as long as it takes to forget a tombstone that may go.
        time.sleep(4)
        log.put(b"a", 5)
        log.put(b"tick", 99)
        eventually(lambda: log.rows(url).get(b"tick") == (1, 99, b"{}"), "the replay was read")
        assert log.present(url) == {b"tick"}

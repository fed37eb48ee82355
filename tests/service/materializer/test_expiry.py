"""Expiry: a row whose time has come is gone from Redis and from the changelog, and one with more time stays."""

from __future__ import annotations

import time

import pytest
import redis

from materializing import Changelog, ready, running
from running import eventually
from services import NewRedis
from tailrace.dev.broker import Broker
from tailrace.dev.redis_server import RedisServer

PAST = 1_000
FAR = 4_000_000_000_000


@pytest.fixture
def log(broker: Broker, fresh: str) -> Changelog:
    return Changelog(broker, fresh)


def soon() -> int:
    return int(time.time() * 1000) + 1500


def test_a_row_expires_everywhere_and_others_stay(log: Changelog, redis_server: RedisServer) -> None:
    url = redis_server.url
    with running(log, url) as materializer:
        ready(materializer)
        expires = soon()
        log.put(b"window", 5, expires=expires)
        log.put(b"later", 5, expires=FAR)
        log.put(b"ever", 5)
        eventually(lambda: log.rows(url).get(b"window") == (1, 6, None), "the row is gone, with a version of its own")
        assert log.present(url) == {b"later", b"ever"}
        row, tombstone = log.records(b"window")
        assert (tombstone.value, tombstone.rank[:2], tombstone.added) == (None, (1, 6), True)
        assert tombstone.timestamp >= expires > row.timestamp
        assert [len(log.records(key)) for key in (b"later", b"ever")] == [1, 1]
        client = redis.Redis.from_url(url)
        assert client.zrange(log.keys(b"later").expiries, 0, -1) == [b"later"]
        assert b"window" not in client.zrange(log.keys(b"window").expiries, 0, -1)


def test_a_row_that_has_got_more_time_stays(log: Changelog, redis_server: RedisServer) -> None:
    url = redis_server.url
    with running(log, url) as materializer:
        ready(materializer)
        log.put(b"longer", 1, expires=FAR - 1)
        log.put(b"longer", 2, expires=FAR)
        log.put(b"unlimited", 1, expires=soon())
        log.put(b"unlimited", 2)
        log.put(b"mark", 1, expires=soon())
        eventually(lambda: log.rows(url).get(b"mark") == (1, 2, None), "a row that was written later has expired")
        assert log.present(url) == {b"longer", b"unlimited"}
        assert redis.Redis.from_url(url).zscore(log.keys(b"longer").expiries, b"longer") == FAR


def test_a_row_written_while_its_tombstone_is_under_way_stays(log: Changelog, redis_server: RedisServer) -> None:
    url = redis_server.url
    # The tombstone was made for version 4; the pipeline has written version 5 at the same time.
    for key, records in {b"before": [(5, b"{}"), (5, None)], b"behind": [(5, None), (5, b"{}")]}.items():
        log.put(key, 4)
        for version, value in records:
            log.put(key, version, value, added=value is None, expires=FAR if value else None)
    with running(log, url):
        expected = {b"before": (1, 5, b"{}"), b"behind": (1, 5, b"{}")}
        eventually(lambda: log.rows(url) == expected, "both rows, whichever of the two came first")
        eventually(lambda: log.records(b"before")[-1].value == b"{}", "compaction will keep the row, too")
        assert log.records(b"before")[-1].expires == FAR


def test_a_tombstone_under_way_is_not_added_again(log: Changelog, redis_server: RedisServer) -> None:
    url = redis_server.url
    for n in range(50):
        log.put(b"%d" % n, 3, expires=PAST)
    with running(log, url) as first:
        ready(first)
        eventually(lambda: log.present(url) == set() and len(log.rows(url)) == 50, "all have expired")
        log.put(b"mark", 1, expires=soon())
        eventually(lambda: log.rows(url).get(b"mark") == (1, 2, None), "later ticks have passed")
    assert sum(log.ends().values()) == 2 * 51 - 3, "one tombstone each"


def test_after_a_restore_rows_still_expire_and_expired_ones_stay_gone(log: Changelog, new_redis: NewRedis) -> None:
    url = new_redis().url
    with running(log, url) as materializer:
        ready(materializer)
        log.put(b"gone", 1, expires=PAST)
        log.put(b"yet", 1, expires=FAR)
        eventually(lambda: log.rows(url).get(b"gone") == (1, 2, None), "the first has expired")
        redis.Redis.from_url(url).flushall()
        eventually(lambda: log.present(url) == {b"yet"} and materializer.reasons() == [], "all is restored")
        assert log.rows(url)[b"gone"] == (1, 2, None)
        log.put(b"new", 1, expires=soon())
        eventually(lambda: log.rows(url).get(b"new") == (1, 2, None), "rows expire as before")
        assert redis.Redis.from_url(url).zscore(log.keys(b"yet").expiries, b"yet") == FAR
        assert len(log.records(b"gone")) == 2


def test_rows_of_the_next_build_expire_once_it_is_served(log: Changelog, redis_server: RedisServer) -> None:
    url = redis_server.url
    log.put(b"a", 9)
    with running(log, url) as materializer:
        ready(materializer)
        log.name_build(1, next=2)
        log.put(b"a", 4, generation=2, expires=PAST)
        log.put(b"mark", 1, expires=PAST)
        eventually(lambda: log.rows(url).get(b"mark") == (1, 2, None), "a row of the old build has expired")
        assert log.rows(url)[b"a"] == (1, 9, b"{}") and len(log.records(b"a")) == 2, "one kept back has not"
        log.name_build(2, since=log.ends())
        eventually(lambda: log.rows(url).get(b"a") == (2, 5, None), "now it has")


def test_several_instances_and_repeated_tombstones_do_no_harm(log: Changelog, redis_server: RedisServer) -> None:
    url = redis_server.url
    keys = {b"%d" % n for n in range(20)}
    with running(log, url) as first, running(log, url) as second:
        ready(first)
        ready(second)
        for key in keys:
            log.put(key, 3, expires=soon())
        # What another instance has added, that was slow.
        log.put(b"0", 4, None, added=True)
        log.put(b"0", 4, None, added=True)
        log.put(b"1", 9, expires=FAR)
        log.put(b"1", 4, None, added=True)
        eventually(lambda: len(log.rows(url)) == 20 and log.present(url) == {b"1"}, "all but one have expired")
        eventually(lambda: log.records(b"1")[-1].version == 9, "the one with more time is the last record of its key")
        assert {version for key, (_, version, _) in log.rows(url).items() if key != b"1"} == {4}
        assert {log.records(key)[-1].value for key in keys - {b"1"}} == {None}

"""The materializer between a real broker and a real Redis: whatever happens, Redis follows the changelog."""

from __future__ import annotations

import pytest
import redis

from materializing import PARTITIONS, Changelog, running
from running import eventually
from services import NewRedis
from tailrace.contracts.partitions import partition_of
from tailrace.dev.broker import Broker
from tailrace.dev.redis_server import RedisServer
from tailrace.store.layout.keys import catalog_key, partition_keys


@pytest.fixture
def log(broker: Broker, fresh: str) -> Changelog:
    return Changelog(broker, fresh)


def test_rows_follow_the_newest_version(log: Changelog, redis_server: RedisServer) -> None:
    with running(log, redis_server.url) as materializer:
        eventually(lambda: materializer.reasons() == [], "the materializer is ready")
        log.put(b"a", 1)
        log.put(b"a", 3, b'{"n":3}')
        log.put(b"a", 2, b'{"n":2}')
        log.put(b"b", 5)
        log.put(b"b", 6, None)
        log.put(b"b", 5)
        expected = {b"a": (1, 3, b'{"n":3}'), b"b": (1, 6, None)}
        eventually(lambda: log.rows(redis_server.url) == expected, "rows of the highest version")


def test_a_record_that_is_no_change_is_passed_over_and_the_next_one_is_applied(
    log: Changelog, redis_server: RedisServer
) -> None:
    for n in range(20):
        log.put_raw(b"%d" % n, b"foreign", [])
    log.put_raw(None, b"keyless", [("g", b"1"), ("v", b"1"), ("t", b"0")])
    for n in range(20):
        log.put(b"%d" % n, 1)
    with running(log, redis_server.url):
        eventually(lambda: len(log.rows(redis_server.url)) == 20, "the good records after the bad ones")


def test_a_redis_emptied_at_quiet_is_filled_again_with_rows_and_catalog(log: Changelog, new_redis: NewRedis) -> None:
    server = new_redis()
    for n in range(50):
        log.put(b"%d" % n, n)
    with running(log, server.url) as materializer:
        eventually(lambda: len(log.rows(server.url)) == 50, "all rows")
        before = log.rows(server.url)
        client = redis.Redis.from_url(server.url)
        client.flushall()
        eventually(lambda: log.rows(server.url) == before and materializer.reasons() == [], "all rows again")
        eventually(lambda: bool(client.exists(catalog_key(log.prefix))), "the catalog again")


def test_a_redis_that_dies_and_comes_back_is_waited_for(log: Changelog, new_redis: NewRedis) -> None:
    server = new_redis()
    with running(log, server.url) as materializer:
        log.put(b"a", 1)
        eventually(lambda: b"a" in log.rows(server.url), "the first row")
        server.kill()
        log.put(b"b", 1)
        eventually(lambda: "Redis" in " ".join(materializer.reasons()), "the materializer says that Redis is away")
        server.start()
        eventually(lambda: log.rows(server.url).keys() == {b"a", b"b"}, "both rows")
        eventually(lambda: materializer.reasons() == [], "the materializer is ready again")


def test_a_position_past_the_end_of_the_changelog_is_not_believed(log: Changelog, redis_server: RedisServer) -> None:
    log.put(b"a", 1)
    with running(log, redis_server.url):
        eventually(lambda: b"a" in log.rows(redis_server.url), "the row")
    client = redis.Redis.from_url(redis_server.url)
    keys = partition_keys(log.prefix, log.view, partition_of(b"a", PARTITIONS))
    client.hset(keys.position, "offset", "4000")
    client.hset(keys.rows, "never-written", "1 1 3999 0 {}")
    with running(log, redis_server.url):
        eventually(lambda: log.rows(redis_server.url) == {b"a": (1, 1, b"{}")}, "only what the changelog has")


def test_two_instances_share_the_partitions_and_a_third_of_the_work_moves_without_a_gap(
    log: Changelog, redis_server: RedisServer
) -> None:
    with running(log, redis_server.url):
        for n in range(100):
            log.put(b"%d" % n, 1)
        with running(log, redis_server.url):
            for n in range(100):
                log.put(b"%d" % n, 2)
            eventually(lambda: {v for _, v, _ in log.rows(redis_server.url).values()} == {2}, "second versions")
        for n in range(100):
            log.put(b"%d" % n, 3)
        eventually(lambda: [v for _, v, _ in log.rows(redis_server.url).values()] == [3] * 100, "third versions")


def test_a_backlog_is_applied_whole_though_redis_is_lost_and_killed_in_the_middle_of_it(
    log: Changelog, new_redis: NewRedis
) -> None:
    server = new_redis()
    client = redis.Redis.from_url(server.url)
    keys = [b"%d" % n for n in range(500)]
    for version in range(1, 9):
        log.put_many((key, version, b"{}" if version % 3 else None) for key in keys)

    def stored() -> int:
        found = [client.hget(partition_keys(log.prefix, log.view, n).position, "offset") for n in range(PARTITIONS)]
        return sum(int(offset or -1) + 1 for offset in found)

    # Polls this small are full, so that one is under way while the next is read.
    with running(log, server.url, most=20) as materializer:
        eventually(lambda: stored() > 500, "it is under way")
        client.flushall()
        eventually(lambda: stored() > 500, "it is under way again")
        server.kill()
        server.start()
        expected = dict.fromkeys(keys, (1, 8, b"{}"))
        eventually(lambda: log.rows(server.url) == expected and materializer.reasons() == [], "every row")
        assert stored() == 8 * len(keys)

"""Hand-over: readers keep the old rows until the new build is complete, and what has vanished vanishes everywhere."""

from __future__ import annotations

import pytest
import redis

from materializing import PARTITIONS, Changelog, ready, running
from running import eventually
from services import NewRedis
from tailrace.contracts.catalog import Catalog
from tailrace.contracts.partitions import partition_of
from tailrace.dev.broker import Broker
from tailrace.dev.redis_server import RedisServer
from tailrace.store.write.hand_overs import HandOvers, Served
from tailrace.store.write.writer import StoreWriter

OLD, NEW = b'{"build":1}', b'{"build":2}'
KEYS = [b"%d" % n for n in range(12)]
# These the next build has no more.
VANISHED, STAYING = set(KEYS[:3]), set(KEYS[3:])


@pytest.fixture
def log(broker: Broker, fresh: str) -> Changelog:
    return Changelog(broker, fresh)


def old_build(log: Changelog) -> None:
    for key in KEYS:
        log.put(key, 50, OLD)


def next_build(log: Changelog) -> dict[int, int]:
    """Write the next build while the old one goes on; returns where each partition of the changelog ends."""
    log.name_build(1, next=2)
    for n, key in enumerate(sorted(STAYING)):
        log.put(key, 1, NEW, generation=2)
        log.put(key, 51 + n, OLD)
    return log.ends()


def vanished_everywhere(log: Changelog, url: str) -> bool:
    last = [log.records(key)[-1] for key in VANISHED]
    gone = all((change.value, change.generation, change.added) == (None, 2, True) for change in last)
    return gone and all(log.rows(url).get(key) == (2, 0, None) for key in VANISHED)


def leftovers(log: Changelog, url: str) -> list[bytes]:
    client = redis.Redis.from_url(url)
    names = [name for key in KEYS for name in log.keys(key).all[4:]]
    return [name for name in names if client.exists(name)]


def test_old_rows_are_served_until_the_new_build_is_complete_and_then_only_new_ones(
    log: Changelog, redis_server: RedisServer
) -> None:
    url = redis_server.url
    old_build(log)
    with running(log, url) as materializer:
        ready(materializer)
        since = next_build(log)
        eventually(lambda: log.rows(url, kept=True).keys() == STAYING, "the new rows are kept back")
        eventually(lambda: log.rows(url)[max(STAYING)][1] > 51, "the old build goes on")
        assert {generation for generation, _, _ in log.rows(url).values()} == {1} and log.present(url) == set(KEYS)
        ahead = {number: offset + 1 for number, offset in since.items()}
        log.name_build(2, since=ahead)
        eventually(lambda: any("catalog names 2" in reason for reason in materializer.reasons()), "it says it waits")
        assert {generation for generation, _, _ in log.rows(url).values()} == {1}, "no partition has come that far"
        for number in range(PARTITIONS):
            log.put(next(key for key in STAYING if partition_of(key, PARTITIONS) == number), 60, OLD)
        eventually(lambda: {row for row in log.rows(url).values() if row[2] is not None} == {(2, 1, NEW)}, "new rows")
        assert log.present(url) == STAYING
        eventually(lambda: vanished_everywhere(log, url), "tombstones in the changelog and in Redis")
        eventually(lambda: leftovers(log, url) == [], "nothing is left of the hand-over")
        ready(materializer)
        log.put(b"3", 2, NEW, generation=2)
        log.put(b"4", 99, OLD)
        eventually(lambda: log.rows(url)[b"3"] == (2, 2, NEW), "the new build goes on")
        assert log.rows(url)[b"4"] == (2, 1, NEW), "the old one does not"


def test_a_restore_after_a_hand_over_brings_no_old_key_back(log: Changelog, new_redis: NewRedis) -> None:
    url = new_redis().url
    old_build(log)
    with running(log, url) as materializer:
        ready(materializer)
        log.name_build(2, since=next_build(log))
        eventually(lambda: vanished_everywhere(log, url), "the hand-over is done")
        redis.Redis.from_url(url).flushall()
        eventually(lambda: log.present(url) == STAYING and materializer.reasons() == [], "the new build alone")
        assert {generation for generation, _, _ in log.rows(url).values()} == {2}


def test_keys_that_redis_lost_before_their_tombstones_were_written_get_them_all_the_same(
    log: Changelog, new_redis: NewRedis
) -> None:
    url = new_redis().url
    old_build(log)
    log.name_build(2, since=next_build(log))
    with running(log, url):
        eventually(lambda: log.present(url) == STAYING, "a store that never held the old build")
        eventually(lambda: vanished_everywhere(log, url), "tombstones for keys that only the changelog had")
        eventually(lambda: leftovers(log, url) == [], "nothing is left of the hand-over")


def test_a_redis_emptied_in_the_middle_of_a_build_loses_nothing_of_either(log: Changelog, new_redis: NewRedis) -> None:
    url = new_redis().url
    old_build(log)
    with running(log, url) as materializer:
        ready(materializer)
        since = next_build(log)
        eventually(lambda: log.rows(url, kept=True).keys() == STAYING, "the new rows are kept back")
        redis.Redis.from_url(url).flushall()
        eventually(lambda: log.present(url) == set(KEYS) and materializer.reasons() == [], "the old build again")
        eventually(lambda: log.rows(url, kept=True).keys() == STAYING, "the new rows again")
        log.name_build(2, since=since)
        eventually(lambda: log.present(url) == STAYING, "the hand-over")
        eventually(lambda: vanished_everywhere(log, url), "tombstones in the changelog and in Redis")


def test_the_next_owner_of_a_partition_goes_on_with_a_hand_over_that_was_cut_short(
    log: Changelog, redis_server: RedisServer
) -> None:
    url = redis_server.url
    old_build(log)
    with running(log, url) as materializer:
        ready(materializer)
        since = next_build(log)
        eventually(lambda: log.rows(url, kept=True).keys() == STAYING, "the new rows are kept back")
    # What an instance leaves that dies right after it has switched the partitions.
    lineage = Catalog(log.app, {}).lineage(log.entry)
    for number in range(PARTITIONS):
        assert HandOvers(StoreWriter(url, log.prefix)).serve(log.view, number, lineage, 2, -1) == Served()
    assert log.present(url) == STAYING and leftovers(log, url) != []
    log.name_build(2, since=since)
    with running(log, url):
        eventually(lambda: vanished_everywhere(log, url), "tombstones in the changelog and in Redis")
        eventually(lambda: leftovers(log, url) == [], "nothing is left of the hand-over")


def test_rows_of_a_build_that_is_given_up_are_freed_and_a_later_build_is_served(
    log: Changelog, redis_server: RedisServer
) -> None:
    url = redis_server.url
    old_build(log)
    with running(log, url, patience=1.0) as materializer:
        ready(materializer)
        next_build(log)
        eventually(lambda: log.rows(url, kept=True).keys() == STAYING, "the new rows are kept back")
        log.name_build(1)
        eventually(lambda: log.rows(url, kept=True) == {}, "they are freed")
        assert log.present(url) == set(KEYS)
        log.put(b"5", 9, NEW, generation=2)
        log.name_build(1, next=3)
        log.put(b"5", 1, NEW, generation=3)
        log.name_build(3, since=log.ends())
        eventually(lambda: log.present(url) == {b"5"} and log.rows(url)[b"5"][0] == 3, "the third build")


def test_a_build_that_was_given_up_too_early_is_read_again_when_it_is_served(
    log: Changelog, redis_server: RedisServer
) -> None:
    url = redis_server.url
    old_build(log)
    with running(log, url, patience=0.0) as materializer:
        ready(materializer)
        for key in STAYING:
            log.put(key, 1, NEW, generation=2)
        eventually(lambda: log.rows(url, kept=True) == {} and materializer.reasons() == [], "they are freed")
        log.name_build(2, since=log.ends())
        eventually(lambda: log.present(url) == STAYING and materializer.reasons() == [], "the second build, whole")
        assert {generation for generation, _, _ in log.rows(url).values()} == {2}
        eventually(lambda: vanished_everywhere(log, url), "tombstones in the changelog and in Redis")


def test_a_row_that_a_tombstone_has_overtaken_is_the_last_record_again(
    log: Changelog, redis_server: RedisServer
) -> None:
    url = redis_server.url
    with running(log, url) as materializer:
        ready(materializer)
        log.put(b"a", 7, NEW, expires=4_000_000_000_000)
        eventually(lambda: b"a" in log.rows(url), "the row")
        log.put(b"a", 0, None, added=True)
        eventually(lambda: len(log.records(b"a")) == 3, "the row is added once more")
        last = log.records(b"a")[-1]
        assert (last.value, last.version, last.expires, last.added) == (NEW, 7, 4_000_000_000_000, True)
        log.put(b"a", 8, OLD)
        eventually(lambda: log.rows(url)[b"a"] == (1, 8, OLD), "the next version")
        assert len(log.records(b"a")) == 4, "once is enough"

"""Tombstones in the store: none is forgotten too early, and none without a note of it."""

from __future__ import annotations

import pytest

from store_bench import PLACE, Bench
from tailrace.dev.redis_server import RedisServer
from tailrace.store.write.hand_overs import Served
from tailrace.store.write.tombstones import Pruned, StoredTombstones
from tailrace.store.write.writer import Applied, Begun, PositionMoved

KEEP = 1000


@pytest.fixture
def bench(redis_server: RedisServer, fresh: str) -> Bench:
    return Bench(redis_server.url, f"test:{fresh}")


def prune(bench: Bench, now: int, batch: int | None, *keys: bytes) -> Pruned | PositionMoved | None:
    return StoredTombstones(bench.writer).prune(*PLACE, generation=1, now=now, keep=KEEP, batch=batch, keys=keys)


def horizon(bench: Bench, now: int, batch: int | None) -> int:
    found = prune(bench, now, batch)
    assert isinstance(found, Pruned)
    return found.horizon


def test_the_horizon_moves_after_the_time_that_tombstones_are_kept_to_where_the_partition_was_before(
    bench: Bench,
) -> None:
    bench.put((b"a", 1, 1, None), (b"b", 1, 1, None))
    assert prune(bench, 50, 7) == Pruned(-1, 1050, 0)
    bench.put((b"c", 1, 1, None))
    assert prune(bench, 1049, 9) == Pruned(-1, 1050, 0)
    assert prune(bench, 1050, 9) == Pruned(1, 2050, 0)
    assert bench.stored().pruned == 1
    assert prune(bench, 1051, 9, b"a", b"b", b"c", b"never") == Pruned(1, 2050, 2)
    assert bench.held(bench.keys.gone) == {b"c": (1, 1)}
    assert prune(bench, 2050, 11) == Pruned(2, 3050, 0)


@pytest.mark.parametrize("batch", [None, 7, 8])
def test_nothing_is_forgotten_while_the_pipeline_may_write_it_again(bench: Bench, batch: int | None) -> None:
    bench.put((b"a", 1, 5, None))
    assert horizon(bench, 0, 7) == -1
    assert prune(bench, 10 * KEEP, batch, b"a") == Pruned(-1, KEEP, 0)
    assert bench.put((b"a", 1, 4, b"{}")) == Applied(0), "a replay brings no key back"


def test_without_word_from_the_pipeline_no_mark_is_made(bench: Bench) -> None:
    bench.put((b"a", 1, 5, None))
    assert prune(bench, 0, None) == Pruned(-1, KEEP, 0)
    assert horizon(bench, 10 * KEEP, 9) == -1, "the mark is made now"
    assert horizon(bench, 11 * KEEP, 11) == 0


def test_a_tombstone_that_was_written_again_behind_the_horizon_stays(bench: Bench) -> None:
    bench.put((b"a", 1, 5, None))
    prune(bench, 0, 1)
    prune(bench, KEEP, 3)
    bench.put((b"a", 1, 6, b"{}"))
    bench.put((b"a", 1, 7, None))
    assert prune(bench, KEEP, 3, b"a") == Pruned(0, 2 * KEEP, 0)
    assert bench.held(bench.keys.gone) == {b"a": (1, 7)}


def test_a_partition_that_is_not_whole_or_of_another_build_forgets_nothing(bench: Bench) -> None:
    bench.put((b"a", 1, 5, None), (b"a", 2, 1, None))
    tombstones = StoredTombstones(bench.writer)
    assert tombstones.prune(*PLACE, generation=2, now=0, keep=KEEP, batch=1) == PositionMoved(1)
    assert tombstones.prune("v", 0, "fedc9876", generation=1, now=0, keep=KEEP, batch=1) == PositionMoved(None)
    assert bench.writer.begin(*PLACE, 9, generation=1, anew=True) == Begun(-1, 1)
    bench.offset = -1
    bench.put((b"a", 1, 5, None))
    assert prune(bench, 0, 1) is None


def test_after_a_hand_over_or_a_restore_nothing_was_forgotten(bench: Bench) -> None:
    bench.put((b"a", 1, 5, None), (b"b", 2, 1, None))
    prune(bench, 0, 1)
    assert horizon(bench, KEEP, 3) == 1
    assert bench.hand_overs.serve(*PLACE, 2, -1) == Served()
    assert bench.stored().pruned == -1 and bench.held(bench.keys.gone) == {b"b": (2, 1)}
    assert StoredTombstones(bench.writer).prune(*PLACE, generation=2, now=9 * KEEP, keep=KEEP, batch=9) == Pruned(
        -1, 10 * KEEP, 0
    ), "the mark is made anew"
    bench.writer.begin(*PLACE, -1, generation=2, anew=True)
    assert bench.stored().pruned == -1


def test_a_pass_finds_what_is_before_the_horizon_only(bench: Bench) -> None:
    bench.put(*((b"%d" % n, 1, 1, None) for n in range(2000)))
    tombstones, found, cursor = StoredTombstones(bench.writer), set[bytes](), 0
    while True:
        keys, cursor = tombstones.before("v", 0, 999, cursor, 100)
        assert len(keys) < 1000, "a step is small"
        found.update(keys)
        if cursor == 0:
            break
    assert found == {b"%d" % n for n in range(1000)}

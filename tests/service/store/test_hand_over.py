"""The scripts of a hand-over: each step is atomic, guarded and safe to repeat."""

from __future__ import annotations

from typing import cast

import pytest

from store_bench import PLACE, Bench
from tailrace.contracts.record import Change
from tailrace.dev.redis_server import RedisServer
from tailrace.store.layout.row import unpack
from tailrace.store.write.hand_overs import NotYetServed, OldKeys, Served
from tailrace.store.write.writer import Applied, Begun, PositionMoved


@pytest.fixture
def bench(redis_server: RedisServer, fresh: str) -> Bench:
    return Bench(redis_server.url, f"test:{fresh}")


def old_keys(bench: Bench) -> OldKeys:
    found = bench.hand_overs.old_keys(*PLACE, 2, 0, 100)
    assert isinstance(found, OldKeys)
    return found


def test_rows_of_a_later_generation_are_kept_back_and_not_published(bench: Bench) -> None:
    listener = bench.client.pubsub(ignore_subscribe_messages=True)  # type: ignore[no-untyped-call]
    listener.psubscribe(bench.keys.channels + b"*")
    assert listener.get_message(timeout=5) is None
    assert bench.put((b"a", 2, 9, b"{}"), (b"b", 2, 1, None), (b"a", 1, 1, b"{}")) == Applied(3)
    assert bench.held(bench.keys.rows) == {b"a": (1, 1)}
    assert bench.held(bench.keys.next_rows) == {b"a": (2, 9)} and bench.held(bench.keys.next_gone) == {b"b": (2, 1)}
    assert (bench.stored().generation, bench.stored().next) == (1, 2)
    message = listener.get_message(timeout=5)
    assert message is not None and unpack(message["data"]).generation == 1
    assert listener.get_message(timeout=0.2) is None


def test_a_still_later_generation_takes_the_place_of_what_is_kept_back(bench: Bench) -> None:
    bench.put((b"a", 2, 9, b"{}"), (b"b", 2, 9, b"{}"))
    bench.put((b"a", 3, 1, b"{}"), (b"b", 2, 10, b"{}"))
    assert bench.held(bench.keys.next_rows) == {b"a": (3, 1)} and bench.stored().next == 3
    assert bench.put((b"c", 2, 11, b"{}")) == Applied(0)


def test_a_partition_is_switched_in_one_step_that_may_be_repeated(bench: Bench) -> None:
    bench.put((b"a", 1, 9, b"{}"), (b"old", 1, 9, b"{}"), (b"was", 1, 9, None))
    bench.put((b"a", 2, 1, b"{}"), (b"b", 2, 2, None), expires=7)
    for _ in range(2):
        assert bench.hand_overs.serve(*PLACE, 2, bench.offset) == Served()
        assert bench.held(bench.keys.rows) == {b"a": (2, 1)} and bench.held(bench.keys.gone) == {b"b": (2, 2)}
        assert bench.names() == {b"gone", b"expiries", b"old-rows"}
        assert (bench.stored().generation, bench.stored().next, bench.stored().offset) == (2, None, bench.offset)
    found = old_keys(bench)
    assert (sorted(found.keys), found.vanished, found.cursor) == ([b"a", b"old"], [b"old"], 0)
    bench.hand_overs.forget("v", 0, found.keys)
    assert bench.names() == {b"gone", b"expiries"}
    assert bench.put((b"a", 1, 99, b"{}"), (b"a", 2, 2, b"{}")) == Applied(1)


def test_nothing_is_switched_before_its_offset_or_for_another_changelog(bench: Bench) -> None:
    bench.put((b"a", 1, 1, b"{}"), (b"a", 2, 1, b"{}"))
    assert bench.hand_overs.serve(*PLACE, 2, bench.offset + 1) == NotYetServed()
    assert bench.hand_overs.serve("v", 0, "fedc9876", 2, -1) == PositionMoved(None)
    assert bench.hand_overs.serve(*PLACE, 1, -1) == Served()
    assert bench.held(bench.keys.rows) == {b"a": (1, 1)} and bench.stored().generation == 1


def test_no_key_is_called_vanished_by_a_store_that_cannot_know(bench: Bench) -> None:
    bench.put((b"old", 1, 9, b"{}"))
    assert bench.hand_overs.serve(*PLACE, 2, -1) == Served()
    assert old_keys(bench).vanished == [b"old"]
    assert bench.hand_overs.old_keys(*PLACE, 1, 0, 100) == PositionMoved(bench.offset), "another generation"
    assert bench.hand_overs.old_keys("v", 0, "fedc9876", 2, 0, 100) == PositionMoved(None), "another changelog"
    bench.client.hset(cast(str, bench.keys.position), "target", str(bench.offset + 1))
    assert old_keys(bench).keys == [], "not whole"


def test_a_build_without_rows_in_a_partition_empties_it(bench: Bench) -> None:
    bench.put((b"a", 1, 1, b"{}"), (b"b", 1, 1, None))
    assert bench.hand_overs.serve(*PLACE, 2, -1) == Served()
    assert bench.held(bench.keys.rows) == {} and bench.names() == {b"old-rows"}


def test_the_next_hand_over_waits_until_old_keys_are_forgotten(bench: Bench) -> None:
    bench.put((b"a", 1, 1, b"{}"))
    assert bench.hand_overs.serve(*PLACE, 2, -1) == Served()
    assert bench.hand_overs.serve(*PLACE, 3, -1) == NotYetServed()
    bench.hand_overs.forget("v", 0, [b"a"])
    assert bench.hand_overs.serve(*PLACE, 3, -1) == Served()


def test_rows_that_were_given_up_are_not_taken_for_a_build_without_rows(bench: Bench) -> None:
    bench.put((b"a", 1, 1, b"{}"), (b"a", 2, 1, b"{}"))
    assert bench.hand_overs.abandon(*PLACE, 2, 3) == PositionMoved(bench.offset), "another generation is served"
    assert bench.hand_overs.abandon("v", 0, "fedc9876", 1, 2) == PositionMoved(None), "another changelog"
    assert bench.hand_overs.abandon(*PLACE, 1, 3) is False, "only what is kept back beside what is served"
    assert bench.hand_overs.abandon(*PLACE, 1, 2) is True and bench.hand_overs.abandon(*PLACE, 1, 2) is False
    assert bench.names() == set() and bench.stored().next is None
    assert bench.put((b"b", 2, 2, b"{}")) == Applied(0), "what still comes of it is not kept"
    assert bench.hand_overs.serve(*PLACE, 2, -1) == PositionMoved(-1)
    found = bench.stored()
    assert (found.generation, found.offset, found.target, found.whole) == (2, -1, bench.offset, False)


def test_rows_that_made_way_for_a_still_later_build_are_not_taken_for_a_build_without_rows(bench: Bench) -> None:
    bench.put((b"a", 1, 1, b"{}"), (b"a", 2, 1, b"{}"), (b"a", 3, 1, b"{}"))
    assert bench.hand_overs.serve(*PLACE, 2, -1) == PositionMoved(-1)
    assert bench.stored().generation == 2 and bench.held(bench.keys.rows) == {}


def test_a_position_without_a_generation_gets_that_of_the_catalog(bench: Bench) -> None:
    bench.put((b"a", 1, 1, b"{}"))
    bench.client.hdel(cast(str, bench.keys.position), "generation")
    assert bench.stored().generation is None
    before = bench.offset
    assert bench.put((b"a", 1, 2, b"{}")) == PositionMoved(before), "the partition is opened again, and so gets one"
    assert bench.writer.begin(*PLACE, 99, generation=4) == Begun(before, 4)
    assert bench.held(bench.keys.rows) == {b"a": (1, 1)}


def test_of_one_version_a_row_stands_above_a_tombstone(bench: Bench) -> None:
    assert bench.put((b"a", 1, 5, None)) == Applied(1)
    assert bench.put((b"a", 1, 5, b"{}")) == Applied(1)
    assert bench.put((b"a", 1, 5, None)) == Applied(0)
    assert bench.held(bench.keys.rows) == {b"a": (1, 5)}


def test_the_newest_of_a_key_is_found_wherever_it_is_kept(bench: Bench) -> None:
    bench.put((b"a", 1, 5, b'{"n":1}'), (b"b", 1, 6, b"{}"), expires=100)
    bench.put((b"a", 2, 1, b'{"n":2}'), expires=200)
    a, b, none = bench.writer.newest("v", 0, [b"a", b"b", b"c"])
    assert a == Change(b"a", b'{"n":2}', 2, 1, 0, 2, 200)
    assert b == Change(b"b", b"{}", 1, 6, 0, 1, 100) and none is None

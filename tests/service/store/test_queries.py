"""The members of queries in the store: each step is atomic, guarded and leaves nothing behind."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from query_bench import NEVER, START, QueryBench, digest, row
from query_following import Reading
from store_bench import LINEAGE, PLACE
from tailrace.dev.redis_server import RedisServer
from tailrace.materializer.queries.partition_queries import REMEMBERED, SLACK
from tailrace.store.layout.message import GONE, READY, ROW
from tailrace.store.read.matches import Members, NotReady, NotResumable
from tailrace.store.write.writer import Applied, PositionMoved

BIG = "n > 2"
Q = digest(BIG)


@pytest.fixture
def bench(redis_server: RedisServer, fresh: str) -> Iterator[QueryBench]:
    bench = QueryBench(redis_server.url, f"test:{fresh}", most_left=3)
    yield bench
    bench.close()


@pytest.fixture
def reading(redis_server: RedisServer, fresh: str) -> Iterator[Reading]:
    reading = Reading(redis_server.url, f"test:{fresh}", "v", LINEAGE)
    yield reading
    reading.close()


def kinds(bench: QueryBench) -> list[tuple[bytes, bytes, int]]:
    return [(message.event.kind, message.event.key, message.event.offset) for _, message in bench.messages()]


def opened(bench: QueryBench, text: str = BIG) -> None:
    bench.open("s", text)
    bench.settle()
    bench.messages()


def test_rows_that_were_there_before_a_query_are_its_members_and_are_not_published(
    bench: QueryBench, reading: Reading
) -> None:
    bench.put((b"a", 1, row(3)), (b"b", 1, row(1)), (b"c", 1, row(9)))
    bench.open("s", BIG)
    assert reading.snapshot(0, Q) == NotReady()
    bench.settle()
    assert kinds(bench) == [(READY, b"", 2)]
    found = reading.snapshot(0, Q)
    assert isinstance(found, Members) and (found.offset, found.generation) == (2, 1)
    assert {key: held.offset for key, held in found.rows.items()} == {b"a": 0, b"c": 2} and found.left == {}


def test_a_change_is_published_as_row_or_gone_in_the_order_of_offsets(bench: QueryBench) -> None:
    opened(bench)
    bench.put((b"in", 1, row(3)), (b"out", 1, row(1)))
    assert kinds(bench) == [(ROW, b"in", 0)]
    bench.put((b"out", 2, row(4)), (b"in", 2, row(5)))
    assert kinds(bench) == [(ROW, b"out", 2), (ROW, b"in", 3)]
    bench.put((b"in", 3, row(0)), (b"out", 3, None), (b"new", 1, None))
    assert kinds(bench) == [(GONE, b"in", 4), (GONE, b"out", 5)]
    assert bench.members(BIG) == {}


def test_a_row_that_leaves_a_query_is_not_shown_to_who_asked(bench: QueryBench) -> None:
    opened(bench)
    bench.put((b"k", 1, row(3)))
    bench.put((b"k", 2, row(1)))
    entered, left = (message.event for _, message in bench.messages())
    assert entered.value == row(3) and (left.kind, left.version, left.value) == (GONE, 2, None)


def test_a_stale_version_causes_nothing(bench: QueryBench) -> None:
    opened(bench)
    bench.put((b"k", 5, row(3)))
    bench.messages()
    assert bench.put((b"k", 5, row(1)), (b"k2", 0, None)) == Applied(1)
    assert bench.put((b"k", 4, None)) == Applied(0)
    assert kinds(bench) == [] and bench.members(BIG) == {b"k": 0}


def test_equal_queries_of_many_streams_are_published_once(bench: QueryBench) -> None:
    bench.open("s1", "n > 2 and s = 'a'")
    bench.open("s2", "(s = 'a') AND (2 < n)")
    bench.settle()
    bench.put((b"k", 1, row(3)))
    assert [kind for kind, _, _ in kinds(bench)] == [READY, ROW]
    bench.end("s1")
    bench.settle()
    bench.put((b"k", 2, row(4)))
    assert [kind for kind, _, _ in kinds(bench)] == [ROW]
    bench.end("s2")
    bench.settle()
    bench.put((b"k", 3, row(5)))
    assert kinds(bench) == [] and bench.query_keys() == set()


def test_a_resume_gets_what_has_come_and_gone_since(bench: QueryBench, reading: Reading) -> None:
    opened(bench)
    bench.put((b"stays", 1, row(3)), (b"changes", 1, row(3)), (b"leaves", 1, row(3)))
    at = bench.held.stored
    bench.put((b"changes", 2, row(4)), (b"leaves", 2, row(0)), (b"comes", 1, row(5)))
    found = reading.suffix(0, Q, 1, at)
    assert isinstance(found, Members)
    assert found.rows.keys() == {b"changes", b"comes"} and found.left == {b"leaves": 4}
    again = reading.suffix(0, Q, found.generation, found.offset)
    assert isinstance(again, Members) and not again.rows and not again.left


def test_a_position_that_cannot_be_honoured_is_reset_with_the_reason(bench: QueryBench, reading: Reading) -> None:
    bench.put((b"k", 1, row(3)))
    opened(bench)
    assert reading.suffix(0, Q, 1, -1) == NotResumable("horizon"), "what left before the query began is not known"
    assert reading.suffix(0, Q, 2, 0) == NotResumable("generation")
    assert reading.suffix(0, Q, 1, 1) == NotResumable("ahead")
    bench.put(*((b"%d" % n, 1, row(3)) for n in range(5)))
    at = bench.held.stored
    bench.put(*((b"%d" % n, 2, None) for n in range(5)))
    assert reading.suffix(0, Q, 1, at) == NotResumable("horizon"), "more have left than are remembered"
    found = reading.suffix(0, Q, 1, at + 2)
    assert isinstance(found, Members) and found.left == {b"2": at + 3, b"3": at + 4, b"4": at + 5}


def test_keys_that_left_long_ago_are_forgotten(bench: QueryBench, reading: Reading) -> None:
    opened(bench)
    bench.put((b"k", 1, row(3)))
    at = bench.held.stored
    bench.put((b"k", 2, row(0)))
    for _ in range(2):
        bench.settle()
        assert isinstance(reading.suffix(0, Q, 1, at), Members)
        bench.now += 20_000
    bench.now += REMEMBERED
    bench.settle()
    assert reading.suffix(0, Q, 1, at) == NotResumable("horizon")
    assert isinstance(reading.suffix(0, Q, 1, at + 1), Members)


def test_what_changed_while_nobody_evaluated_is_made_up_for(bench: QueryBench, reading: Reading) -> None:
    opened(bench)
    bench.put((b"stays", 1, row(3)), (b"leaves", 1, row(3)), (b"dies", 1, row(3)), (b"changes", 1, row(3)))
    at = bench.held.stored
    bench.messages()
    bench.reopen()
    assert reading.snapshot(0, Q) == NotReady(), "nobody knows what was evaluated"
    batch = bench.batch((b"leaves", 2, row(0)), (b"dies", 2, None), (b"changes", 2, row(4)), (b"comes", 1, row(5)))
    assert bench.blindly(batch) == Applied(4)
    bench.held.stored = batch.reached
    bench.settle()
    found = [message for _, message in bench.messages()]
    assert {(m.event.kind, m.event.key, m.event.offset) for m in found[:-1]} == {
        (GONE, b"leaves", at + 1),
        (GONE, b"dies", at + 2),
        (ROW, b"changes", at + 3),
        (ROW, b"comes", at + 4),
    }
    assert not any(m.settled for m in found[:-1]) and found[-1].settled and found[-1].event.kind == READY
    after = reading.suffix(0, Q, 1, at)
    assert isinstance(after, Members) and after.rows.keys() == {b"changes", b"comes"}
    assert after.left.keys() == {b"leaves", b"dies"}, "a client that was away meanwhile gets the exact suffix"


def test_a_zombie_changes_nothing_of_a_query(bench: QueryBench) -> None:
    opened(bench)
    zombie = bench.queries
    stale = bench.batch((b"zombie", 1, row(9)))
    bench.reopen()
    bench.put((b"k", 1, row(3)))
    bench.settle()
    bench.held.stored -= 1
    assert zombie.apply(stale) == PositionMoved(0)
    bench.held.stored += 1
    assert bench.members(BIG) == {b"k": 0}


def test_a_batch_evaluated_for_another_generation_than_is_served_is_not_applied(bench: QueryBench) -> None:
    opened(bench)
    bench.put((b"k", 1, row(3)), generation=2)
    at = bench.held.stored
    bench.hand_over(2)
    bench.held.generation = 1
    assert bench.put((b"k", 9, row(9))) == PositionMoved(at)
    assert bench.members(BIG) == {}


def test_a_hand_over_begins_every_query_from_nothing(bench: QueryBench, reading: Reading) -> None:
    opened(bench)
    bench.put((b"old", 9, row(9)))
    bench.put((b"new", 1, row(3)), generation=2)
    at = bench.held.stored
    bench.messages()
    bench.hand_over(2)
    assert reading.snapshot(0, Q) == NotReady()
    bench.settle()
    ((_, message),) = bench.messages()
    assert message.event.kind == READY and message.event.generation == 2
    assert bench.members(BIG) == {b"new": at} and reading.suffix(0, Q, 1, at) == NotResumable("generation")


def test_a_row_enters_and_leaves_by_the_clock_alone(bench: QueryBench, reading: Reading) -> None:
    text = "t > now() and t - now() <= interval '2 seconds'"
    bench.put((b"k", 1, row(1, at=5000)))
    opened(bench, text)
    assert bench.members(text) == {} and bench.queries.due_in(100.0) == 3.0
    bench.now = START + 3000
    bench.settle()
    assert kinds(bench) == [(ROW, b"k", 0)] and bench.members(text) == {b"k": 0}
    assert reading.suffix(0, digest(text), 1, 0) == NotResumable("clock")
    bench.now = START + 5000
    bench.settle()
    assert kinds(bench) == [(GONE, b"k", 0)] and bench.members(text) == {}
    assert bench.queries.due_in(100.0) == 100.0, "nothing is to come"


def test_a_change_that_comes_before_an_overdue_timer_leaves_no_member_behind(bench: QueryBench) -> None:
    text = "t > now()"
    bench.put((b"k", 1, row(1, at=1000)))
    opened(bench, text)
    assert bench.members(text) == {b"k": 0}
    bench.now = START + 2000
    bench.put((b"k", 2, row(1, at=500)))
    assert kinds(bench) == [(GONE, b"k", 1)] and bench.members(text) == {}
    bench.settle()
    assert kinds(bench) == []


def test_a_key_that_comes_back_has_not_left(bench: QueryBench, reading: Reading) -> None:
    opened(bench)
    bench.put((b"k", 1, row(3)))
    at = bench.held.stored
    bench.put((b"k", 2, row(0)))
    bench.put((b"k", 3, row(4)))
    found = reading.suffix(0, Q, 1, at)
    assert isinstance(found, Members) and found.rows.keys() == {b"k"} and found.left == {}


def test_a_position_from_before_a_rollback_is_reset_where_what_left_cannot_be_known(
    bench: QueryBench, reading: Reading
) -> None:
    opened(bench)
    bench.put((b"a", 1, row(3)))
    saved, at = bench.dump(), bench.held.stored
    bench.put((b"k", 1, row(3)))
    seen = bench.held.stored
    bench.put((b"k", 2, row(0)), (b"b", 1, row(3)))
    bench.load(saved)
    bench.held.stored = at
    bench.reopen()
    # What compaction has left of the changelog.
    batch = bench.batch((b"k", 2, row(0)), (b"b", 1, row(3)))
    assert bench.writer.apply(*PLACE, at, seen + 2, batch.changes) == Applied(2)
    bench.held.stored = seen + 2
    bench.settle()
    assert reading.suffix(0, Q, 1, seen) == NotResumable("break"), "it has k, and nobody knows"
    before, after = reading.suffix(0, Q, 1, at), reading.suffix(0, Q, 1, seen + 2)
    assert isinstance(before, Members) and before.rows.keys() == {b"b"}
    assert isinstance(after, Members) and not after.rows and not after.left
    bench.reopen()
    bench.settle()
    assert reading.suffix(0, Q, 1, seen) == NotResumable("horizon"), "of several breaks the last is noted"
    assert isinstance(reading.suffix(0, Q, 1, seen + 2), Members)


def test_a_row_that_leaves_before_the_scan_has_met_it_was_no_member(redis_server: RedisServer, fresh: str) -> None:
    bench = QueryBench(redis_server.url, f"test:{fresh}")
    bench.put(*((b"%d" % n, 1, row(3)) for n in range(3000)))
    bench.open("s", BIG)
    assert bench.queries.tend() is None
    enrolled = len(bench.members(BIG))
    assert 0 < enrolled < 1000
    bench.put(*((b"%d" % n, 2, row(0)) for n in range(3000)))
    assert bench.client.zcard(bench.names.of(Q).left) == enrolled
    bench.close()


def test_keys_of_a_query_that_is_lost_are_made_again(bench: QueryBench, reading: Reading) -> None:
    opened(bench)
    bench.put((b"k", 1, row(3)))
    bench.client.delete(bench.names.of(Q).query)
    bench.put((b"k", 2, row(4)))
    bench.now += 1000
    bench.settle()
    found = reading.snapshot(0, Q)
    assert isinstance(found, Members) and found.rows[b"k"].version == 2


def test_keys_of_a_query_outlive_it_by_little_where_nobody_is_left_to_remove_them(bench: QueryBench) -> None:
    expires = int(time.time() * 1000) - SLACK + 700
    bench.put((b"a", 1, row(3)), (b"b", 1, row(3)))
    bench.open("s", BIG, expires=expires)
    bench.settle()
    bench.put((b"a", 2, row(0)))
    name = Q.encode()
    assert bench.query_keys() == {b"queries", b"query:" + name, b"matches:" + name, b"left:" + name}
    deadline = time.monotonic() + 30
    while bench.query_keys():
        assert time.monotonic() < deadline, "its keys expire"
        time.sleep(0.05)


def test_a_refreshed_query_lives_on(bench: QueryBench) -> None:
    bench.open("s", BIG, expires=int(time.time() * 1000) + 1000)
    bench.settle()
    bench.put((b"k", 1, row(3)))
    bench.open("s", BIG, expires=NEVER)
    bench.settle()
    held = bench.names.of(Q)
    for name in (held.query, held.matches, bench.names.index):
        assert bench.client.pttl(name) > 10 * SLACK


def test_a_large_view_is_enrolled_in_bounded_steps_while_changes_go_on(bench: QueryBench) -> None:
    bench.put(*((b"%d" % n, 1, row(n % 6)) for n in range(3000)))
    bench.open("s", BIG)
    steps = 0
    while bench.queries.due_in(1.0) == 0:
        assert bench.queries.tend() is None
        if steps == 2:
            bench.put((b"0", 2, row(5)), (b"3", 2, row(0)), (b"new", 1, row(4)))
        steps += 1
    assert steps > 4
    expected = ({b"%d" % n for n in range(3000) if n % 6 > 2} | {b"0", b"new"}) - {b"3"}
    assert bench.members(BIG).keys() == expected


def test_another_changelog_has_nothing_of_the_queries_of_this_one(redis_server: RedisServer, bench: QueryBench) -> None:
    opened(bench)
    bench.put((b"k", 1, row(3)))
    other = Reading(redis_server.url, bench.writer.prefix, "v", "fedc9876")
    assert other.snapshot(0, Q) == NotReady()
    other.close()
    assert bench.writer.begin("v", 0, "fedc9876", -1, generation=1).offset == -1
    mine = Reading(redis_server.url, bench.writer.prefix, "v", LINEAGE)
    assert mine.snapshot(0, Q) == NotReady()
    mine.close()

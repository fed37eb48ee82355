"""How long rows took to the store, over the last minute; and what is not a delay."""

from __future__ import annotations

from collections.abc import Iterable

from tailrace.contracts.event import FeedEvent
from tailrace.contracts.freshness import Delay, Report, freshness
from tailrace.contracts.record import Change
from tailrace.materializer.delays import Delays, Minute, Times, times_of, times_of_events
from tailrace.materializer.reports import WaitTimes
from tailrace.materializer.views.batch import ViewBatch, conflate
from tailrace.store.layout.packed_events import pack_events

PLACE = ("view", "l", 1)
NOW = 1_753_000_000.0
MS = int(NOW * 1000)


class Clock:
    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> float:
        return self.now


def conflated(changes: Iterable[Change]) -> ViewBatch:
    return conflate([(c.key, c.value, [*c.headers()], c.offset) for c in changes], -1)


def batch(times: list[int], *, added: frozenset[int] = frozenset(), generation: int = 1) -> ViewBatch:
    return conflated(Change(b"%d" % n, b"{}", generation, 1, t, n, added=n in added) for n, t in enumerate(times))


def said(delays: Delays) -> Report:
    return delays.reports({"view": None})["view"]


def delay(delays: Delays) -> Delay | None:
    one = said(delays)
    return freshness([one], "l", 1, one.at).delay


def times(found: list[int], *, rows: int | None = None) -> Times:
    return Times(found, found, len(found) if rows is None else rows)


def test_the_delay_of_each_row_counts_for_a_minute() -> None:
    clock = Clock()
    delays = Delays(clock)
    delays.stored(PLACE, times([MS - 5, MS - 7, MS - 200]), live=True)
    assert delay(delays) == Delay(7, 200, 3)
    clock.now += 30
    delays.stored(PLACE, times([MS + 30_000 - 1] * 5), live=True)
    assert delay(delays) == Delay(1, 200, 8)
    clock.now += 40
    assert delay(delays) == Delay(1, 1, 5)
    clock.now += 60
    assert delay(delays) is None and "view" not in delays.reports({})


def test_timestamps_ahead_of_the_clock_are_no_delay_and_records_without_one_do_not_count() -> None:
    delays = Delays(Clock())
    delays.stored(PLACE, times([MS + 200, 0, 0, MS + 10**12]), live=True)
    assert delay(delays) == Delay(0, 0, 2) and said(delays).newest == MS + 200
    nothing = Delays(Clock())
    nothing.stored(PLACE, times([0, 0]), live=True)
    assert delay(nothing) is None and said(nothing).newest is None


def test_a_restore_is_no_delay_but_shows_what_is_in_the_store() -> None:
    delays = Delays(Clock())
    delays.stored(PLACE, times([MS - 10**9]), live=False)
    assert delay(delays) is None and said(delays).newest == MS - 10**9


def test_what_the_store_has_reached_never_goes_back_within_a_build_and_begins_anew_with_the_next() -> None:
    delays = Delays(Clock())
    for generation, time, expected in ((1, MS - 5, MS - 5), (1, MS - 9, MS - 5), (2, MS - 9, MS - 9), (1, MS, MS - 9)):
        delays.stored(("view", "l", generation), times([time]), live=True)
        assert said(delays).newest == expected
    delays.stored(("view", "another", 1), times([MS - 70]), live=True)
    assert (said(delays).lineage, said(delays).generation, said(delays).newest) == ("another", 1, MS - 70)


def test_a_view_that_nothing_comes_of_is_reported_on() -> None:
    delays = Delays(Clock())
    delays.know("view", "l", 3)
    assert delays.reports({"view": 0.0}) == {"view": Report(MS, "l", 3, None, 0.0)}


def test_a_minute_holds_few_figures_however_many_rows_come() -> None:
    minute = Minute()
    for n in range(200_000):
        minute.add([n * 37 % 10**7], 1, NOW + n / 1000)
    counts, _ = minute.counts(NOW + 200)
    assert len(counts) < 320 and 60_000 <= sum(counts.values()) <= 65_001


def test_all_times_of_a_small_batch_are_looked_at() -> None:
    found = times_of(batch([5, 9, 7]).packed, [], live=True)
    assert (sorted(found.spread), found.rows) == ([5, 7, 9], 3)


def test_of_a_large_batch_some_times_are_looked_at_and_all_rows_count() -> None:
    packed = batch(list(range(1, 501))).packed
    found = times_of(packed, [], live=True)
    assert len(found.spread) <= 16 and max(found.spread) == 500 and min(found.spread) <= 32
    assert found.last == list(range(485, 501)) and found.rows == 500
    delays = Delays(Clock())
    delays.stored(PLACE, Times([MS - one for one in found.spread], [], 500), live=True)
    assert sum(said(delays).counts.values()) == 500
    assert times_of(packed, [], live=False).spread == ()


def test_what_a_materializer_has_added_has_no_delay() -> None:
    one = batch([5, 10**14, 7], added=frozenset([1]))
    found = times_of(one.packed, one.added, live=True)
    assert (sorted(found.spread), found.rows) == ([5, 7], 2)
    only = batch([10**14], added=frozenset([0]))
    assert times_of(only.packed, only.added, live=True) == Times([], (), 0)


def test_a_batch_knows_the_one_build_that_it_is_of() -> None:
    assert batch([1, 2], generation=3).generation == 3 and batch([]).generation is None
    assert conflated(Change(b"a", b"{}", g, 1, 0, g) for g in (1, 2)).generation is None
    assert [piece.generation for piece in batch([1, 2, 3], generation=4).pieces(2)] == [4, 4]


def test_times_of_events_are_those_of_all_of_few_and_of_some_of_many() -> None:
    for ordered in (True, False):
        few = [FeedEvent(b"%d" % (n % 3), b"{}", 1, n + 1, 100 + n, n, b"s:0") for n in range(10)]
        found = times_of_events(pack_events(few, ordered=ordered), live=True)
        assert sorted(found.spread) == list(range(100, 110)) and max(found.last) == 109 and found.rows == 10
        many = [FeedEvent(b"%d" % (n % 200), b"{}", 1, n + 1, 100 + n, n, b"s:0") for n in range(400)]
        packed = pack_events(many, ordered=ordered)
        found = times_of_events(packed, live=True)
        assert len(found.spread) <= 16 and max(found.spread) == 499 and found.rows == 400
        assert times_of_events(packed, live=False).spread == ()
        assert max(times_of_events(packed, live=False).last) == 499


def test_a_store_that_has_reached_the_end_or_will_soon_is_not_behind() -> None:
    waiting = WaitTimes()
    at = ("log", 0)
    assert waiting.seconds(at, 0) is None
    waiting.seen(at, 9, 10, 0.0)
    assert waiting.seconds(at, 1.0) == 0
    # Under load there is always something on its way: the store reaches the last end that was seen.
    for second in range(1, 100):
        waiting.seen(at, 10 * second, 10 * second + 8, float(second))
        assert waiting.seconds(at, second + 0.5) == 0


def test_a_store_that_stands_still_is_behind_since_it_had_everything() -> None:
    waiting = WaitTimes()
    at = ("log", 0)
    waiting.seen(at, 9, 10, 0.0)
    for second in range(1, 20):
        waiting.seen(at, 9, 10 + second, float(second))
    assert waiting.seconds(at, 20.0) == 20.0
    waiting.seen(at, 15, 40, 20.0)
    assert waiting.seconds(at, 21.0) == 20.0, "what was there a second after the start has come, and no more is known"
    waiting.seen(at, 39, 40, 22.0)
    assert waiting.seconds(at, 22.0) == 0
    waiting.keep(set())
    assert waiting.seconds(at, 22.0) is None

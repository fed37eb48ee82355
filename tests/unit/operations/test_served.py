"""How far a view is behind its sources between the ends of two batches, told by timestamps."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tailrace.operations.served import after, can_be_estimated, counted_until, ends_at, estimated
from tailrace.pipeline.lifecycle.backlog import backlog


def test_a_live_view_that_has_served_everything_is_not_behind() -> None:
    bounds = {"ratings": {0: (0, 3), 1: (0, 2)}}
    served = estimated({}, {"ratings": {}}, bounds)
    assert served == {"ratings": {0: 3, 1: 2}} and backlog(served, bounds) == 0


def test_records_that_are_later_than_the_newest_row_are_behind() -> None:
    bounds = {"ratings": {0: (0, 30), 1: (0, 20)}}
    served = estimated({"ratings": {0: 10, 1: 10}}, {"ratings": {0: 25}}, bounds)
    assert served == {"ratings": {0: 25, 1: 20}} and backlog(served, bounds) == 5


def test_what_a_finished_batch_has_processed_is_served_whatever_timestamps_say() -> None:
    bounds = {"ratings": {0: (5, 30)}, "others": {0: (7, 9)}}
    assert estimated({"ratings": {0: 28}}, {"ratings": {0: 2}, "others": {0: 0}}, bounds) == {
        "ratings": {0: 28},
        "others": {0: 7},
    }


def test_a_record_that_has_come_after_the_end_was_read_is_not_counted() -> None:
    assert estimated({}, {"ratings": {0: 33}}, {"ratings": {0: (0, 30)}}) == {"ratings": {0: 30}}


def test_what_was_written_after_the_last_report_is_not_behind() -> None:
    bounds = {"ratings": {0: (0, 30), 1: (4, 20)}}
    reported = ends_at(bounds, {"ratings": {0: 26}})
    assert reported == {"ratings": {0: (0, 26), 1: (4, 20)}}
    assert backlog(estimated({}, {"ratings": {0: 25}}, bounds), reported) == 1


def test_a_view_that_stands_still_is_behind_also_if_producers_run_ahead_of_the_clock() -> None:
    # What they write is later than every report: none of it had been written then, by its timestamps.
    assert counted_until(newest=9_000, at=5_000) is None
    assert counted_until(newest=4_990, at=5_000) == 5_000
    assert counted_until(newest=4_990, at=None) is None


@given(st.integers(0, 4_000_000_000_000))
def test_the_time_after_a_timestamp_is_the_next_millisecond(newest: int) -> None:
    assert int(after(newest).timestamp() * 1000) == newest + 1


def test_timestamps_tell_of_a_live_view_and_the_build_that_is_served_only() -> None:
    assert can_be_estimated("live", 2, 2)
    for mode, built in (("catching-up", 2), ("micro-batch", 2), ("failed", 2), ("starting", 2), ("live", 3)):
        assert not can_be_estimated(mode, built, 2)

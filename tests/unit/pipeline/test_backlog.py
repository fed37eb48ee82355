"""The backlog: what decides between catching up and going live."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tailrace.pipeline.lifecycle.backlog import backlog, lost


def test_a_view_that_has_processed_nothing_is_behind_by_all_that_is_there() -> None:
    assert backlog({}, {"t": {0: (5, 15), 1: (0, 0)}}) == 10


def test_what_is_processed_is_not_behind() -> None:
    assert backlog({"t": {0: 12, 1: 3}}, {"t": {0: (5, 15), 1: (0, 3)}}) == 3


def test_records_removed_before_they_were_read_are_lost_and_not_behind() -> None:
    processed, bounds = {"t": {0: 2}}, {"t": {0: (5, 15)}}
    assert backlog(processed, bounds) == 10 and lost(processed, bounds) == 3


@given(st.integers(0, 100), st.integers(0, 100), st.integers(0, 100))
def test_every_record_up_to_the_end_is_processed_behind_or_lost(processed: int, first: int, length: int) -> None:
    end = max(first + length, processed)
    found = {"t": {0: processed}}
    bounds = {"t": {0: (first, end)}}
    assert processed + lost(found, bounds) + backlog(found, bounds) == max(end, processed)

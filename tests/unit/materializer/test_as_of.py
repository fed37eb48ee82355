"""As of when a store is complete, and whether it can be read on from where it is."""

from __future__ import annotations

import pytest

from tailrace.materializer.views.as_of import EVERY, LIVE, Marks, outdated, unusable
from tailrace.store.layout.stored_position import StoredPosition

AT = ("changelog", 0)
DAY = 24 * 3600.0


def test_a_time_counts_once_the_store_has_reached_the_end_that_was_read_then() -> None:
    marks = Marks()
    marks.set(AT, 100, 5_000)
    assert marks.reached(AT, 98, 0) is None
    assert marks.reached(AT, 99, 0) == (99, 5_000)
    assert marks.reached(AT, 99, 5_000) is None, "it is noted already"
    assert marks.reached(("changelog", 1), 99, 0) is None


def test_an_end_is_read_now_and_then_and_kafka_is_left_alone_while_it_is_away() -> None:
    marks, pause = Marks(), int(EVERY * 1000)
    assert marks.due(AT, 1)
    marks.set(AT, 100, 1)
    assert not marks.due(AT, pause) and marks.due(AT, pause + 1)
    marks.set(AT, None, pause + 1)
    assert not marks.due(AT, 2 * pause) and not marks.due(("changelog", 1), 2 * pause)
    assert marks.due(AT, 2 * pause + 1)


def test_a_store_is_outdated_after_half_of_the_time_that_tombstones_are_kept() -> None:
    now = int(10 * DAY * 1000)
    assert not outdated(int(9.6 * DAY * 1000), DAY, now)
    assert outdated(int(9.4 * DAY * 1000), DAY, now)
    assert outdated(None, DAY, now), "nobody knows"
    assert not outdated(now - 1000, 0, now, floor=LIVE) and outdated(now - 1000, 0, now)


@pytest.mark.parametrize(
    ("offset", "as_of", "why"),
    [
        (None, None, ""),
        (99, None, ""),
        (50, 9_999_000, ""),
        (100, 9_999_000, "ends at 99"),
        (5, 9_999_000, "begins at 10"),
        (9, 9_999_000, ""),
        (50, 1_000, "tombstones are kept for 100 s"),
        (50, None, "tombstones are kept for 100 s"),
        (-1, None, "begins at 10"),
    ],
)
def test_a_store_that_may_lack_something_is_restored_anew(offset: int | None, as_of: int | None, why: str) -> None:
    found = unusable(StoredPosition(offset, 99, 1, None, as_of=as_of), 10, 100, 100.0, 10_000_000)
    assert (why in found) if why else found == ""

"""When a row enters or leaves a query by the clock alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any as Anything

from tailrace.queries.cells import Row, reader
from tailrace.queries.tree import All, Any, CompareTimes, Condition, Now

# The time at which now() equals the value that it is compared with, in milliseconds; None if that is null.
Crossing = Callable[[Row], int | None]


def comparisons(condition: Condition) -> Iterator[CompareTimes]:
    """The comparisons with now() in a condition."""
    if isinstance(condition, All | Any):
        for term in condition.terms:
            yield from comparisons(term)
    elif isinstance(condition, CompareTimes) and condition.clock:
        yield condition


def crossing(comparison: CompareTimes) -> Crossing:
    """The time at which now() passes the value that it is compared with."""
    held = comparison.milliseconds
    if isinstance(comparison.left, Now):
        return lambda _: held
    read: Callable[[Row], Anything] = reader(comparison.left)
    return lambda row: None if (at := read(row)) is None else at - held


def next_change(
    check: Callable[[Row, int], bool], crossings: tuple[Crossing, ...], row: Row, now_ms: int
) -> int | None:
    """The first millisecond after now at which the answer for a row changes; None if it never does.

    An answer can change only when now() reaches a crossing and when it leaves it, and stays the same in between.
    """
    times = set()
    for cross in crossings:
        at = cross(row)
        if at is not None:
            if at > now_ms:
                times.add(at)
            if at + 1 > now_ms:
                times.add(at + 1)
    if not times:
        return None
    before = check(row, now_ms)
    return next((time for time in sorted(times) if time > now_ms and check(row, time) is not before), None)

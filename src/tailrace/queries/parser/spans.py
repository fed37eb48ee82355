"""Spans: sums of times and intervals, while a query is read.

Each time column and now() counts once, plus or minus; the rest is milliseconds. A time weighs 1 and an
interval 0, so the weight says which of the two a sum is. A comparison of two spans is solved for its first time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tailrace.queries.tree import MIRRORED, NOW, CompareTimes, Condition, Constant, Field, Now, Time


class Unsolvable(ValueError):
    """The comparison has more than two times in it, or the same one twice."""


@dataclass(frozen=True)
class Span:
    """A sum of times, each with its sign, and of milliseconds. `fixed` is the weight of the times among those."""

    times: Mapping[Time, int] = field(default_factory=dict)
    milliseconds: int = 0
    fixed: int = 0

    @property
    def weight(self) -> int:
        """1 for a time, 0 for an interval; anything else means nothing."""
        return self.fixed + sum(self.times.values())

    @property
    def fields(self) -> list[Field]:
        """The columns in it."""
        return [time for time in self.times if isinstance(time, Field)]

    def plus(self, other: Span, sign: int) -> Span:
        """The sum or the difference of two."""
        times = dict(self.times)
        for time, count in other.times.items():
            times[time] = times.get(time, 0) + sign * count
            # A column that cancels itself out would still be null in SQL.
            if abs(times[time]) > 1 or (times[time] == 0 and isinstance(time, Field)):
                raise Unsolvable
            if times[time] == 0:
                del times[time]
        return Span(times, self.milliseconds + sign * other.milliseconds, self.fixed + sign * other.fixed)


def column(time: Field) -> Span:
    """A column of times."""
    return Span({time: 1})


def now() -> Span:
    """The time at which a row is evaluated."""
    return Span({NOW: 1})


def compare(operator: str, left: Span, right: Span) -> Condition:
    """The comparison, solved. Raises Unsolvable."""
    difference = left.plus(right, -1)
    times = sorted(difference.times, key=lambda time: (isinstance(time, Now), getattr(time, "path", ())))
    if not times:
        return Constant(holds(operator, difference.milliseconds, 0))
    first, *others = times
    sign = difference.times[first]
    if len(others) > 1 or (others and difference.times[others[0]] == sign):
        raise Unsolvable
    if sign < 0:
        operator = MIRRORED[operator]
    return CompareTimes(operator, first, others[0] if others else None, -sign * difference.milliseconds)


def holds(operator: str, left: int, right: int) -> bool:
    """Whether the comparison of two numbers holds."""
    order = (left > right) - (left < right)
    return order in {"=": (0,), "<>": (-1, 1), "<": (-1,), "<=": (-1, 0), ">": (1,), ">=": (0, 1)}[operator]

"""Where a reset begins: every target, within what the topic holds."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from tailrace.errors import SettingError
from tailrace.operations.resets import Target, check_target, moment, starts

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)
BOUNDS = {"ratings": {0: (10, 100), 1: (0, 50)}}


def begin(target: Target) -> dict[int, int]:
    asked: list[datetime] = []

    def at_time(at: datetime) -> dict[str, dict[int, int]]:
        asked.append(at)
        return {"ratings": {0: 42}}

    found = starts(target, BOUNDS, {"ratings": {0: 90}}, at_time, NOW)["ratings"]
    assert bool(asked) == (target.kind in ("duration", "datetime"))
    return found


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        (Target("earliest"), {0: 10, 1: 0}),
        (Target("latest"), {0: 100, 1: 50}),
        (Target("offset", "20"), {0: 20, 1: 20}),
        (Target("offset", "5"), {0: 10, 1: 5}),
        (Target("offset", "999"), {0: 100, 1: 50}),
        (Target("shift", "-5"), {0: 85, 1: 0}),
        (Target("shift", "20"), {0: 100, 1: 20}),
        # A partition without a record of that time or later begins at its end.
        (Target("duration", "PT5M"), {0: 42, 1: 50}),
        (Target("datetime", "2026-01-01T00:00:00Z"), {0: 42, 1: 50}),
    ],
)
def test_each_target_begins_where_it_says_and_never_outside_the_topic(target: Target, expected: dict[int, int]) -> None:
    check_target(target)
    assert begin(target) == expected


def test_durations_and_times_mean_what_iso_8601_says() -> None:
    assert moment(Target("duration", "PT1H30M"), NOW) == datetime(2026, 1, 31, 10, 30, tzinfo=UTC)
    assert moment(Target("duration", "P1DT0.5S"), NOW) == datetime(2026, 1, 30, 11, 59, 59, 500000, tzinfo=UTC)
    assert moment(Target("datetime", "2026-01-31T13:00:00+02:00"), NOW) == datetime(2026, 1, 31, 11, tzinfo=UTC)
    assert moment(Target("datetime", "2026-01-31T11:00:00"), NOW) == datetime(2026, 1, 31, 11, tzinfo=UTC)


@pytest.mark.parametrize(
    "target",
    [
        Target("offset", "-1"),
        Target("offset", "soon"),
        Target("shift", "1.5"),
        Target("duration", "5 minutes"),
        Target("duration", "P"),
        Target("duration", "PT"),
        Target("datetime", "yesterday"),
    ],
)
def test_a_target_that_can_not_be_used_is_told(target: Target) -> None:
    with pytest.raises(SettingError, match=r"expected .*, got"):
        check_target(target)

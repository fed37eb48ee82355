"""By the clock alone: when a row enters or leaves a query without any change of it."""

from __future__ import annotations

import pytest

from querying import iso
from tailrace.contracts.catalog import Column
from tailrace.queries import parse

NOW = 1_790_000_000_000
MINUTE = 60_000
COLUMNS = (
    Column("starts_at", "timestamp"),
    Column("ends_at", "timestamp"),
    Column("status", "string"),
    Column("day", "date"),
)


def changes(query: str, *, limit: int = 10, **row: object) -> list[int]:
    """All times at which the answer changes, in ms from now."""
    predicate, found, now = parse(query, COLUMNS), [], NOW
    while (after := predicate.next_change(row, now)) is not None:
        assert after > now
        assert predicate.matches(row, after) is not predicate.matches(row, after - 1)
        found.append(after - NOW)
        now = after
        assert len(found) <= limit
    return found


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("starts_at < now()", [601]),
        ("starts_at <= now()", [600]),
        ("starts_at > now()", [600]),
        ("starts_at >= now()", [601]),
        ("starts_at = now()", [600, 601]),
        ("starts_at <> now()", [600, 601]),
        ("starts_at - now() <= interval '100 milliseconds'", [500]),
        ("now() - starts_at > interval '1 second'", [1601]),
        ("starts_at between now() and now() + interval '100 milliseconds'", [500, 601]),
        ("starts_at between now() - interval '1 second' and now()", [600, 1601]),
        ("status = 'open' and starts_at < now()", [601]),
        ("status = 'shut' and starts_at < now()", []),
        ("status = 'open' or starts_at < now()", []),
        ("starts_at < now() and ends_at > now()", []),
        ("starts_at < now() or ends_at < now()", [401]),
        ("starts_at < now() and ends_at < now()", [601]),
        ("now() >= timestamp '2026-09-21T14:13:20.050Z'", [50]),
        ("starts_at > ends_at", []),
    ],
)
def test_the_next_change_is_exact(query: str, expected: list[int]) -> None:
    assert changes(query, starts_at=iso(NOW + 600), ends_at=iso(NOW + 400), status="open") == expected


def test_a_row_that_becomes_about_to_start_enters_and_leaves() -> None:
    query = "starts_at > now() and starts_at - now() <= interval '5 minutes'"
    assert changes(query, starts_at=iso(NOW + 60 * MINUTE)) == [55 * MINUTE, 60 * MINUTE]


def test_a_day_begins_at_midnight_in_utc() -> None:
    assert changes("day <= now()", day="2026-09-22") == [35_200_000]
    assert parse("day <= now()", COLUMNS).matches({"day": "2026-09-21"}, NOW)


def test_null_and_past_times_never_change() -> None:
    assert changes("starts_at < now()", starts_at=None) == []
    assert changes("starts_at < now()") == []
    assert changes("starts_at < now()", starts_at=iso(NOW - 1)) == []


def test_only_queries_with_now_have_a_clock() -> None:
    assert parse("starts_at < now()", COLUMNS).clock
    assert not parse("starts_at < ends_at - interval '5 minutes'", COLUMNS).clock
    assert not parse("now() - now() < interval '1 day'", COLUMNS).clock

"""What materializers report adds up to how fresh a view is, and to why it may be stale."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tailrace.contracts.freshness import Delay, Freshness, Report, class_middle, delay_class, freshness, why_stale

NOW = 1_753_000_000_000


@given(st.integers(0, 2**40))
def test_a_class_tells_a_delay_within_an_eighth(ms: int) -> None:
    assert abs(class_middle(delay_class(ms)) - ms) <= ms / 8


@given(st.integers(-(2**63), 2**63), st.integers(-(2**63), 2**63))
def test_a_longer_delay_is_never_in_a_lower_class_and_there_are_few_classes(one: int, other: int) -> None:
    low, high = sorted((one, other))
    assert 0 <= delay_class(low) <= delay_class(high) < 320


def report(**said: object) -> Report:
    return Report(**{"at": NOW, "lineage": "l", "generation": 1, **said})  # type: ignore[arg-type]


def test_reports_of_several_materializers_add_up() -> None:
    first = report(counts={3: 10, 9: 1}, longest=9, newest=NOW - 50, behind=0.0)
    second = report(counts={3: 1, delay_class(200): 8}, longest=230, newest=NOW - 20, behind=4.0)
    found = freshness([first, second], "l", 1, NOW + 2000)
    assert found == Freshness(Delay(3, 230, 20), NOW - 20, 4.0, None, NOW)


def test_the_median_is_never_above_the_longest() -> None:
    found = freshness([report(counts={delay_class(96): 1}, longest=96)], "l", 1, NOW)
    assert found.delay == Delay(96, 96, 1)


def test_an_old_report_says_only_what_has_been_stored() -> None:
    old = report(counts={3: 10}, longest=3, newest=NOW - 5, behind=0.0)
    assert freshness([old], "l", 1, NOW + 45_000) == Freshness(None, NOW - 5, None, 45.0)
    fresh = report(at=NOW + 44_000)
    assert freshness([old, fresh], "l", 1, NOW + 45_000) == Freshness(None, NOW - 5, None, None, NOW + 44_000)


def test_another_changelog_says_nothing_and_another_build_not_what_has_been_stored() -> None:
    assert freshness([report(lineage="other", newest=NOW)], "l", 1, NOW) == Freshness()
    found = freshness([report(generation=2, newest=NOW, counts={1: 1}, longest=1)], "l", 1, NOW)
    assert found.newest is None and found.delay is not None


def test_a_report_is_read_as_it_was_written_and_whatever_else_is_passed_over() -> None:
    one = report(counts={3: 10, 9: 1}, longest=9, newest=None, behind=1.5)
    assert Report.decode(one.encode()) == one
    for other in (b"", b"{}", b"[1]", b"7", b'{"at":"x","lineage":"l"}', b"\xff", one.encode()[:-5]):
        assert Report.decode(other) is None


def test_what_is_known_of_stale_rows_is_said_and_nothing_else() -> None:
    assert why_stale("live", (), Freshness(Delay(3, 9, 1), NOW, 2.0)) == []
    assert why_stale("", (), Freshness()) == []
    (failed,) = why_stale("failed", (), Freshness())
    assert "failed" in failed
    assert why_stale("live", ["a task waits"], Freshness()) == ["a task waits"]
    silent, slow = why_stale("live", (), Freshness(None, None, 31.0, 45.4))
    assert "45 s" in silent and "31 s" in slow

"""The arithmetic of `benchmarks/run end-to-end`."""

from __future__ import annotations

from end_to_end import ratios, summary


def test_rounds_are_taken_together() -> None:
    trials = [
        {"delays": [(1_000_000, 98)], "events": 49, "rows": 98, "skipped": 0},
        {"delays": [(5_000_000, 1), (9_000_000, 1)], "events": 2, "rows": 2, "skipped": 2},
    ]
    assert summary(trials) == {
        "p50_ms": 1.0,
        "p95_ms": 1.0,
        "p99_ms": 5.0,
        "max_ms": 9.0,
        "events": 51,
        "rows": 100,
        "skipped": 2,
    }


def test_a_ratio_is_tailrace_by_the_other_and_there_where_both_were_measured() -> None:
    found = ratios(
        {"tailrace": {"p50_ms": 9.0, "p95_ms": 20.0, "p99_ms": None}, "other": {"p50_ms": 6.0, "p99_ms": 3.0}}
    )
    assert found == {"p50_vs_other": 1.5}
    assert ratios({"other": {"p50_ms": 6.0}}) == {}

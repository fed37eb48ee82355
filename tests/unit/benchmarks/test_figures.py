"""The arithmetic of the benchmarks."""

from __future__ import annotations

import pytest

from figures import latencies, middle, ratios, turned, waits
from view_kinds import KINDS, Mark, read_row


def test_percentiles_are_values_that_occurred() -> None:
    assert latencies([float(n) for n in range(1, 101)]) == {"p50_ms": 50, "p95_ms": 95, "p99_ms": 99, "max_ms": 100}
    assert latencies([7.0]) == {"p50_ms": 7, "p95_ms": 7, "p99_ms": 7, "max_ms": 7}


def test_an_event_waits_for_its_number_or_a_later_one() -> None:
    seen: dict[Mark, list[tuple[int, float]]] = {("a",): [(2, 10.5), (3, 11.0)], ("b",): [(1, 10.25)]}
    sent = [(("a",), 1, 10.0), (("b",), 1, 10.0), (("a",), 2, 10.25), (("a",), 3, 10.5), (("a",), 4, 10.75)]
    assert waits(sent, seen) == [500, 250, 250, 500]


def test_each_round_begins_with_another_contender() -> None:
    assert [turned("abc", number) for number in range(4)] == [
        ["a", "b", "c"],
        ["b", "c", "a"],
        ["c", "a", "b"],
        ["a", "b", "c"],
    ]
    assert turned([], 1) == []


def test_a_rate_is_the_median_of_the_rounds() -> None:
    assert middle([3.0, 1.0, 2.4]) == 2
    assert middle([]) is None


def test_an_overhead_is_what_is_lost_of_either_latency_or_rate() -> None:
    found = ratios(
        {
            "tailrace": {"p50_ms": 11.0, "cpu_us": 30, "sustained_per_s": 80, "backlog_per_s": 90},
            "spark": {"p50_ms": 10.0, "cpu_us": 25, "sustained_per_s": 100},
            "streams": {"p50_ms": 10.0, "sustained_per_s": 160},
            "streams_cached": {"backlog_per_s": 100},
        }
    )
    assert found == {
        "p50_vs_streams": 1.1,
        "sustained_vs_streams": 0.5,
        "backlog_vs_streams_cached": 0.9,
        "overhead_vs_spark": {"p50": 0.1, "cpu": 0.2, "sustained": 0.2},
    }


def test_what_was_not_measured_has_no_ratio() -> None:
    assert ratios({"tailrace": {"p50_ms": 11.0}, "streams": {}}) == {}


ROWS = {
    "aggregate": '{"movie_id":1,"rating":7.5,"ratings":3}',
    "latest": '{"vehicle":"v1","lat":3.0,"lon":13.4}',
    "window": '{"movie_id":1,"start":"2026-01-01T10:07:00.000Z","rating":7.5,"ratings":3}',
    "join": '{"movie_id":"1","title":"Movie 3","score":2.0}',
    "feed": '{"client_id":"c1","kind":"notice","number":3}',
}
MARKS = {
    "aggregate": [(("1",), 3)],
    "latest": [(("v1",), 3)],
    "window": [(("1", "2026-01-01T10:07"), 3)],
    "join": [(("1", "title"), 3), (("1", "score"), 2)],
    "feed": [(("3",), 1)],
}


@pytest.mark.parametrize("name", KINDS)
def test_the_marks_of_a_row_are_those_of_events(name: str) -> None:
    kind = KINDS[name]()
    found = list(kind.marks(read_row(ROWS[name].encode())))
    assert found == MARKS[name]
    events = [kind.event(keys=1, at=1_767_262_020.0) for _ in range(8)]
    lengths = {len(event.mark) for event in events if event.mark is not None}
    assert lengths == {len(mark) for mark, _ in found}
    assert {event.topic for event in events} == set(kind.topics)
    assert sum(event.mark is not None for event in events) == kind.outputs


@pytest.mark.parametrize("name", KINDS)
def test_the_last_number_of_a_mark_is_its_highest(name: str) -> None:
    kind = KINDS[name]()
    highest: dict[Mark, int] = {}
    for _ in range(200):
        event = kind.event(keys=3, at=1_767_262_020.0)
        if event.mark is not None:
            assert event.number > highest.get(event.mark, 0)
            highest[event.mark] = event.number
    assert {mark: number for mark, number in kind.last.items() if number} == highest

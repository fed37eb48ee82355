"""Arithmetic of the benchmarks: percentiles, rates, ratios."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any, TypeVar

from view_kinds import Mark

_T = TypeVar("_T")

RESULTS = Path(__file__).parent / "results"


def tell(name: str, result: Mapping[str, Any]) -> None:
    """Print a result as the last line, and keep it as `results/NAME.json`."""
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{name}.json").write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result))


def latencies(values: Sequence[float]) -> dict[str, float]:
    """p50, p95, p99 and the largest, each a value that occurred."""
    ordered = sorted(values)

    def at(share: float) -> float:
        return round(ordered[max(0, math.ceil(len(ordered) * share) - 1)], 2) if ordered else math.nan

    return {"p50_ms": at(0.5), "p95_ms": at(0.95), "p99_ms": at(0.99), "max_ms": at(1)}


def waits(sent: Sequence[tuple[Mark, int, float]], seen: Mapping[Mark, Sequence[tuple[int, float]]]) -> list[float]:
    """Per event (mark, number, time) that was seen, the milliseconds until its number, or a later one, was seen.

    seen: per mark, (number, time) with both rising. Events are in the order of their numbers.
    """
    found: list[float] = []
    places: dict[Mark, int] = {}
    for mark, number, at in sent:
        sights, place = seen.get(mark, ()), places.get(mark, 0)
        while place < len(sights) and sights[place][0] < number:
            place += 1
        places[mark] = place
        if place < len(sights):
            found.append((sights[place][1] - at) * 1000)
    return found


def turned(places: Sequence[_T], by: int) -> list[_T]:
    """The same in another order: begins with a later one, and goes round."""
    by %= max(1, len(places))
    return [*places[by:], *places[:by]]


def middle(values: Sequence[float]) -> float | None:
    """The median, as whole number; None where there is no value."""
    return round(median(values)) if values else None


def ratios(result: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """How Tailrace compares; what was not measured is left out.

    A ratio of rates or latencies is Tailrace's by the other's. An overhead is the share by which Tailrace takes
    longer, or does less per second, than Spark alone: 0.1 is ten percent.
    """
    found: dict[str, Any] = {}

    def compare(name: str, figure: str, other: str, figure_of_other: str | None = None) -> None:
        mine = result.get("tailrace", {}).get(figure)
        its = result.get(other, {}).get(figure_of_other or figure)
        if mine and its:
            found[name] = round(mine / its, 3)

    compare("p50_vs_streams", "p50_ms", "streams")
    compare("p99_vs_streams", "p99_ms", "streams")
    compare("sustained_vs_streams", "sustained_per_s", "streams")
    compare("cpu_vs_streams", "cpu_us", "streams")
    compare("backlog_vs_streams_cached", "backlog_per_s", "streams_cached")
    compare("micro_batch_vs_streams_cached", "micro_batch_per_s", "streams_cached", "backlog_per_s")
    compare("real_time_vs_streams", "real_time_per_s", "streams", "backlog_per_s")
    if overhead := _overheads(result.get("tailrace", {}), result.get("spark", {})):
        found["overhead_vs_spark"] = overhead
    return found


def _overheads(mine: Mapping[str, Any], its: Mapping[str, Any]) -> dict[str, float]:
    found = {}
    rates = ("sustained_per_s", "backlog_per_s", "micro_batch_per_s", "real_time_per_s")
    for figure in ("p50_ms", "p99_ms", "cpu_us", *rates):
        if mine.get(figure) and its.get(figure):
            quotient = mine[figure] / its[figure]
            name = figure.removesuffix("_ms").removesuffix("_us").removesuffix("_per_s")
            found[name] = round(quotient - 1 if figure not in rates else 1 - quotient, 3)
    return found

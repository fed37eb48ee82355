"""The table of `tailrace status`, and the lines below it."""

from __future__ import annotations

from collections.abc import Iterable

from tailrace.contracts.freshness import Delay
from tailrace.operations.status import ViewStatus
from tailrace.operations.store_status import summary

_COLUMNS = (
    "view",
    "generation",
    "mode",
    "behind",
    "delay p50 / max",
    "read",
    "skipped",
    "lost",
    "state",
    "store behind",
)
_LIVE = (
    "live: read, skipped, lost and state move when a batch ends, once a minute; behind is an estimate by timestamp "
    "until then"
)


def view_rows(views: Iterable[ViewStatus]) -> list[tuple[str, ...]]:
    """The header, and a row for each view and feed."""
    rows: list[tuple[str, ...]] = [_COLUMNS]
    for view in views:
        behind = f"{view.behind:,} ({view.behind_seconds:.0f} s)" if view.behind else "0"
        counts = (f"{view.inputs:,}", f"{sum(view.skipped.values()):,}", f"{view.lost:,}")
        generation = str(view.generation) if view.building is None else f"{view.generation} → {view.building}"
        state = _size(sum(size for places in view.state.values() for size in places.values())) if view.state else "-"
        rows.append((view.view, generation, view.mode, behind, _delay(view.delay), *counts, state, summary(view.store)))
    return rows


def footnotes(views: Iterable[ViewStatus]) -> list[str]:
    """The lines below the table: why rows may be stale, what each dedupe remembers, and what live figures mean."""
    found = list(views)
    lines = [f"{view.view}: {reason}" for view in found for reason in view.degraded]
    for view in found:
        size = _size(sum(view.state["dedupe"].values())) if "dedupe" in view.state else "no batch has ended yet"
        lines += [f"{view.view}: dedupe remembers {what}: {size}" for what in view.remembers]
    return [*lines, _LIVE] if any(view.mode == "live" for view in found) else lines


def _delay(delay: Delay | None) -> str:
    return f"{_time(delay.p50_ms)} / {_time(delay.max_ms)}" if delay is not None else "-"


def _size(size: int) -> str:
    if size < 100_000:
        return f"{size / 1000:.1f} kB"
    return f"{size / 1e6:,.1f} MB" if size < 1e9 else f"{size / 1e9:,.1f} GB"


def _time(ms: int) -> str:
    if ms < 1000:
        return f"{ms} ms"
    return f"{ms / 1000:.1f} s" if ms < 60_000 else f"{ms / 1000:,.0f} s"

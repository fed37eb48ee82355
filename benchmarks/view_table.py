"""The table of `benchmarks/run views`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Table

COLUMNS = {
    "p50": "p50_ms",
    "p95": "p95_ms",
    "p99": "p99_ms",
    "max": "max_ms",
    "boundaries": "boundaries",
    "sustained/s": "sustained_per_s",
    "CPU µs": "cpu_us",
    "backlog/s": "backlog_per_s",
    "micro-batch/s": "micro_batch_per_s",
    "real time/s": "real_time_per_s",
}


def print_table(console: Console, result: Mapping[str, Mapping[str, Any]]) -> None:
    """A row per kind and contender, and the ratios of each kind."""
    table = Table(title="topics → changelog; latencies in ms, events per second")
    for column in ("kind", "contender", *COLUMNS):
        table.add_column(column, justify="left" if column in ("kind", "contender") else "right")
    for kind, found in result.items():
        for name, figures in found.items():
            if name != "ratios":
                table.add_row(kind, name, *(_text(figures.get(figure)) for figure in COLUMNS.values()))
        table.add_section()
    console.print(table)
    for kind, found in result.items():
        for name, ratio in found["ratios"].items():
            if isinstance(ratio, dict):
                parts = ", ".join(f"{what} {share:+.0%}" for what, share in ratio.items())
                console.print(f"{kind}: {name}: {parts}", highlight=False)
            else:
                console.print(f"{kind}: {name}: {ratio:.2f}", highlight=False)


def _text(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,}" if isinstance(value, int) else f"{value:.1f}"

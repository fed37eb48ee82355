"""Each kind of view against Spark alone and Kafka Streams: latency in real time, records per second on a backlog.

Only topics → changelog is measured: one process, on the same broker and topics of the same shape. Contenders take
turns, never two at once, and each round begins with another. Tailrace runs as after `tailrace prepare`.

latency    events at a fixed rate, whatever comes back (an open loop); from produce() to the sight of a consumer of the
           output; after a warm-up, batch boundaries included
sustained  then a burst, after another to warm up: the contender is held while it is produced; events per second that
           are absorbed in real time from then on, and the processor time that each takes
backlog    events that were there before the start, and were read once; per second from the moment when the query, or
           the topology, starts, until the last of them is in a row on the broker
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import sys
import tempfile
import time
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console

import contenders
from contenders import CATCH_UP, MICRO_BATCH, REAL_TIME, Assignment, Running
from figures import latencies, middle, ratios, turned
from tailrace.dev import jars
from tailrace.dev.broker import Broker
from tailrace.errors import InstallError, PartDied
from tailrace.pipeline.spark.archive import make_archive
from tailrace.settings import seconds
from trials import Trial, run_backlog, run_live
from view_kinds import KINDS, Kind
from view_table import print_table

CONTENDERS = ("tailrace", "spark", "streams", "streams_cached")
PHASES = ("latency", "sustained", "backlog")
LIVE = ("tailrace", "spark", "streams")
# What a backlog's figure is called, by mode; Kafka Streams has one mode.
FIGURES = {CATCH_UP: "backlog_per_s", MICRO_BATCH: "micro_batch_per_s", REAL_TIME: "real_time_per_s"}
BACKLOG = [(name, mode) for mode in (CATCH_UP, MICRO_BATCH, REAL_TIME) for name in ("tailrace", "spark")]
BACKLOG[2:2] = [("streams", CATCH_UP), ("streams_cached", CATCH_UP)]
# Kafka notes when it got a record, so that outputs can be read afterwards.
PROPERTIES = {"log.message.timestamp.type": "LogAppendTime"}


def add_flags(parser: argparse.ArgumentParser) -> None:
    """The benchmark's flags."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument(
        "--quick", action="store_true", help="a short run: 10 s batches, 25 s, 200,000 records, 1 round"
    )
    parser.add_argument("--kinds", default=",".join(KINDS), help=f"some of {','.join(KINDS)}")
    parser.add_argument("--contenders", default=",".join(CONTENDERS), help=f"some of {','.join(CONTENDERS)}")
    parser.add_argument("--phases", default=",".join(PHASES), help=f"some of {','.join(PHASES)}")
    parser.add_argument("--modes", default=",".join(FIGURES), help=f"of a backlog, some of {','.join(FIGURES)}")
    parser.add_argument("--rate", type=float, default=50, help="events per second for latency (50)")
    parser.add_argument("--seconds", type=float, help="length of the measured latency part of a round (130)")
    parser.add_argument("--records", type=int, help="records of a backlog (4,000,000); a burst has an eighth")
    parser.add_argument("--rounds", type=int, help="how often the contenders take turns (2)")
    parser.add_argument("--batch-interval", help="length of a real-time batch (60s)")
    parser.add_argument("--logs", type=Path, help="keep what the contenders say in this directory")


def run(flags: argparse.Namespace) -> int:
    """Measure, print a table, and print a line of JSON."""
    console = Console(stderr=True)
    interval = seconds(flags.batch_interval or ("10s" if flags.quick else "60s"))
    chosen = {name: _some(getattr(flags, name), all_of) for name, all_of in _CHOICES.items()}
    with tempfile.TemporaryDirectory(prefix="tailrace-benchmark-") as directory:
        place = Path(directory)
        classes = None
        if any(name.startswith("streams") for name in chosen["contenders"]):
            classes = contenders.compile_streams(place / "classes")
        if "tailrace" in chosen["contenders"]:
            make_archive(jars.ensure("spark"))
        broker = Broker(place / "kafka", properties=PROPERTIES)
        broker.start()
        try:
            bench = Bench(
                console,
                Trial(
                    kafka=broker.address,
                    rate=flags.rate,
                    seconds=flags.seconds or (25.0 if flags.quick else 130.0),
                    warm_up=max(30.0, 1.3 * interval),
                    records=flags.records or (200_000 if flags.quick else 4_000_000),
                    latency="latency" in chosen["phases"],
                    sustained="sustained" in chosen["phases"],
                ),
                place=flags.logs.absolute() if flags.logs is not None else place / "runs",
                classes=classes,
                interval=interval,
                modes=chosen["modes"],
                rounds=flags.rounds or (1 if flags.quick else 2),
            )
            result = {kind: bench.measure(kind, chosen["contenders"], chosen["phases"]) for kind in chosen["kinds"]}
        finally:
            broker.stop()
    print_table(console, result)
    print(json.dumps({"batch_interval": interval, **result}))
    return 0 if not bench.failed else 1


class Bench:
    """Runs the contenders of a kind in turns and gathers their figures."""

    def __init__(
        self,
        console: Console,
        trial: Trial,
        *,
        place: Path,
        classes: Path | None,
        interval: float,
        modes: list[str],
        rounds: int,
    ) -> None:
        self.failed = 0
        self._console, self._trial, self._place, self._classes = console, trial, place, classes
        self._interval, self._modes, self._rounds = interval, modes, rounds

    def measure(self, kind: str, names: list[str], phases: list[str]) -> dict[str, Any]:
        """The figures of one kind by contender, and the ratios."""
        waits: dict[str, list[float]] = defaultdict(list)
        boundaries: dict[str, int] = defaultdict(int)
        rates: dict[tuple[str, str], list[float]] = defaultdict(list)
        live = [name for name in LIVE if name in names and ("latency" in phases or "sustained" in phases)]
        for number in range(self._rounds):
            for name in turned(live, number):
                assignment = self._assignment(kind, name, REAL_TIME, f"live{number}")
                if (got := self._try(name, assignment, KINDS[kind]())) is not None:
                    waits[name] += got.get("waits", [])
                    boundaries[name] += got.get("boundaries") or 0
                    for figure in ("sustained_per_s", "cpu_us"):
                        if figure in got:
                            rates[name, figure].append(got[figure])
        if "backlog" in phases:
            backlog = [(name, mode) for name, mode in BACKLOG if name in names and mode in self._modes]
            source = KINDS[kind]()
            prefix = f"{kind}-backlog-"
            self._say(f"{kind}: producing {self._trial.records:,} records")
            self._trial.preload(source, prefix)
            for number in range(self._rounds):
                for name, mode in turned(backlog, number):
                    assignment = self._assignment(kind, name, mode, f"{mode}{number}")
                    assignment = replace(assignment, prefix=prefix, rehearsal=mode != REAL_TIME)
                    if (got := self._try(name, assignment, source, backlog=True)) is not None:
                        rates[name, FIGURES[mode]].append(got["per_s"])
        result: dict[str, Any] = {}
        for name in names:
            figures: dict[str, Any] = {**latencies(waits[name])} if waits[name] else {}
            if waits[name]:
                figures |= {"received": len(waits[name])}
                figures |= {"boundaries": boundaries[name]} if not name.startswith("streams") else {}
            figures |= {figure: middle(found) for (owner, figure), found in rates.items() if owner == name}
            result[name] = figures
        return {**result, "ratios": ratios(result)}

    def _assignment(self, kind: str, name: str, mode: str, what: str) -> Assignment:
        run = f"{kind}-{name.replace('_', '-')}-{what}"
        return Assignment(
            kind=kind,
            mode=mode,
            kafka=self._trial.kafka,
            prefix=f"{run}-",
            output=f"{run}-output",
            place=self._place / run,
            interval_seconds=self._interval,
        )

    def _try(self, name: str, assignment: Assignment, kind: Kind, *, backlog: bool = False) -> dict[str, Any] | None:
        """Run one contender; what it can't do is said, and left out."""
        what = f"{assignment.kind}: {name}, {'backlog, ' if backlog else ''}{assignment.mode}"
        if name == "tailrace" and (reason := _undeclarable(assignment)) is not None:
            self._say(f"{what}: left out: {reason}")
            return None
        began = time.monotonic()
        try:
            if not backlog:
                self._trial.create(kind, assignment.prefix)
            if name != "tailrace":
                self._trial.create_output(assignment.output)
            running = self._start(name, assignment)
            try:
                got = (run_backlog if backlog else run_live)(self._trial, running, assignment, kind)
            finally:
                running.part.stop()
        except (PartDied, TimeoutError, InstallError) as error:
            self.failed += 1
            self._say(f"{what}: failed: {error}")
            return None
        told: dict[str, float] = {key: round(value) for key, value in got.items() if isinstance(value, float)}
        told |= latencies(got["waits"]) if got.get("waits") else {}
        told |= {"boundaries": got["boundaries"]} if got.get("boundaries") is not None else {}
        self._say(f"{what}: {told} ({time.monotonic() - began:.0f} s)")
        return got

    def _start(self, name: str, assignment: Assignment) -> Running:
        if name == "tailrace":
            return contenders.start_tailrace(assignment)
        if name == "spark":
            return contenders.start_spark(assignment)
        assert self._classes is not None  # noqa: S101
        return contenders.start_streams(assignment, self._classes, cached=name == "streams_cached")

    def _say(self, text: str) -> None:
        self._console.print(text, highlight=False, markup=False)


def _some(text: str, allowed: tuple[str, ...]) -> list[str]:
    found = [word for word in text.split(",") if word]
    if unknown := [word for word in found if word not in allowed]:
        sys.exit(f"expected some of {','.join(allowed)}, got {','.join(unknown)}")
    return found


_CHOICES: dict[str, tuple[str, ...]] = {
    "kinds": tuple(KINDS),
    "contenders": CONTENDERS,
    "phases": PHASES,
    "modes": tuple(FIGURES),
}


def _undeclarable(assignment: Assignment) -> str | None:
    """Why this Tailrace has no such view or mode; None where it has. Declaring touches nothing."""
    os.environ["BENCH_MODE"] = MICRO_BATCH if assignment.mode == MICRO_BATCH else ""
    os.environ["BENCH_KIND"] = assignment.kind
    spec = importlib.util.spec_from_file_location("tailrace_views", contenders.PEERS / "tailrace_views.py")
    assert spec is not None and spec.loader is not None  # noqa: S101
    try:
        spec.loader.exec_module(importlib.util.module_from_spec(spec))
    except (AttributeError, TypeError) as error:
        return str(error)
    return None

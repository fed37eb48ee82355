"""Redis → clients: rows per second and core, delays and memory per connection, against others and the limit.

Each server has one core; clients, publisher and Redis have the other. Contenders take turns, never two at once, and
carry the same rows of 150 bytes. A row counts where a client has read it; rows that were left out for a slow client
are counted, too.

tailrace    the gateway; rows are written to Redis as the materializer writes them; with --follow once more for
            clients that all follow the query or the feed of a key, and not the key: tailrace-query, tailrace-feed;
            with --tls each of these once more with HTTPS and wss: tailrace-tls and so on
limit       a loop in C over send(), which gets the gateway's frames ready-made
nchan       nginx with Nchan, memory store, published to by WebSocket
centrifugo  Centrifugo 6, memory engine, published to by HTTP batches; left out where there is no such program

idle        resident memory by connection, before the first row
delay       from the publisher to the client's read, rows at a fixed rate
CPU µs      the server's processor time per row and client at that rate
single      a row is published when the one before has reached everybody: one write per row and client
saturated   64 rows of a key are under way: a server may join rows in one write
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

import load_client
import nchan
from centrifugo import Centrifugo
from fanout_figures import FOLLOWED, KEY, QUERY, Load, costs, ratios, summary, tailrace_of
from fanout_servers import SendLoop, ShownCertificate, Tailrace, compile_send_loop
from fanout_trial import Times, run_trial
from figures import tell
from tailrace.dev.broker import Broker
from tailrace.dev.redis_server import RedisServer
from tailrace.errors import InstallError, PartDied
from under_load import OTHER_CORE, SERVER_CORE, SSE, WEBSOCKET, Server, allow_descriptors

CONTENDERS = ("tailrace", "centrifugo", "nchan", "limit")
SURFACES = (SSE, WEBSOCKET)
Start = Callable[[Path, Load], Server]


def add_flags(parser: argparse.ArgumentParser) -> None:
    """The benchmark's flags."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--quick", action="store_true", help="a smoke test: 100 connections, SSE, 1 short round")
    parser.add_argument("--connections", help="how many, separated by commas (100,1000,5000)")
    parser.add_argument("--surfaces", help="some of sse,websocket (both)")
    parser.add_argument("--keys", help="over how many keys connections are spread, separated by commas (1,10)")
    parser.add_argument("--contenders", default=",".join(CONTENDERS), help=f"some of {','.join(CONTENDERS)}")
    parser.add_argument(
        "--follow",
        default=KEY,
        help=f"what clients of Tailrace follow, some of {','.join(FOLLOWED)} ({KEY}); others carry keys alone",
    )
    parser.add_argument("--tls", action="store_true", help="measure Tailrace with TLS, too, next to without")
    parser.add_argument("--rounds", type=int, help="how often the contenders take turns (3)")
    parser.add_argument("--rate", type=int, default=50_000, help="rows that arrive per second for delays (50000)")
    parser.add_argument("--window", type=int, default=64, help="rows of a key that are under way at the limit (64)")
    parser.add_argument("--centrifugo", type=Path, help="the program of Centrifugo 6 (from the PATH)")
    parser.add_argument("--logs", type=Path, help="keep what the contenders say in this directory")


def run(flags: argparse.Namespace) -> int:
    """Measure, print a table, and print a line of JSON."""
    console = Console(stderr=True)
    # The table has many columns; where nobody looks, as in a file, it need not fit a terminal.
    console.width = console.width if console.is_terminal else 180
    if {SERVER_CORE, OTHER_CORE} - os.sched_getaffinity(0):
        sys.exit("benchmarks/run fanout: expected two cores, one for the server and one for everything else")
    connections = _numbers(flags.connections or ("100" if flags.quick else "100,1000,5000"))
    try:
        allow_descriptors(max(connections))
    except InstallError as error:
        sys.exit(f"benchmarks/run fanout: {error}")
    follow = _some(flags.follow, FOLLOWED)
    surfaces = _some(flags.surfaces or (SSE if flags.quick else ",".join(SURFACES)), SURFACES)
    loads = [
        Load(surface, count, keys)
        for count in connections
        for surface in surfaces
        for keys in _numbers(flags.keys or ("1" if flags.quick else "1,10"))
        # Many keys are compared where goals are set.
        if keys == 1 or flags.keys or count == 1000
    ]
    times = Times(rate=flags.rate, window=flags.window)
    times = replace(times, timed=1, single=0.5, saturated=1, warm_up=0.2) if flags.quick else times
    # Everything that is started inherits this; servers are moved to the core that is theirs.
    os.sched_setaffinity(0, {OTHER_CORE})
    with tempfile.TemporaryDirectory(prefix="tailrace-benchmark-") as directory:
        place = Path(directory)
        redis, broker = RedisServer(place / "redis", options=("--appendonly", "no")), Broker(place / "kafka")
        try:
            redis.start()
            if QUERY in follow:
                broker.start()
            # Gateways are all alike, whatever is followed.
            kafka = broker.address if QUERY in follow else None
            names = _some(flags.contenders, CONTENDERS)
            shown = ShownCertificate.made(place / "certificates") if flags.tls else None
            starts = _starts(names, follow, flags.centrifugo, redis.url, kafka, shown, place, console)
            logs = flags.logs.absolute() if flags.logs is not None else place / "logs"
            bench = Bench(console, starts, load_client.build(place), logs, times)
            bench.measure(loads, flags.rounds or (1 if flags.quick else 3))
        finally:
            broker.stop()
            redis.stop()
    table = bench.table()
    _print(console, table)
    rows = [{**vars(load), "contender": name, **figures} for load, of in table.items() for name, figures in of.items()]
    about = {**ratios(table), **costs(table)}
    tell("fanout", {**about, "contenders": list(starts), "window": flags.window, "table": rows})
    return 1 if bench.failed else 0


class Bench:
    """Runs the contenders in turns and gathers what their trials have found."""

    def __init__(self, console: Console, starts: dict[str, Start], program: Path, logs: Path, times: Times) -> None:
        self.failed = 0
        self._console, self._starts, self._program, self._logs, self._times = console, starts, program, logs, times
        self._found: dict[tuple[Load, str], list[dict[str, Any]]] = defaultdict(list)

    def measure(self, loads: list[Load], rounds: int) -> None:
        """Every load, round after round, contender after contender."""
        for load in loads:
            for number in range(rounds):
                for name, start in self._starts.items():
                    self._try(load, name, start, number)

    def table(self) -> dict[Load, dict[str, dict[str, Any]]]:
        """By load and contender, the figures of all rounds together."""
        found: dict[Load, dict[str, dict[str, Any]]] = defaultdict(dict)
        for (load, name), trials in self._found.items():
            found[load][name] = summary(trials)
        return found

    def _try(self, load: Load, name: str, start: Start, number: int) -> None:
        """One trial; what fails is said, and left out."""
        what = f"{load.surface} {load.connections:,} connections, {load.keys} keys: {name}"
        place = self._logs / f"{load.surface}-{load.connections}-{load.keys}-{name}-{number}"
        began = time.monotonic()
        try:
            server = start(place, load)
            try:
                got = run_trial(server, self._program, load.surface, load.connections, load.keys, place, self._times)
            finally:
                server.stop()
        except (PartDied, InstallError) as error:
            self.failed += 1
            self._say(f"{what}: failed: {error}")
            return
        self._found[load, name].append(got)
        told = summary([got])
        self._say(f"{what}: {told} ({time.monotonic() - began:.0f} s)")

    def _say(self, text: str) -> None:
        self._console.print(text, highlight=False, markup=False)


def _starts(
    names: list[str],
    follow: list[str],
    centrifugo: Path | None,
    redis: str,
    kafka: str | None,
    shown: ShownCertificate | None,
    place: Path,
    console: Console,
) -> dict[str, Start]:
    """How each contender is started; what this machine lacks is said, and left out."""
    found: dict[str, Start] = {}
    for name in names:
        try:
            if name == "tailrace":
                for what in follow:
                    found[tailrace_of(what)] = lambda at, load, what=what: Tailrace(redis, at, load.keys, what, kafka)  # type: ignore[misc]
                    if shown is not None:
                        found[tailrace_of(what, tls=True)] = lambda at, load, what=what: Tailrace(  # type: ignore[misc]
                            redis, at, load.keys, what, kafka, shown
                        )
            elif KEY not in follow:
                continue
            elif name == "limit":
                loop = compile_send_loop(place)
                found[name] = lambda at, load, loop=loop: SendLoop(loop, at, load.keys, load.surface)  # type: ignore[misc]
            elif name == "nchan":
                nginx = nchan.find()
                found[name] = lambda at, load, nginx=nginx: nchan.Nchan(nginx, at, load.keys)  # type: ignore[misc]
            else:
                program = centrifugo or shutil.which("centrifugo")
                if program is None:
                    raise InstallError("expected centrifugo 6 on the PATH, or --centrifugo with its program")
                found[name] = lambda at, load, program=Path(program): Centrifugo(program, at, load.keys)  # type: ignore[misc]
        except InstallError as error:
            console.print(f"{name}: left out: {error}", highlight=False, markup=False)
    return found


def _print(console: Console, table: dict[Load, dict[str, dict[str, Any]]]) -> None:
    shown = Table("surface", "connections", "keys", "contender")
    columns = {
        "per_s": "rows/s",
        "per_core_s": "rows/core s",
        "single_per_s": "single rows/s",
        "single_per_core_s": "single rows/core s",
        "delivery_us": "CPU µs",
        "p50_ms": "p50 ms",
        "p99_ms": "p99 ms",
        "idle_kb": "idle KB",
        "skipped": "left out",
        "client_busy": "client busy",
    }
    for title in columns.values():
        shown.add_column(title, justify="right")
    for load, of in table.items():
        for name, figures in of.items():
            values = [figures.get(column) for column in columns]
            shown.add_row(
                load.surface,
                f"{load.connections:,}",
                str(load.keys),
                name,
                *(f"{value:,}" if value is not None else "" for value in values),
            )
    console.print(shown)


def _numbers(text: str) -> list[int]:
    return [int(word) for word in text.split(",")]


def _some(text: str, allowed: tuple[str, ...]) -> list[str]:
    found = [word for word in text.split(",") if word]
    if unknown := [word for word in found if word not in allowed]:
        sys.exit(f"expected some of {','.join(allowed)}, got {','.join(unknown)}")
    return found

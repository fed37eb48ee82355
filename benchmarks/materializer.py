"""Changelog → Redis: records per second, restore time and memory, against writing by hand.

A real broker, a real Redis without persistence, and real processes. Contenders take turns, never two at once. Their
changelog is filled before.

views         one or two materializers, which find Redis emptied: from the first record that is back to the last
plain         a consumer with a pipeline of HSET and PUBLISH by redis-py, for the same records, without versions
limit         pipelined SETs by redis-benchmark, which has nothing to read from Kafka
feeds         as views, a feed that keeps its events for every client
plain_feeds   as plain, for the records of the feed: of each client, it keeps the last event
plain_events  the same with XADD in the place of HSET: every event is kept
restore       from the loss of Redis until its last row is back, each key once in the changelog
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections import defaultdict
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table

from redis_limit import sets_per_second
from store_load import load, load_feed
from store_trials import Measured, Place, plain, refill, restore
from tailrace.dev.broker import Broker
from tailrace.dev.redis_server import RedisServer
from tailrace.errors import PartDied

# Redis is a copy that the changelog restores; what persistence costs is not measured here.
_OPTIONS = ("--appendonly", "no")
_CLIENTS = 1_000


def add_flags(parser: argparse.ArgumentParser) -> None:
    """The benchmark's flags."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--quick", action="store_true", help="a short run: 200,000 records, 1 round, 200,000 keys")
    parser.add_argument("--records", type=int, help="records of the changelog (1,000,000)")
    parser.add_argument("--keys", type=int, default=100_000, help="keys that they are of (100,000)")
    parser.add_argument("--restored", type=int, help="keys to restore (1,000,000)")
    parser.add_argument("--rounds", type=int, help="how often the contenders take turns (3)")
    parser.add_argument("--logs", type=Path, help="keep what the contenders say in this directory")


def run(flags: argparse.Namespace) -> int:
    """Measure, print a table, and print a line of JSON."""
    console = Console(stderr=True)
    records = flags.records or (200_000 if flags.quick else 1_000_000)
    restored = flags.restored or (200_000 if flags.quick else 1_000_000)
    with tempfile.TemporaryDirectory(prefix="tailrace-benchmark-") as directory:
        logs = flags.logs.absolute() if flags.logs is not None else Path(directory) / "logs"
        broker = Broker(Path(directory) / "kafka")
        server = RedisServer(Path(directory) / "redis", options=_OPTIONS)
        try:
            broker.start()
            server.start()
            bench = Bench(console, Place(broker.address, server, logs), flags.rounds or (1 if flags.quick else 3))
            bench.views(records, flags.keys)
            bench.feeds(records // 2)
            bench.restore(restored)
        finally:
            server.stop()
            broker.stop()
    result = bench.result()
    _print(console, bench.found)
    print(json.dumps(result))
    return 1 if bench.failed else 0


class Bench:
    """Runs the contenders in turns and gathers their figures."""

    def __init__(self, console: Console, place: Place, rounds: int) -> None:
        self.failed = 0
        self.found: dict[str, list[Measured]] = defaultdict(list)
        self._console, self._place, self._rounds = console, place, rounds
        self._figures: dict[str, Any] = {}
        self._limits: list[float] = []

    def views(self, records: int, keys: int) -> None:
        """Views, by one and by two instances, and who they are compared with."""
        self._say(f"producing {records:,} records of {keys:,} keys")
        filled = load(self._place.kafka, "views", records, keys)
        self._figures |= {"records": records, "keys": keys}
        for _ in range(self._rounds):
            self._try("views", lambda: refill(self._place, filled, 1))
            self._try("plain", lambda: plain(self._place, filled))
            self._try("views_2", lambda: refill(self._place, filled, 2))
            self._place.client.flushall()
            limit, self._figures["limit_by"] = sets_per_second(self._place.server.url, records, keys)
            self._limits.append(limit)
            self._say(f"limit: {limit:,.0f} SETs/s by {self._figures['limit_by']}")

    def feeds(self, records: int) -> None:
        """A feed that keeps every event, by one and by two instances."""
        self._say(f"producing {records:,} events of {_CLIENTS:,} clients")
        filled = load_feed(self._place.kafka, "feeds", records, _CLIENTS)
        for _ in range(self._rounds):
            self._try("feeds", lambda: refill(self._place, filled, 1))
            self._try("plain_feeds", lambda: plain(self._place, filled))
            self._try("plain_events", lambda: plain(self._place, filled, "events"))
            self._try("feeds_2", lambda: refill(self._place, filled, 2))

    def restore(self, keys: int) -> None:
        """Restore as many keys."""
        self._say(f"producing {keys:,} keys to restore")
        filled = load(self._place.kafka, "restore", keys, keys)
        found: list[dict[str, float]] = []
        for _ in range(self._rounds):
            self._try("restore", lambda: found.append(restore(self._place, filled)))
        if found:
            seconds, size = (round(median(one[name] for one in found), 1) for name in ("seconds", "bytes_per_key"))
            self._figures |= {"restored_keys": keys, "restore_s": seconds, "bytes_per_key": size}
            self._figures["restore_1m_s"] = round(seconds * 1_000_000 / keys, 1)
            self._say(f"restore: {seconds} s, {size} bytes per key")

    def result(self) -> dict[str, Any]:
        """The figures, each the median of the rounds, and the ratios."""
        result = dict(self._figures)
        for name, found in self.found.items():
            result[f"{name}_per_s"] = round(median(one.per_s for one in found))
            result[f"{name}_cpu_us"] = round(median(one.process_us for one in found), 2)
            result[f"{name}_redis_us"] = round(median(one.redis_us for one in found), 2)
        if self._limits:
            result["limit_per_s"] = round(median(self._limits))
        for own, other in (("views", "plain"), ("views", "limit"), ("feeds", "plain_feeds"), ("feeds", "plain_events")):
            if result.get(f"{own}_per_s") and result.get(f"{other}_per_s"):
                result[f"{own}_vs_{other}"] = round(result[f"{own}_per_s"] / result[f"{other}_per_s"], 2)
        return result

    def _try(self, name: str, trial: Any) -> None:
        """Run one trial; what fails is said, and left out."""
        try:
            got = trial()
        except (PartDied, TimeoutError) as error:
            self.failed += 1
            self._say(f"{name}: failed: {error}")
            return
        if isinstance(got, Measured):
            self.found[name].append(got)
            self._say(
                f"{name}: {got.per_s:,.0f} records/s, µs per record: process {got.process_us:.2f}, "
                f"Redis {got.redis_us:.2f}"
            )

    def _say(self, text: str) -> None:
        self._console.print(text, highlight=False, markup=False)


def _print(console: Console, found: dict[str, list[Measured]]) -> None:
    table = Table("contender", "records/s", "process µs", "Redis µs")
    for name, trials in found.items():
        figures = (median(getattr(one, field) for one in trials) for field in ("per_s", "process_us", "redis_us"))
        per_s, process, store = figures
        table.add_row(name, f"{per_s:,.0f}", f"{process:.2f}", f"{store:.2f}")
    console.print(table)

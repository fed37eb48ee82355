"""Event → client: from a Kafka producer to the frame that 1,000 SSE clients read, against Kafka Streams.

A stateful view: the average rating of each of 100 movies, every one of which 10 clients follow. An event holds the time
at which it was produced, the row passes it on, and the client compares it with its own clock. Events come at a fixed
rate, whatever comes back. Contenders take turns, never two at once, each with a new broker; everything shares the
machine.

tailrace            pipeline, materializer, Redis and gateway, 60 s batches, their boundaries included
streams_nchan       Kafka Streams without a cache, a bridge in Python, and nginx with Nchan
streams_centrifugo  Kafka Streams without a cache, and Centrifugo 6, which reads its output from Kafka
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from rich.console import Console
from rich.table import Table

import load_client
import nchan
from contenders import compile_streams
from end_to_end_peers import Peer, streams_centrifugo, streams_nchan, tailrace
from fanout_figures import at_share, merged
from figures import tell
from load_client import Buckets, LoadClient
from tailrace.errors import InstallError, PartDied
from tailrace.settings import seconds as in_seconds
from under_load import allow_descriptors

CONTENDERS = ("tailrace", "streams_centrifugo", "streams_nchan")
PERCENTILES = {"p50_ms": 0.5, "p95_ms": 0.95, "p99_ms": 0.99, "max_ms": 1.0}
PATIENCE = 30.0


def add_flags(parser: argparse.ArgumentParser) -> None:
    """The benchmark's flags."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--quick", action="store_true", help="a short run: 10 s batches, 20 s, 1 round")
    parser.add_argument("--connections", type=int, default=1000, help="SSE clients (1000)")
    parser.add_argument("--keys", type=int, default=100, help="keys that they are spread over (100)")
    parser.add_argument("--rate", type=float, default=100, help="events per second (100)")
    parser.add_argument("--seconds", type=float, help="length of the measured part of a round (65)")
    parser.add_argument("--rounds", type=int, help="how often the contenders take turns (2)")
    parser.add_argument("--batch-interval", help="length of a real-time batch (60s)")
    parser.add_argument("--contenders", default=",".join(CONTENDERS), help=f"some of {','.join(CONTENDERS)}")
    parser.add_argument("--centrifugo", type=Path, help="the program of Centrifugo 6 (from the PATH)")


def run(flags: argparse.Namespace) -> int:
    """Measure, print a table, and print a line of JSON."""
    console = Console(stderr=True)
    interval = flags.batch_interval or ("10s" if flags.quick else "60s")
    measured = flags.seconds or (20.0 if flags.quick else 65.0)
    names = [name for name in flags.contenders.split(",") if name]
    if unknown := [name for name in names if name not in CONTENDERS]:
        sys.exit(f"expected some of {','.join(CONTENDERS)}, got {','.join(unknown)}")
    try:
        allow_descriptors(flags.connections)
    except InstallError as error:
        sys.exit(f"benchmarks/run end-to-end: {error}")
    found: dict[str, list[dict[str, Any]]] = defaultdict(list)
    failed = 0
    with tempfile.TemporaryDirectory(prefix="tailrace-benchmark-") as directory:
        place = Path(directory)
        program = load_client.build(place)
        starts = _starts(names, flags.centrifugo, place, interval, console)
        for number in range(flags.rounds or (1 if flags.quick else 2)):
            for name, start in starts.items():
                # Kafka Streams has no batches; it warms up as long as code takes to become fast.
                warm_up = 1.3 * in_seconds(interval) if name == "tailrace" else 30.0
                began = time.monotonic()
                try:
                    with start(number) as peer:
                        client = LoadClient(
                            program, peer.way, flags.connections, flags.keys, place / f"client-{number}"
                        )
                        try:
                            got = _measure(peer, client, flags.rate, flags.keys, warm_up, measured)
                        finally:
                            client.stop()
                except (PartDied, InstallError, TimeoutError) as error:
                    failed += 1
                    console.print(f"{name}: failed: {error}", highlight=False, markup=False)
                    continue
                found[name].append(got)
                told = f"{_percentiles(got['delays'])}, {got['events']} events ({time.monotonic() - began:.0f} s)"
                console.print(f"{name}: {told}", highlight=False, markup=False)
    result = {name: summary(trials) for name, trials in found.items()}
    _print(console, result)
    about = {"connections": flags.connections, "keys": flags.keys, "rate": flags.rate, "batch_interval": interval}
    tell("end-to-end", {**about, **result, "ratios": ratios(result)})
    return 1 if failed else 0


def summary(trials: list[dict[str, Any]]) -> dict[str, Any]:
    """The percentiles of all rounds together, how much was sent, and how much of it arrived."""
    found: dict[str, Any] = _percentiles(merged(trial["delays"] for trial in trials))
    for name in ("events", "rows", "skipped"):
        found[name] = sum(trial[name] for trial in trials)
    return found


def ratios(result: dict[str, dict[str, Any]]) -> dict[str, float]:
    """Tailrace's delays by the others'."""
    mine = result.get("tailrace", {})
    return {
        f"{name.removesuffix('_ms')}_vs_{other}": round(mine[name] / figures[name], 3)
        for other, figures in result.items()
        if other != "tailrace"
        for name in ("p50_ms", "p95_ms", "p99_ms")
        if mine.get(name) and figures.get(name)
    }


def _percentiles(delays: Buckets) -> dict[str, float | None]:
    return {name: at_share(delays, share) for name, share in PERCENTILES.items()}


def _measure(peer: Peer, client: LoadClient, rate: float, keys: int, warm_up: float, measured: float) -> dict[str, Any]:
    """Connect, warm up, and count what arrives of the events after that."""
    client.wait_connected()
    producer = Producer({"bootstrap.servers": peer.kafka, "linger.ms": 0})
    # Every key gets as many, so that the sum of their counts says whether all have arrived.
    before, counted = (max(1, round(length * rate / keys)) for length in (warm_up, measured))
    _produce(peer, producer, rate, keys, before)
    _wait_for(peer, client, before)
    client.begin(timed=True)
    _produce(peer, producer, rate, keys, counted)
    _wait_for(peer, client, before + counted)
    got = client.end()
    if got.lost:
        raise PartDied(f"{got.lost} connections were closed")
    return {"delays": got.delays, "rows": got.rows, "skipped": got.skipped, "events": counted * keys}


def _produce(peer: Peer, producer: Producer, rate: float, keys: int, each: int) -> None:
    began = time.monotonic()
    for number in range(each * keys):
        while (left := began + number / rate - time.monotonic()) > 0:
            producer.poll(0)
            time.sleep(min(left, 0.05))
        event = {"movie_id": number % keys, "rating": number % 11, "at": time.time_ns()}
        producer.produce("ratings", json.dumps(event))
        producer.poll(0)
        if number % 100 == 0:
            for part in peer.parts:
                part.check()
    producer.flush(30)


def _wait_for(peer: Peer, client: LoadClient, each: int) -> None:
    deadline = time.monotonic() + PATIENCE
    while client.progress() < each:
        for part in peer.parts:
            part.check()
        if time.monotonic() > deadline:
            raise TimeoutError(f"{each} events of each key were produced, {client.progress():.1f} arrived on average")
        time.sleep(0.05)


def _starts(
    names: list[str], centrifugo: Path | None, place: Path, interval: str, console: Console
) -> dict[str, Callable[[int], AbstractContextManager[Peer]]]:
    """How each contender is started; what this machine lacks is said, and left out."""
    found: dict[str, Callable[[int], AbstractContextManager[Peer]]] = {}
    classes: Path | None = None
    for name in names:
        try:
            if name == "tailrace":
                found[name] = lambda _: tailrace(interval)
                continue
            classes = classes or compile_streams(place / "classes")
            if name == "streams_nchan":
                nginx = nchan.find()
                found[name] = lambda n, nginx=nginx, to=classes: streams_nchan(nginx, to, place / f"nchan-{n}")  # type: ignore[misc]
            else:
                path = centrifugo or shutil.which("centrifugo")
                if path is None:
                    raise InstallError("expected centrifugo 6 on the PATH, or --centrifugo with its program")
                found[name] = lambda n, at=Path(path), to=classes: streams_centrifugo(at, to, place / f"centrifugo-{n}")  # type: ignore[misc]
        except InstallError as error:
            console.print(f"{name}: left out: {error}", highlight=False, markup=False)
    return found


def _print(console: Console, result: dict[str, dict[str, Any]]) -> None:
    shown = Table("contender")
    for column in (*PERCENTILES, "events", "rows", "skipped"):
        shown.add_column(column.replace("_ms", " ms"), justify="right")
    for name, figures in result.items():
        shown.add_row(name, *(f"{figures[column]:,}" for column in (*PERCENTILES, "events", "rows", "skipped")))
    console.print(shown)

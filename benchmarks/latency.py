"""Latency from a Kafka producer to an SSE client, with what each stage takes.

Ratings are produced at a fixed rate, whatever comes back (an open loop). Every row holds how many ratings it has
absorbed, so each rating is found again on the changelog, in Redis and at the client. A stage's time is from the sight
before it to its own: pipeline = produced → changelog, materializer = changelog → Redis, gateway = Redis → client.
"""

from __future__ import annotations

import argparse
import json
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
from confluent_kafka import Producer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from arrivals import Arrivals, AtClient, InRedis, OnChangelog
from stack import Stack, stack
from tailrace.kafka.config.entries import CONSUMER, PRODUCER
from tailrace.operations.kafka_rights import OPERATOR

MODULE = Path(__file__).parent.parent / "examples" / "movies" / "movies.py"
VIEW = "rating-averages"
KEYS = list(range(20))
RESULTS = Path(__file__).parent / "results"
STAGES = ("pipeline", "materializer", "gateway")


def add_flags(parser: argparse.ArgumentParser) -> None:
    """The benchmark's flags."""
    parser.add_argument("--quick", action="store_true", help="a short run: 10 s batches, 25 s")
    parser.add_argument("--rate", type=float, default=50, help="events per second (50)")
    parser.add_argument("--seconds", type=float, help="length of the measured part (130)")
    parser.add_argument("--batch-interval", help="length of a real-time batch (60s)")
    parser.add_argument(
        "--secure",
        action="store_true",
        help="measure again with everything locked: TLS, passwords and ACLs at Kafka and Redis, HTTPS and a token",
    )


def run(flags: argparse.Namespace) -> int:
    """Measure, print a table, write a plot, and print a line of JSON; with --secure again, locked."""
    console = Console(stderr=True)
    for secure in (False, True) if flags.secure else (False,):
        print(json.dumps(_measure(flags, console, secure=secure)), flush=True)
    return 0


def _measure(flags: argparse.Namespace, console: Console, *, secure: bool) -> dict[str, Any]:
    interval = flags.batch_interval or ("10s" if flags.quick else "60s")
    seconds = flags.seconds or (25.0 if flags.quick else 130.0)
    warm_up = 1.3 * _seconds(interval)
    how = ", locked" if secure else ""
    console.print(f"starting Kafka, Redis, Spark, materializer and gateway{how}; batches of {interval}")
    with stack(MODULE, "movies", batch_interval=interval, secure=secure) as running:
        if secure and not running.redis_encrypted:
            console.print("Redis without TLS: this server was built without it; it wants passwords")
        changelog = OnChangelog(running.kafka_client(CONSUMER, OPERATOR), VIEW, "tailrace.movies.arrivals")
        in_redis = InRedis(running.redis)
        client = AtClient(running.gateway, VIEW, KEYS, running.token, running.tls)
        stages = (changelog, in_redis, client)
        for stage in stages:
            stage.start()
        with Progress(TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn(), console=console) as bar:
            sent, boundaries = _produce(running, flags.rate, warm_up, seconds, bar, stages)
        for stage in stages:
            stage.close()
        encrypted = running.redis_encrypted
    measured = _join(sent, changelog, in_redis, client)
    result = _result(measured, len(sent), flags.rate)
    result["boundaries"] = boundaries
    result["batch_interval"] = interval
    result["secure"] = secure
    if secure:
        result["redis_tls"] = encrypted
    _table(console, result)
    RESULTS.mkdir(exist_ok=True)
    plot = RESULTS / ("latency-secure.png" if secure else "latency.png")
    _plot(measured, plot)
    console.print(f"plot: {plot}")
    return result


def _produce(
    running: Stack, rate: float, warm_up: float, seconds: float, bar: Progress, stages: tuple[Arrivals, ...]
) -> tuple[list[tuple[int, int, float]], int]:
    """Send ratings on schedule; returns (key, version, time) of those after the warm-up, and the boundaries then."""
    producer = Producer({**running.kafka_client(PRODUCER), "linger.ms": 0})
    sent: list[tuple[int, int, float]] = []
    versions = dict.fromkeys(KEYS, 0)
    batches = 0
    task = bar.add_task("warm-up", total=warm_up)
    began = time.time()
    total = int((warm_up + seconds) * rate)
    for number in range(total):
        due = began + number / rate
        while (left := due - time.time()) > 0:
            producer.poll(min(left, 0.001) if left < 0.002 else left - 0.001)
        elapsed = due - began
        key = KEYS[number % len(KEYS)]
        versions[key] += 1
        if elapsed >= warm_up:
            batches = _batches(running) if not sent else batches
            sent.append((key, versions[key], time.time()))
        producer.produce("ratings", json.dumps({"movie_id": key, "rating": number % 11}))
        producer.poll(0)
        if number % max(1, int(rate / 5)) == 0:
            phase = "measuring" if elapsed >= warm_up else "warm-up"
            done = elapsed - warm_up if phase == "measuring" else elapsed
            bar.update(task, description=phase, completed=done, total=seconds if phase == "measuring" else warm_up)
            for part in running.parts.values():
                part.check()
    producer.flush(30)
    deadline = time.time() + 30
    while time.time() < deadline and any(s.newest(key) < versions[key] for s in stages for key in KEYS):
        time.sleep(0.05)
    return sent, _batches(running) - batches


def _join(sent: list[tuple[int, int, float]], *stages: Arrivals) -> list[tuple[float, float, tuple[float, ...]]]:
    """Per event that reached the client: when it was sent, the whole latency and each stage's, in ms."""
    times = [{key: stage.times(key) for key in KEYS} for stage in stages]
    found = []
    for key, version, at in sent:
        sights = [at, *(time_of[key].get(version, float("nan")) for time_of in times)]
        if sights[-1] == sights[-1]:
            parts = tuple((after - before) * 1000 for before, after in pairwise(sights))
            found.append((at, (sights[-1] - at) * 1000, parts))
    return found


def _result(measured: list[tuple[float, float, tuple[float, ...]]], sent: int, rate: float) -> dict[str, Any]:
    result: dict[str, Any] = {**_figures([whole for _, whole, _ in measured])}
    result.update(rate=rate, sent=sent, received=len(measured))
    for number, name in enumerate(STAGES):
        result[name] = _figures([parts[number] for _, _, parts in measured])
    return result


def _figures(values: list[float]) -> dict[str, float]:
    ordered = sorted(values)

    def at(share: float) -> float:
        return round(ordered[min(len(ordered) - 1, int(len(ordered) * share))], 2) if ordered else float("nan")

    return {"p50_ms": at(0.5), "p95_ms": at(0.95), "p99_ms": at(0.99), "max_ms": at(1)}


def _table(console: Console, result: dict[str, Any]) -> None:
    how = "locked: " if result["secure"] else ""
    table = Table(
        title=f"{how}{result['received']} of {result['sent']} events at {result['rate']:g}/s, "
        f"{result['boundaries']} batch boundaries, ms"
    )
    for column in ("", "p50", "p95", "p99", "max"):
        table.add_column(column, justify="left" if column == "" else "right")
    for name, figures in [*((name, result[name]) for name in STAGES), ("produce → client", result)]:
        table.add_row(name, *(f"{figures[f'{column}_ms']:.1f}" for column in ("p50", "p95", "p99", "max")))
    console.print(table)


def _plot(measured: list[tuple[float, float, tuple[float, ...]]], path: Path) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    figure, (over_time, shares) = plt.subplots(1, 2, figsize=(12, 4.5), layout="constrained")
    began = measured[0][0] if measured else 0.0
    over_time.plot([at - began for at, _, _ in measured], [whole for _, whole, _ in measured], ".", markersize=3)
    over_time.set(xlabel="seconds", ylabel="produce → client, ms", yscale="log", title="each event")
    for number, name in enumerate(STAGES):
        ordered = sorted(parts[number] for _, _, parts in measured)
        shares.plot(ordered, [n / len(ordered) for n in range(1, len(ordered) + 1)], label=name)
    ordered = sorted(whole for _, whole, _ in measured)
    shares.plot(ordered, [n / len(ordered) for n in range(1, len(ordered) + 1)], "k", label="produce → client")
    shares.set(xlabel="ms", ylabel="share of events", xscale="log", title="share within")
    shares.legend()
    for axes in (over_time, shares):
        axes.grid(alpha=0.3)
    figure.savefig(path, dpi=120)


def _batches(running: Stack) -> int:
    """How many real-time batches have ended so far."""
    text = httpx.get(running.pipeline_metrics).text
    return int(
        next((float(line.split()[-1]) for line in text.splitlines() if line.startswith("tailrace_batches_total")), 0)
    )


def _seconds(text: str) -> float:
    from tailrace.settings import seconds

    return seconds(text)

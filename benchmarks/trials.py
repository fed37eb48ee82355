"""Trials of one contender: live, and on a backlog."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Producer

from contenders import PARTITIONS, Assignment, Running
from figures import waits
from outputs import Absorbed, Sights, read_once
from tailrace.kafka.brokers import Brokers
from tailrace.kafka.topics import COMPACTED, Topics
from view_kinds import Kind, Mark

LIVE_KEYS = 20
KEYS = 10_000
# Event times of a backlog are spread over so many seconds, and end this long ago.
_SPAN = 540.0
_AGO = 600.0
_PATIENCE = 300.0
# An output that has not grown for so long is looked at.
_QUIET = 1.5


@dataclass(frozen=True)
class Trial:
    """What every contender goes through."""

    kafka: str
    rate: float
    seconds: float
    warm_up: float
    records: int
    latency: bool
    sustained: bool

    def create(self, kind: Kind, prefix: str) -> None:
        """Create the kind's topics."""
        topics = Topics(Brokers(self.kafka))
        for name in kind.topics:
            topics.create(prefix + name, partitions=PARTITIONS, replication=1, config={})

    def create_output(self, name: str) -> None:
        """Create an output, like a changelog of Tailrace."""
        Topics(Brokers(self.kafka)).create(name, partitions=PARTITIONS, replication=1, config=COMPACTED)

    def preload(self, kind: Kind, prefix: str) -> None:
        """Produce a backlog, and read it once, so that no contender is the first to do so."""
        self.create(kind, prefix)
        first = time.time() - _AGO - _SPAN
        self.produce(kind, prefix, self.records, lambda number: first + _SPAN * number / self.records)
        read_once(self.kafka, [prefix + name for name in kind.topics], self.records)

    def produce(self, kind: Kind, prefix: str, count: int, at: Callable[[int], float]) -> None:
        """Produce events as fast as possible, and return when the broker has them."""
        producer = self.producer(**{"linger.ms": 20, "batch.size": 512 * 1024})
        for number in range(count):
            event = kind.event(KEYS, at(number))
            while True:
                try:
                    producer.produce(prefix + event.topic, event.value, event.key)
                    break
                except BufferError:
                    producer.poll(0.01)
        producer.flush(120)

    def producer(self, **more: Any) -> Producer:
        """A producer that places keys as Java's does."""
        return Producer({"bootstrap.servers": self.kafka, "partitioner": "murmur2_random", "log_level": 0, **more})


def run_backlog(trial: Trial, running: Running, assignment: Assignment, kind: Kind) -> dict[str, Any]:
    """Absorb what is there; events per second."""
    absorbed = Absorbed(trial.kafka, assignment.output, kind)
    try:
        ended = _wait_complete(running, absorbed, kind.outputs)
    finally:
        absorbed.close()
    began = running.started()
    if began is None:
        raise TimeoutError("its start was not noticed")
    return {"per_s": kind.made / (ended - began), "seconds": ended - began}


def run_live(trial: Trial, running: Running, assignment: Assignment, kind: Kind) -> dict[str, Any]:
    """Latency at a fixed rate, then bursts."""
    got: dict[str, Any] = {}
    sights = Sights(trial.kafka, assignment.output, kind)
    try:
        sent, since, until = _flow(trial, running, assignment, kind, sights)
    finally:
        sights.close()
    if trial.latency:
        got["waits"] = waits(sent, sights.seen)
        got["boundaries"] = running.boundaries(since, until)
    if trial.sustained:
        absorbed = Absorbed(trial.kafka, assignment.output, kind)
        try:
            got |= _burst(trial, running, assignment, kind, absorbed)
        finally:
            absorbed.close()
    return got


def _flow(
    trial: Trial, running: Running, assignment: Assignment, kind: Kind, sights: Sights
) -> tuple[list[tuple[Mark, int, float]], float, float]:
    """Produce on schedule through warm-up and measurement; what was sent in the latter, its begin and end."""
    producer = trial.producer(**{"linger.ms": 0})
    sent: list[tuple[Mark, int, float]] = []
    first = began = time.time()
    since: float | None = None
    number = 0
    length = trial.seconds if trial.latency else 0.0
    while True:
        due = began + number / trial.rate
        while (left := due - time.time()) > 0:
            producer.poll(min(left, 0.001) if left < 0.002 else left - 0.001)
        if not sights.any:
            if due - first > _PATIENCE:
                raise TimeoutError(f"nothing came out in {_PATIENCE:.0f} s")
            began, number = time.time(), 0
            time.sleep(0.02)
        elapsed = number / trial.rate
        if elapsed >= trial.warm_up + length:
            break
        event = kind.event(LIVE_KEYS, time.time())
        if elapsed >= trial.warm_up:
            since = since or time.time()
            if event.mark is not None:
                sent.append((event.mark, event.number, time.time()))
        producer.produce(assignment.prefix + event.topic, event.value, event.key)
        producer.poll(0)
        number += 1
        if number % max(1, int(trial.rate)) == 0:
            running.part.check()
    producer.flush(30)
    deadline = time.time() + 30
    while sights.lacks() and time.time() < deadline:
        time.sleep(0.05)
    return sent, since or time.time(), time.time()


def _burst(trial: Trial, running: Running, assignment: Assignment, kind: Kind, absorbed: Absorbed) -> dict[str, Any]:
    """A burst to warm the code up for full load, then the one that counts.

    The contender is held while the latter is produced: the producer takes nothing from it, and no work is done before
    the clock starts.
    """
    before, outputs = absorbed.count(), kind.outputs
    trial.produce(kind, assignment.prefix, trial.records // 16, lambda _: time.time())
    _wait_complete(running, absorbed, before + kind.outputs - outputs)
    before, events, outputs = absorbed.count(), kind.made, kind.outputs
    with running.held():
        trial.produce(kind, assignment.prefix, trial.records // 8, lambda _: time.time())
        began, cpu = time.time(), running.cpu_seconds()
    ended = _wait_complete(running, absorbed, before + kind.outputs - outputs)
    count = kind.made - events
    return {"sustained_per_s": count / (ended - began), "cpu_us": (running.cpu_seconds() - cpu) / count * 1e6}


def _wait_complete(running: Running, absorbed: Absorbed, expected: int) -> float:
    """When the last event was absorbed; looks when as much has come out as was expected, or nothing more comes."""
    deadline = time.time() + _PATIENCE
    count, grew, looked = -1, time.time(), -1
    while time.time() < deadline:
        running.part.check()
        now = absorbed.count()
        if now != count:
            count, grew = now, time.time()
        if count > 0 and count != looked and (count >= expected or time.time() - grew > _QUIET):
            looked = count
            if (ended := absorbed.complete_at()) is not None:
                return ended
        time.sleep(0.1)
    raise TimeoutError(f"not all was absorbed in {_PATIENCE:.0f} s: {count} outputs, {expected} expected at most")

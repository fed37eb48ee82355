"""A ledger of what producers wrote: tests compare rows with it if topics have lost records since.

Kafka may have compacted or removed records, and keys may have moved to other partitions. The ledger has every
record, with the partition and offset that the broker gave it, and says what the rows of each kind of view
must be.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from confluent_kafka import Producer

import folds
from histories import EVENTS, Record
from tailrace.dev.broker import Broker

# Topic → partition → the range of offsets that a view has never counted.
Lost = Mapping[str, Mapping[int, tuple[int, int]]]

_FOLDS: Mapping[str, folds.Fold] = {**folds.OVER_EVENTS, **folds.OVER_TABLES}
# Views over another view, made of its rows as they are.
_OVER_AVERAGES = ("good", "enriched")


@dataclass
class Ledger:
    """Writes records, and remembers them."""

    broker: Broker
    suffix: str
    counts: dict[str, int]
    records: list[Record] = field(default_factory=list)
    _clock: int = 0

    def send(self, records: Iterable[Record]) -> None:
        """Write records as a producer does that knows all partitions; those of tables in rising time."""
        producer = Producer({"bootstrap.servers": self.broker.address, "linger.ms": 1})
        failed: list[object] = []
        for given in records:
            name = given.topic.removesuffix(self.suffix)
            partition = given.partition if given.key is None else zlib.crc32(given.key) % self.counts[name]
            self._clock += 1
            timestamp = given.timestamp if name == EVENTS else self._start(given) + self._clock
            sent = replace(given, topic=name, partition=partition, timestamp=timestamp)
            producer.produce(
                given.topic,
                given.value,
                given.key,
                partition,
                timestamp=timestamp,
                headers=list(given.headers),
                on_delivery=self._delivery(sent, failed),
            )
            producer.poll(0)
        assert producer.flush(60) == 0 and not failed, f"not written: {failed[:3]}"

    def rows(self, kind: str, lost: Lost, parent: folds.Rows | None = None) -> folds.Rows:
        """What a view of a kind must hold if it lost some records. `parent` are the rows of the view that it reads."""
        if kind in _OVER_AVERAGES and parent is not None:
            return _over_averages(kind, parent, self.history({}))
        return _FOLDS[kind](self.history(lost))

    def touched(self, kind: str, lost: Lost) -> set[Any]:
        """The keys of a view that have got an event since records were lost."""
        later = [
            record
            for record in self.records
            if record.offset >= lost.get(record.topic, {}).get(record.partition, (0, 0))[1]
        ]
        return set(_FOLDS[kind](ordered(later)))

    def history(self, lost: Lost) -> dict[str, list[Record]]:
        """Every record that was not lost, in the order in which a view of the latest values reads them."""
        kept = []
        for record in self.records:
            first, end = lost.get(record.topic, {}).get(record.partition, (0, 0))
            if not first <= record.offset < end:
                kept.append(record)
        return ordered(kept)

    @staticmethod
    def _start(given: Record) -> int:
        return given.timestamp - given.timestamp % 86_400_000

    def _delivery(self, sent: Record, failed: list[object]) -> Callable[[Any, Any], None]:
        def delivered(error: object, message: Any) -> None:
            if error is not None:
                failed.append(error)
            else:
                self.records.append(replace(sent, offset=message.offset()))

        return delivered


def ordered(records: Iterable[Record]) -> dict[str, list[Record]]:
    """Records by topic. If a key is in several partitions, the one whose newest record is the latest comes last."""
    by_topic: dict[str, list[Record]] = {}
    for record in sorted(records, key=lambda one: (one.partition, one.offset)):
        by_topic.setdefault(record.topic, []).append(record)
    found = {}
    for topic, listed in by_topic.items():
        newest: dict[tuple[bytes | None, int], int] = {}
        for record in listed:
            if _usable(record):
                newest[record.key, record.partition] = record.timestamp
        found[topic] = sorted(
            listed, key=lambda one: (newest.get((one.key, one.partition), -1), one.partition, one.offset)
        )
    return found


def _usable(record: Record) -> bool:
    if record.topic == EVENTS:
        event = folds.parsed(record.value, folds.EVENT)
        return event is not None and (event["x"] is None or event["x"] >= 0)
    return record.value is None or folds.parsed(record.value, folds.VALUES[record.topic]) is not None


def _over_averages(kind: str, averages: folds.Rows, history: folds.History) -> folds.Rows:
    if kind == "good":
        return {k: {**row, "label": k + "!"} for k, row in averages.items() if (row["mean"] or 0) >= 5}
    found = folds.joined("left", {"rated": averages, "a": folds.recent(history)})
    of = folds.of
    return {k: {"k": k, "mean": of(row["rated"], "mean"), "year": of(row["a"], "year")} for k, row in found.items()}


def committed(checkpoint: Path) -> dict[str, dict[int, int]]:
    """The offsets up to which the batches of a checkpoint have ended, by topic and partition."""
    commits = [int(path.name) for path in (checkpoint / "commits").glob("[0-9]*") if path.name.isdigit()]
    if not commits:
        return {}
    found: dict[str, dict[int, int]] = {}
    for line in (checkpoint / "offsets" / str(max(commits))).read_text().splitlines()[2:]:
        if line.startswith("{"):
            for topic, offsets in json.loads(line).items():
                found[topic] = {int(number): offset for number, offset in offsets.items()}
    return found

"""Histories through a running pipeline: its changelogs are compared with the folds."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Message, Producer, TopicPartition

import folds
from checker import Change, feed_violations, repeats, violations
from histories import PARTITIONS, Record
from kinds import FEED, Kinds
from running import Tailrace
from tailrace.declarations.views import Feed
from tailrace.kafka.brokers import REFRESH

FOLDS: Mapping[str, folds.Fold] = {**folds.OVER_EVENTS, **folds.OVER_TABLES}
# In these views a key's events come from one partition, so every version is one row, also after a crash.
EXACT = ("last", "recent")


def _headers(message: Message) -> tuple[tuple[str, bytes], ...]:
    found: Any = message.headers() or ()
    return tuple((name, data or b"") for name, data in found)


@dataclass
class Proof:
    """An app: writes its topics, and follows its changelogs."""

    tailrace: Tailrace = field(repr=False)
    kinds: Kinds = field(repr=False)
    fresh: str
    sources: dict[str, list[Record]] = field(default_factory=dict, repr=False)
    changes: dict[str, list[Change]] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        servers = {"bootstrap.servers": self.tailrace.broker.address}
        self._producer = Producer({**servers, "message.max.bytes": 8_000_000, "linger.ms": 1, **REFRESH})
        self._consumer = Consumer({**servers, "group.id": f"proof-{self.fresh}", "enable.auto.commit": False})
        self._changelogs = {output.changelog: output for output in self.kinds.outputs.values()}
        self._assigned = False
        self._sent = 0

    def send(self, records: Iterable[Record]) -> None:
        """Write records to their topics, and return when the broker has them."""
        failed: list[object] = []
        for record in records:
            self._producer.produce(
                record.topic,
                record.value,
                record.key,
                record.partition,
                timestamp=record.timestamp,
                headers=list(record.headers),
                on_delivery=lambda error, _: failed.append(error) if error is not None else None,
            )
            self._producer.poll(0)
            self._sent += 1
        # A broker that was killed may take a while to lead its partitions again.
        left = self._producer.flush(240)
        assert left == 0 and not failed, f"not written: {left}, {failed[:3]}"

    def read(self) -> bool:
        """Take what the topics have got since the last call; False if that is nothing."""
        if not self._assigned:
            names = [*(topic.name for topic in self.kinds.app.topics), *self._changelogs]
            self._consumer.assign([TopicPartition(t, p, OFFSET_BEGINNING) for t in names for p in range(PARTITIONS)])
            self._assigned = True
        messages = self._consumer.consume(5000, timeout=0.3)
        for message in messages:
            if (error := message.error()) is not None:
                if error.fatal():
                    raise KafkaException(error)
                continue
            topic, key, value = message.topic() or "", message.key(), message.value()
            headers = _headers(message)
            partition, offset = message.partition() or 0, message.offset() or 0
            if topic in self._changelogs:
                told = dict(headers)
                found = Change(
                    (key or b"").decode(),
                    value,
                    int(told["g"]),
                    int(told["v"]),
                    partition,
                    offset,
                    int(told.get("p", b"-1")),
                )
                self.changes.setdefault(topic, []).append(found)
            else:
                name = topic.removesuffix(self.fresh)
                record = Record(name, key, value, headers, message.timestamp()[1], partition, offset)
                self.sources.setdefault(name, []).append(record)
        return bool(messages)

    def history(self) -> dict[str, list[Record]]:
        """What the source topics hold, partition by partition in the order of offsets."""
        return {
            name: sorted(records, key=lambda record: (record.partition, record.offset))
            for name, records in self.sources.items()
        }

    def violations(self, *, once: bool = True, expected: Mapping[str, folds.Rows] | None = None) -> list[str]:
        """What is wrong with the changelogs now. `expected` replaces some folds."""
        history = self.history()
        rows = {kind: FOLDS[kind](history) for kind, _ in self.kinds.outputs if kind != FEED}
        rows.update(expected or {})
        found = []
        for (kind, _), output in self.kinds.outputs.items():
            changes = self.changes.get(output.changelog, [])
            if isinstance(output, Feed):
                problems = feed_violations(changes, folds.feed(history), once=once)
            else:
                several = len(output.row_key) > 1
                problems = violations(changes, rows[kind], several=several, exact=kind in EXACT)
            found += [f"{output.name}: {problem}" for problem in problems]
        return found

    def settle(
        self, timeout: float = 120, *, once: bool = True, expected: Mapping[str, folds.Rows] | None = None
    ) -> None:
        """Wait until the changelogs hold what the folds say; fails with what is wrong."""
        deadline = time.monotonic() + timeout
        while True:
            while self.read() or sum(map(len, self.sources.values())) < self._sent:
                assert time.monotonic() < deadline, "the source topics do not give back what was written to them"
            found = self.violations(once=once, expected=expected)
            if not found:
                return
            if (part := self.tailrace.parts.get("pipeline")) is not None:
                part.check()
            if time.monotonic() > deadline:
                more = f"\n… and {len(found) - 20} more" if len(found) > 20 else ""
                raise AssertionError(f"not settled after {timeout:.0f} s:\n" + "\n".join(found[:20]) + more)

    def repeats(self) -> dict[str, int]:
        """What was written again, by changelog."""
        return {name: repeats(changes) for name, changes in self.changes.items()}

    def close(self) -> None:
        self._consumer.close()

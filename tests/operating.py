"""What operators do to topics while an app uses them: compaction, retention, more partitions."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
)

from running import eventually
from tailrace.dev.broker import Broker
from tailrace.kafka.brokers import Brokers
from tailrace.kafka.topics import Topics

# The cleaner compacts everything outside the open segment, and keeps tombstones for a day.
_EAGER = {"segment.ms": "50", "min.cleanable.dirty.ratio": "0.0", "min.compaction.lag.ms": "0"}
_FILLER = b"filler of a segment"


class Operator:
    """An operator who may do everything."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._admin = AdminClient({"bootstrap.servers": broker.address})

    def create(self, topic: str, partitions: int, **config: str) -> None:
        """Create a topic; settings are spelled with underscores."""
        settings = {name.replace("_", "."): value for name, value in config.items()}
        Topics(Brokers(self._broker.address)).create(topic, partitions=partitions, replication=1, config=settings)

    def partitions(self, topic: str) -> int:
        return Topics(Brokers(self._broker.address)).describe([topic])[topic].partitions

    def add_partitions(self, topic: str, total: int) -> None:
        """Give a topic `total` partitions, and return when the broker knows."""
        for future in self._admin.create_partitions([NewPartitions(topic, total)]).values():
            future.result(30)
        eventually(lambda: self.partitions(topic) == total, "the partitions are there")

    def remove_records(self, topic: str, before: Mapping[int, int] | None = None) -> None:
        """Remove records as retention does: all of them, or those before an offset per partition."""
        numbers = range(self.partitions(topic)) if before is None else before
        offsets = [TopicPartition(topic, n, -1 if before is None else before[n]) for n in numbers]
        for future in self._admin.delete_records(offsets).values():
            future.result(30)

    def alter(self, topic: str, settings: Mapping[str, str | None]) -> None:
        """Change settings of a topic; None restores the default."""
        entries = [
            ConfigEntry(
                name,
                value,
                incremental_operation=AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET,
            )
            for name, value in settings.items()
        ]
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=entries)
        for future in self._admin.incremental_alter_configs([resource]).values():
            future.result(30)

    @contextmanager
    def cleaning(self) -> Iterator[None]:
        """Keep the broker's cleaner from resting meanwhile."""

        def alter(operation: AlterConfigOpType) -> None:
            entry = ConfigEntry("log.cleaner.backoff.ms", "50", incremental_operation=operation)
            resource = ConfigResource(ConfigResource.Type.BROKER, "1", incremental_configs=[entry])
            for future in self._admin.incremental_alter_configs([resource]).values():
                future.result(30)

        alter(AlterConfigOpType.SET)
        try:
            yield
        finally:
            alter(AlterConfigOpType.DELETE)

    def compact(self, topic: str, *, tombstones: bool = False) -> None:
        """Compact a topic up to what it holds now: the last record of each key is left.

        tombstones: remove those as well, as a day later. Deleted records of an otherwise unused key fill
        segments.
        """
        before = self.records(topic)
        expected = _compacted(before, tombstones=tombstones)
        ends = {
            number: max((offset for p, offset, *_ in before if p == number), default=-1)
            for number in range(self.partitions(topic))
        }
        self.alter(topic, {**_EAGER, **({"delete.retention.ms": "0"} if tombstones else {})})
        producer = Producer({"bootstrap.servers": self._broker.address})

        def done() -> bool:
            # A segment is closed by the record after it.
            for number in ends:
                producer.produce(topic, None, _FILLER, partition=number)
            producer.flush(30)
            time.sleep(0.1)
            left = [one for one in self.records(topic) if one[1] <= ends[one[0]] and one[2] != _FILLER]
            return left == expected

        with self.cleaning():
            eventually(done, f"{topic} is compacted")
        self.alter(topic, dict.fromkeys([*_EAGER, *(["delete.retention.ms"] if tombstones else [])]))

    def records(self, topic: str) -> list[tuple[int, int, bytes | None, bytes | None]]:
        """What a topic holds: partition, offset, key and value."""
        consumer = Consumer({"bootstrap.servers": self._broker.address, "group.id": "operator", "log_level": 0})
        found: list[tuple[int, int, bytes | None, bytes | None]] = []
        try:
            for number in range(self.partitions(topic)):
                _, end = consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=30)
                consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING)])
                while (at := consumer.position([TopicPartition(topic, number)])[0].offset) < end and end > 0:
                    messages = [message for message in consumer.consume(1000, 0.2) if message.error() is None]
                    found += [(number, m.offset() or 0, m.key(), m.value()) for m in messages]
                    if at < 0 and consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=30)[0] >= end:
                        break
        finally:
            consumer.close()
        return sorted(found, key=lambda one: one[:2])


def _compacted(
    records: Sequence[tuple[int, int, bytes | None, bytes | None]], *, tombstones: bool
) -> list[tuple[int, int, bytes | None, bytes | None]]:
    last = {(partition, key): offset for partition, offset, key, _ in records}
    return [
        one
        for one in records
        if last[one[0], one[2]] == one[1] and one[2] != _FILLER and not (tombstones and one[3] is None)
    ]

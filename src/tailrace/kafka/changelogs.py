"""The changelogs of an app, consumed by a group whose positions are kept in Redis.

Partitions arrive paused: `open` starts one at an offset of the caller's choice. Offsets are committed only for lag
tools, and never used to resume.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, TopicPartition
from confluent_kafka import Message as Message

from tailrace.kafka.brokers import Brokers
from tailrace.kafka.tombstones import Tombstones

Partition = tuple[str, int]


@dataclass
class Polled:
    """The result of one poll: records per (topic, partition), and the partitions that came or went.

    `full` says that it brought as many records as it may, so there are probably more.
    """

    records: dict[Partition, list[Message]] = field(default_factory=dict)
    assigned: list[Partition] = field(default_factory=list)
    revoked: list[Partition] = field(default_factory=list)
    full: bool = False


class Changelogs:
    """A member of the consumer group of an app's materializers; a poll brings at most `most` records."""

    def __init__(self, brokers: Brokers, group: str, *, most: int = 8000) -> None:
        self.brokers = brokers
        self._group = group
        self._most = most
        self._polled = Polled()
        self._tombstones = Tombstones(brokers)
        self._topics: list[str] = []
        self._revision = brokers.revision
        self._consumer = self._opened()

    def subscribe(self, topics: Sequence[str]) -> None:
        """Share these topics with the other members of the group."""
        self._topics = list(topics)
        if not topics:
            # Kafka refuses an empty subscription.
            self._consumer.unsubscribe()
            return
        self._consumer.subscribe(
            list(topics), on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_revoke
        )

    def poll(self, timeout: float) -> Polled:
        """Wait up to `timeout` seconds for the first record, then take all that are there, up to a full poll."""
        if self.brokers.revision != self._revision:
            self._renew()
        first = self._consumer.poll(timeout)
        polled, self._polled = self._polled, Polled()
        if first is None:
            return polled
        # consume() with a timeout would wait for that many records; with 0 it takes what has been fetched.
        messages = [first, *self._consumer.consume(self._most - 1, 0)]
        polled.full = len(messages) == self._most
        topic, number, run = "", -1, messages
        for message in messages:
            if (error := message.error()) is not None:
                self.brokers.refusals.unread(error, message.topic() or "", self._group)
                continue
            # Records of one partition come in runs.
            if message.partition() != number or message.topic() != topic:
                topic, number = message.topic() or "", message.partition() or 0
                run = polled.records.setdefault((topic, number), [])
            run.append(message)
        # consume() may have handled a rebalance.
        polled.assigned += self._polled.assigned
        polled.revoked += self._polled.revoked
        self._polled = Polled()
        return polled

    def open(self, partition: Partition, offset: int) -> None:
        """Read a partition from an offset on."""
        at = TopicPartition(*partition, offset)
        self._consumer.seek(at)
        self._consumer.resume([at])

    def pause(self, partition: Partition) -> None:
        """Stop reading a partition. What was fetched of it is dropped when it is opened again."""
        self._consumer.pause([TopicPartition(*partition)])

    def end(self, partition: Partition, *, cached: bool = False) -> int | None:
        """The offset that the next record of a partition will get; None if it is not known yet."""
        bounds = self.bounds(partition, cached=cached)
        return bounds[1] if bounds is not None else None

    def bounds(self, partition: Partition, *, cached: bool = False) -> tuple[int, int] | None:
        """The earliest offset of a partition and the one that its next record will get; None if not known yet."""
        try:
            found = self._consumer.get_watermark_offsets(TopicPartition(*partition), timeout=5, cached=cached)
        except KafkaException:
            return None
        return found if found is not None and found[1] >= 0 else None

    def tombstones_kept(self, topic: str) -> float | None:
        """See `Tombstones.kept`."""
        return self._tombstones.kept(topic)

    def at_time(self, partition: Partition, ms: int) -> int | None:
        """The offset of the first record of a time, in ms since 1970, or later.

        The end if there is none; None if it is not known.
        """
        try:
            (found,) = self._consumer.offsets_for_times([TopicPartition(*partition, ms)], timeout=5)
        except KafkaException:
            return None
        if found.error is not None:
            return None
        return found.offset if found.offset >= 0 else self.end(partition)

    def next_offset(self, partition: Partition) -> int | None:
        """The offset after the last record that was handed out; None before the first."""
        offset = self._consumer.position([TopicPartition(*partition)])[0].offset
        return offset if offset >= 0 else None

    def committed(self, partition: Partition) -> int | None:
        """The offset that the group has committed; None if there is none, or Kafka does not answer."""
        try:
            found = self._consumer.committed([TopicPartition(*partition)], timeout=5)[0].offset
        except KafkaException:
            return None
        return found if found >= 0 else None

    def commit(self, offsets: Iterable[tuple[Partition, int]]) -> None:
        """Tell the group, in the background, how far partitions have come."""
        positions = [TopicPartition(*partition, offset) for partition, offset in offsets]
        if positions:
            self._consumer.commit(offsets=positions, asynchronous=True)

    def close(self) -> None:
        """Leave the group."""
        self._consumer.close()

    def _opened(self) -> Consumer:
        # All members share partitions out anew at once, unless they are cooperative.
        self._eager = self.brokers.config.assignor not in ("", "cooperative-sticky")
        return self.brokers.consumer(
            "changelogs",
            {
                "group.id": self._group,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                # How long librdkafka leaves a full queue alone: by default a second, in which a backlog runs dry.
                "fetch.queue.backoff.ms": 10,
            },
            {
                "partition.assignment.strategy": "cooperative-sticky",
                "session.timeout.ms": 10_000,
                "max.partition.fetch.bytes": 8 * 1024 * 1024,
            },
        )

    def _renew(self) -> None:
        """Leave the group and come back with other credentials; the partitions go and come with it."""
        self._revision = self.brokers.revision
        self._consumer.close()
        self._consumer = self._opened()
        self.subscribe(self._topics)

    def _on_assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        begun = [TopicPartition(p.topic, p.partition, OFFSET_BEGINNING) for p in partitions]
        if self._eager:
            consumer.assign(begun)
        else:
            consumer.incremental_assign(begun)
        if partitions:
            consumer.pause(partitions)
        self._polled.assigned += [(p.topic, p.partition) for p in partitions]

    def _on_revoke(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        if self._eager:
            consumer.unassign()
        else:
            consumer.incremental_unassign(partitions)
        gone = [(p.topic, p.partition) for p in partitions]
        self._polled.revoked += gone
        self._polled.assigned = [p for p in self._polled.assigned if p not in gone]

"""Consumer groups without members, which keep a view's processed offsets for lag tools."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from tailrace.errors import Unreachable
from tailrace.kafka.brokers import Brokers, Renewed
from tailrace.kafka.config.reasons import RIGHTS
from tailrace.kafka.topics import Topics

# What a consumer says of a topic that is not there, and of one that it may not know of.
_UNKNOWN = (KafkaError._UNKNOWN_PARTITION, KafkaError._UNKNOWN_TOPIC)

# Topic → partition → offset.
Offsets = Mapping[str, Mapping[int, int]]


class Group:
    """The committed offsets of one group, and the bounds of topics.

    Methods raise Unreachable if the brokers do not answer in time.
    """

    def __init__(self, brokers: Brokers, name: str, *, timeout: float = 15.0) -> None:
        self.name = name
        self._brokers = brokers
        self._timeout = timeout
        self._asked: dict[str, int] = {}
        # Nobody joins the group, so the session is only how long a commit waits for its coordinator.
        fixed = {"group.id": name, "enable.auto.commit": False, "session.timeout.ms": round(timeout * 1000)}
        self._consumer = Renewed(brokers, lambda: brokers.consumer(name, fixed), Consumer.close)

    def commit(self, offsets: Offsets) -> None:
        """Commit the offsets that come next. A group with members of its own refuses that, and says so."""
        found = [TopicPartition(t, p, o) for t, partitions in offsets.items() for p, o in partitions.items()]
        self._require_connection()
        try:
            self._consumer.get().commit(offsets=found, asynchronous=False)
        except KafkaException as error:
            self._brokers.refusals.unread(error.args[0], "", self.name)
            raise self._unreachable(error, "Read") from None

    def committed(self, partitions: Mapping[str, int]) -> dict[str, dict[int, int]]:
        """The committed offsets of topics with these numbers of partitions. Leaves out partitions without one."""
        asked = [TopicPartition(topic, number) for topic, count in partitions.items() for number in range(count)]
        try:
            answered = self._consumer.get().committed(asked, timeout=self._timeout)
        except KafkaException as error:
            raise self._unreachable(error) from None
        found: dict[str, dict[int, int]] = {topic: {} for topic in partitions}
        for position in answered:
            if position.offset >= 0:
                found[position.topic][position.partition] = position.offset
        return found

    def bounds(self, partitions: Mapping[str, int]) -> dict[str, dict[int, tuple[int, int]]]:
        """Per partition, the earliest offset and the one that comes next."""
        self._require_connection()
        self._see(partitions)
        return {topic: self._bounds(topic, range(count)) for topic, count in partitions.items()}

    def at_time(self, partitions: Mapping[str, int], at: datetime) -> dict[str, dict[int, int]]:
        """Per partition, the first offset at a time or later. Leaves out partitions that have none."""
        self._see(partitions)
        ms = int(at.timestamp() * 1000)
        asked = [TopicPartition(topic, number, ms) for topic, count in partitions.items() for number in range(count)]
        try:
            answered = self._consumer.get().offsets_for_times(asked, timeout=self._timeout)
        except KafkaException as error:
            raise self._unreachable(error) from None
        found: dict[str, dict[int, int]] = {topic: {} for topic in partitions}
        for position in answered:
            if position.error is not None:
                raise self._unreachable(KafkaException(position.error), topic=position.topic)
            if position.offset >= 0:
                found[position.topic][position.partition] = position.offset
        return found

    def age(self, topic: str, partition: int, offset: int, now: float) -> float | None:
        """How many seconds ago the record at an offset was written; None if there is none."""
        consumer = self._consumer.get()
        consumer.assign([TopicPartition(topic, partition, offset)])
        try:
            message = consumer.poll(self._timeout)
        finally:
            consumer.unassign()
        if message is None:
            return None
        if (error := message.error()) is not None:
            if error.code() in RIGHTS:
                raise self._unreachable(KafkaException(error), "Read", topic=topic)
            return None
        return max(0.0, now - message.timestamp()[1] / 1000)

    def close(self) -> None:
        """Close the client."""
        self._consumer.close()

    def _require_connection(self) -> None:
        """Raise Unreachable at once if Kafka refuses this process: whoever asks has other queries to watch."""
        if (refused := self._brokers.refusals.useless) is not None:
            raise Unreachable(f"Kafka at {self._brokers}: {refused}")

    def _see(self, partitions: Mapping[str, int]) -> None:
        """Make the client see partitions that topics got since it last looked. By itself it would take minutes."""
        for topic, count in partitions.items():
            if count > self._asked.setdefault(topic, count):
                try:
                    self._consumer.get().list_topics(topic, timeout=self._timeout)
                except KafkaException as error:
                    raise self._unreachable(error, topic=topic) from None
                self._asked[topic] = count

    def _bounds(self, topic: str, numbers: Sequence[int]) -> dict[int, tuple[int, int]]:
        found = {}
        for number in numbers:
            try:
                bounds = self._bounds_of(TopicPartition(topic, number))
            except KafkaException as error:
                raise self._unreachable(error, topic=topic) from None
            if bounds is None:
                raise Unreachable(f"Kafka at {self._brokers} did not say where {topic}[{number}] ends")
            found[number] = bounds
        return found

    def _bounds_of(self, partition: TopicPartition) -> tuple[int, int] | None:
        try:
            return self._consumer.get().get_watermark_offsets(partition, timeout=self._timeout)
        except KafkaException as error:
            if error.args[0].code() not in _UNKNOWN:
                raise
        # Either this process may not know of the topic, which this raises, or its client does not know it yet.
        Topics(self._brokers, timeout=self._timeout).describe([partition.topic])
        self._consumer.get().list_topics(partition.topic, timeout=self._timeout)
        return self._consumer.get().get_watermark_offsets(partition, timeout=self._timeout)

    def _unreachable(self, error: KafkaException, right: str = "Describe", *, topic: str = "") -> Unreachable:
        """The error if a question was not answered: about a topic, or else about the group."""
        about = f", topic {topic}" if topic else f", group {self.name}"
        return self._brokers.unreachable(error, about, f"allow {right} on it")

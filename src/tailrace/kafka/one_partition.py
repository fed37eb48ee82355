"""A topic of one partition that is read from its start and followed: the catalog, and the commands."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from typing import overload

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Producer, TopicPartition

from tailrace.errors import Unreachable
from tailrace.kafka.brokers import FATAL, Brokers, Renewed

_TIMEOUT = 15.0
# After how long without any answer to see whether the topic may be read, and how often then, in seconds.
_FIRST_DOUBT, _DOUBT = 2.0, 10.0


class OnePartitionReader:
    """Follows the one partition of a topic from its start; `what` names the topic in errors.

    Its consumer group has the name of the topic, and nobody joins it. If the topic does not exist yet, it has no
    records, and is followed some seconds after it is made. When the topic is read whole, `usable` says whether a value
    can replace the one before it.
    """

    def __init__(
        self, brokers: Brokers, topic: str, what: str, usable: Callable[[str, bytes], bool] | None = None
    ) -> None:
        self._brokers = brokers
        self._topic = topic
        self._what = what
        self._usable = usable
        self._at_end = False
        self._next = OFFSET_BEGINNING
        self._answered = False
        self._doubt_at = 0.0
        self._consumer = Renewed(brokers, self._opened, Consumer.close)
        self._consumer.get()

    def read_whole(self) -> dict[str, bytes]:
        """The newest value per record key, up to the end of the topic as it is now."""
        records: dict[str, bytes] = {}
        deadline = time.monotonic() + _TIMEOUT
        while not self._at_end:
            for key, value in self.poll(0.2):
                if value is None:
                    records.pop(key, None)
                elif key not in records or self._usable is None or self._usable(key, value):
                    records[key] = value
            if (refused := self._brokers.refusals.of_reading(self._topic)) is not None:
                raise Unreachable(f"Kafka at {self._brokers}: {refused}")
            if time.monotonic() > deadline:
                raise Unreachable(
                    f"Kafka at {self._brokers} did not deliver the {self._what} topic: "
                    + self._brokers.why(f"no end within {_TIMEOUT:.0f} s")
                )
        return records

    def poll(self, timeout: float, most: int = 1000) -> list[tuple[str, bytes | None]]:
        """The records that have come since the last call, about `most`. Waits up to `timeout` seconds for the first."""
        consumer = self._consumer.get()
        first = consumer.poll(timeout)
        if first is None:
            if not self._answered and time.monotonic() >= self._doubt_at:
                self._doubt_at = time.monotonic() + _DOUBT
                self._brokers.refusals.doubt(self._topic)
            return []
        found = []
        for message in [first, *consumer.consume(most, 0)]:
            error, key = message.error(), message.key()
            if error is not None:
                if error.code() == KafkaError._PARTITION_EOF:
                    self._at_end = self._answered = True
                self._brokers.refusals.unread(error, self._topic, self._topic, joins=False)
                continue
            self._answered = True
            self._next = (message.offset() or 0) + 1
            if key is not None:
                found.append((_bytes(key).decode(errors="replace"), _bytes(message.value())))
        return found

    def close(self) -> None:
        """Close the consumer."""
        self._consumer.close()

    def _opened(self) -> Consumer:
        fixed = {"group.id": self._topic, "enable.auto.commit": False, "enable.partition.eof": True}
        consumer = self._brokers.consumer(self._what, fixed)
        consumer.assign([TopicPartition(self._topic, 0, self._next)])
        # Of a topic that it may not know of, a client says nothing; of any other, at least where it ends.
        self._answered, self._doubt_at = False, time.monotonic() + _FIRST_DOUBT
        return consumer


class OnePartitionWriter:
    """Writes records of such a topic; `what` names it in errors."""

    def __init__(self, brokers: Brokers, topic: str, what: str) -> None:
        self._brokers = brokers
        self._topic = topic
        self._what = what
        self._producer = Renewed(brokers, lambda: brokers.producer(what, {}, {"linger.ms": 0}), _flushed)
        # By record key, why the newest record was not written.
        self._refused: dict[str, KafkaError] = {}

    def put(self, key: str, value: bytes | None) -> None:
        """Write a record; delivered in the background, in order."""
        producer = self._producer.get()
        try:
            producer.produce(
                self._topic,
                key=key.encode(),
                value=value,
                partition=0,
                on_delivery=lambda error, _: self._delivered(key, error),
            )
        except KafkaException as error:
            # It knows already that it may not.
            self._delivered(key, error.args[0])
        try:
            producer.poll(0)
        except FATAL as error:
            raise self._failed(error) from None

    def flush(self, timeout: float = _TIMEOUT) -> None:
        """Wait until everything is written. Raises Unreachable if that takes too long, or if some of it was refused."""
        try:
            left = self._producer.get().flush(timeout)
        except FATAL as failure:
            raise self._failed(failure) from None
        if left > 0:
            late = self._brokers.why(f"no answer within {timeout:.0f} s")
            raise Unreachable(f"Kafka at {self._brokers} did not take the {self._what}: {late}")
        refused, self._refused = self._refused, {}
        if refused:
            key, error = next(iter(refused.items()))
            raise Unreachable(
                f"Kafka at {self._brokers} did not take the record {key!r} of the {self._what} topic {self._topic}: "
                f"{self._brokers.why(error)}. See whether the topic is there, and whether this user may write to it"
            )

    def _failed(self, error: Exception) -> Unreachable:
        self._producer.close()
        why = self._brokers.fatal(self._topic, error)
        return Unreachable(f"Kafka at {self._brokers} did not take the {self._what}: {why}")

    def _delivered(self, key: str, error: KafkaError | None) -> None:
        if error is None:
            self._refused.pop(key, None)
        else:
            self._refused[key] = error
            self._brokers.refusals.unwritten(error, self._topic)


def _flushed(producer: Producer) -> None:
    """Wait for what a producer has under way, before another takes its place."""
    with suppress(*FATAL):
        producer.flush(_TIMEOUT)


@overload
def _bytes(value: str | bytes) -> bytes: ...
@overload
def _bytes(value: str | bytes | None) -> bytes | None: ...
def _bytes(value: str | bytes | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value

"""Delivery: records that a materializer writes to Kafka, and waits for."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from tailrace.kafka.brokers import FATAL, Brokers, Renewed
from tailrace.kafka.topics import MOST

_TIMEOUT = 5.0
ANY = -1

Headers = list[tuple[str, bytes | None]]


@dataclass(frozen=True)
class Outgoing:
    """A record to write; to any partition if `partition` is None."""

    topic: str
    partition: int | None
    key: bytes | None
    value: bytes | None
    headers: Headers


class Delivery:
    """Writes records, and returns when the brokers have them."""

    def __init__(self, brokers: Brokers, what: str) -> None:
        self._brokers = brokers
        self._what = what
        self._error: KafkaError | str | None = None
        # Where the last record was to be written.
        self._topic = ""
        self._producer = Renewed(brokers, self._new_producer)

    def write(self, records: Iterable[Outgoing]) -> str | None:
        """Write records. Returns why some may not have been written, None if all were."""
        self._error = None
        producer = self._producer.get()
        for record in records:
            self._topic = record.topic
            self._put(producer, record)
        try:
            left = producer.flush(_TIMEOUT)
        except FATAL as error:
            self._producer.close()
            return self._brokers.fatal(self._topic, error)
        failed = left > 0 or self._error is not None
        if not failed:
            return None
        # An idempotent producer that has failed may refuse everything from then on.
        self._producer.close()
        return self._brokers.why(self._error or f"no answer within {_TIMEOUT:.0f} s")

    def _new_producer(self) -> Producer:
        # What was not delivered in time is given up: the caller tries again.
        return self._brokers.producer(
            self._what,
            {"delivery.timeout.ms": int(_TIMEOUT * 1000), "message.max.bytes": MOST},
            {"linger.ms": 1},
        )

    def _put(self, producer: Producer, record: Outgoing) -> None:
        for _ in range(2):
            try:
                producer.produce(
                    record.topic,
                    record.value,
                    key=record.key,
                    headers=record.headers,  # type: ignore[arg-type]
                    on_delivery=self._delivered,
                    partition=ANY if record.partition is None else record.partition,
                )
            except BufferError:
                producer.flush(_TIMEOUT)
                continue
            except KafkaException as error:
                self._error = error.args[0]
            return
        self._error = "its queue is full"

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._error = error
            self._brokers.refusals.unwritten(error, message.topic() or "")

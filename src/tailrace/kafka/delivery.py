"""Delivery: records that a materializer writes to Kafka, and waits for."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from tailrace.kafka.refresh import REFRESH
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

    def __init__(self, servers: str) -> None:
        self._servers = servers
        self._error: str | None = None
        self._producer: Producer | None = None

    def write(self, records: Iterable[Outgoing]) -> str | None:
        """Write records. Returns why some may not have been written, None if all were."""
        self._error = None
        producer = self._new_producer() if self._producer is None else self._producer
        for record in records:
            self._put(producer, record)
        left = producer.flush(_TIMEOUT)
        failed = left > 0 or self._error is not None
        # An idempotent producer that has failed may refuse everything from then on.
        self._producer = None if failed else producer
        return (self._error or f"no answer within {_TIMEOUT:.0f} s") if failed else None

    def _new_producer(self) -> Producer:
        # What was not delivered in time is given up: the caller tries again.
        return Producer(
            {
                "bootstrap.servers": self._servers,
                "partitioner": "murmur2_random",
                "acks": "all",
                "enable.idempotence": True,
                "linger.ms": 1,
                "message.timeout.ms": int(_TIMEOUT * 1000),
                "message.max.bytes": MOST,
                "log_level": 0,
                **REFRESH,
            }
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
                self._error = str(error.args[0])
            return
        self._error = "its queue is full"

    def _delivered(self, error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            self._error = error.str()

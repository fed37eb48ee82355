"""Additions: what a materializer itself writes to changelogs, beside the pipeline."""

from __future__ import annotations

from collections.abc import Iterable

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from tailrace.errors import Unreachable
from tailrace.kafka.changelogs import Partition
from tailrace.record import Change

_TIMEOUT = 5.0


class Additions:
    """Writes changes to the partition they belong to, and waits until the brokers have them."""

    def __init__(self, servers: str) -> None:
        self._servers = servers
        self._error: str | None = None
        self._producer: Producer | None = None

    def write(self, changes: Iterable[tuple[Partition, Change]]) -> None:
        """Write changes; raises Unreachable where any of them may not have been written."""
        self._error = None
        producer = self._new_producer() if self._producer is None else self._producer
        for (topic, partition), change in changes:
            self._put(producer, topic, partition, change)
        left = producer.flush(_TIMEOUT)
        failed = left > 0 or self._error is not None
        # An idempotent producer that has failed may refuse everything from then on.
        self._producer = None if failed else producer
        if failed:
            raise Unreachable(
                f"Kafka at {self._servers} did not take what was added to a changelog: "
                f"{self._error or f'no answer within {_TIMEOUT:.0f} s'}. See whether the brokers answer, and whether "
                "the materializer may write to changelog topics"
            )

    def _new_producer(self) -> Producer:
        # Each record names its partition, so no partitioner decides. What was not delivered in time is given up:
        # whoever asked for it asks again.
        return Producer(
            {
                "bootstrap.servers": self._servers,
                "acks": "all",
                "enable.idempotence": True,
                "linger.ms": 1,
                "message.timeout.ms": int(_TIMEOUT * 1000),
                "message.max.bytes": 8 * 1024 * 1024,
                "log_level": 0,
            }
        )

    def _put(self, producer: Producer, topic: str, partition: int, change: Change) -> None:
        for _ in range(2):
            try:
                producer.produce(
                    topic,
                    change.value,
                    key=change.key,
                    partition=partition,
                    headers=change.headers(),  # type: ignore[arg-type]
                    on_delivery=self._delivered,
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

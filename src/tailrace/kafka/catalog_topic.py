"""The catalog topic: read whole, followed, and written one record at a time."""

from __future__ import annotations

import time
from typing import overload

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Producer, TopicPartition

from tailrace.catalog import catalog_topic
from tailrace.errors import Unreachable
from tailrace.kafka.topics import Topics

_TIMEOUT = 15.0


class CatalogReader:
    """Follows the one partition of the catalog topic from its start."""

    def __init__(self, servers: str, topic: str) -> None:
        self._servers = servers
        self._consumer = Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": "tailrace.catalog",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "log_level": 0,
            }
        )
        self._at_end = False
        self._consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])

    def read_whole(self) -> dict[str, bytes]:
        """The newest value per record key, up to the end of the topic as it is now."""
        records: dict[str, bytes] = {}
        deadline = time.monotonic() + _TIMEOUT
        while not self._at_end:
            for key, value in self.poll(0.2):
                if value is None:
                    records.pop(key, None)
                else:
                    records[key] = value
            if time.monotonic() > deadline:
                raise Unreachable(f"Kafka at {self._servers} did not deliver the catalog topic within {_TIMEOUT:.0f} s")
        return records

    def poll(self, timeout: float) -> list[tuple[str, bytes | None]]:
        """The records that have come since the last call; waits up to `timeout` seconds for the first."""
        first = self._consumer.poll(timeout)
        if first is None:
            return []
        found = []
        for message in [first, *self._consumer.consume(1000, 0)]:
            error, key = message.error(), message.key()
            if error is not None:
                self._at_end |= error.code() == KafkaError._PARTITION_EOF
            elif key is not None:
                found.append((_bytes(key).decode(errors="replace"), _bytes(message.value())))
        return found

    def close(self) -> None:
        """Close the consumer."""
        self._consumer.close()


def read_records(servers: str, app: str, topics: Topics) -> dict[str, bytes]:
    """The newest value per record key of an app's catalog topic; nothing where there is no such topic."""
    name = catalog_topic(app)
    if not topics.describe([name]):
        return {}
    reader = CatalogReader(servers, name)
    try:
        return reader.read_whole()
    finally:
        reader.close()


class CatalogWriter:
    """Writes records of the catalog topic."""

    def __init__(self, servers: str, topic: str) -> None:
        self._servers = servers
        self._topic = topic
        self._producer = Producer(
            {"bootstrap.servers": servers, "enable.idempotence": True, "linger.ms": 0, "log_level": 0}
        )

    def put(self, key: str, value: bytes) -> None:
        """Write a record; delivered in the background, in order."""
        self._producer.produce(self._topic, key=key.encode(), value=value, partition=0)
        self._producer.poll(0)

    def flush(self, timeout: float = _TIMEOUT) -> None:
        """Wait until everything is written; raises Unreachable where that takes too long."""
        if self._producer.flush(timeout) > 0:
            raise Unreachable(f"Kafka at {self._servers} did not take the catalog within {timeout:.0f} s")


@overload
def _bytes(value: str | bytes) -> bytes: ...
@overload
def _bytes(value: str | bytes | None) -> bytes | None: ...
def _bytes(value: str | bytes | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value

"""A topic of one partition that is read from its start and followed: the catalog, and the commands."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import overload

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Producer, TopicPartition

from tailrace.errors import Unreachable
from tailrace.kafka.refresh import REFRESH

_TIMEOUT = 15.0


class OnePartitionReader:
    """Follows the one partition of a topic from its start; `what` names the topic in the group id and in errors.

    A topic that does not exist yet has no records; it is followed some seconds after it is made. When the topic is read
    whole, `usable` says whether a value can replace the one before it.
    """

    def __init__(self, servers: str, topic: str, what: str, usable: Callable[[str, bytes], bool] | None = None) -> None:
        self._servers = servers
        self._what = what
        self._usable = usable
        self._consumer = Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": f"tailrace.{what}",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                **REFRESH,
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
                elif key not in records or self._usable is None or self._usable(key, value):
                    records[key] = value
            if time.monotonic() > deadline:
                raise Unreachable(
                    f"Kafka at {self._servers} did not deliver the {self._what} topic within {_TIMEOUT:.0f} s"
                )
        return records

    def poll(self, timeout: float, most: int = 1000) -> list[tuple[str, bytes | None]]:
        """The records that have come since the last call, about `most`. Waits up to `timeout` seconds for the first."""
        first = self._consumer.poll(timeout)
        if first is None:
            return []
        found = []
        for message in [first, *self._consumer.consume(most, 0)]:
            error, key = message.error(), message.key()
            if error is not None:
                self._at_end |= error.code() == KafkaError._PARTITION_EOF
            elif key is not None:
                found.append((_bytes(key).decode(errors="replace"), _bytes(message.value())))
        return found

    def close(self) -> None:
        """Close the consumer."""
        self._consumer.close()


class OnePartitionWriter:
    """Writes records of such a topic; `what` names it in errors."""

    def __init__(self, servers: str, topic: str, what: str) -> None:
        self._servers = servers
        self._topic = topic
        self._what = what
        self._producer = Producer(
            {"bootstrap.servers": servers, "enable.idempotence": True, "linger.ms": 0, "log_level": 0, **REFRESH}
        )
        # By record key, why the newest record was not written.
        self._refused: dict[str, KafkaError] = {}

    def put(self, key: str, value: bytes | None) -> None:
        """Write a record; delivered in the background, in order."""
        self._producer.produce(
            self._topic,
            key=key.encode(),
            value=value,
            partition=0,
            on_delivery=lambda error, _: self._delivered(key, error),
        )
        self._producer.poll(0)

    def flush(self, timeout: float = _TIMEOUT) -> None:
        """Wait until everything is written. Raises Unreachable if that takes too long, or if some of it was refused."""
        if self._producer.flush(timeout) > 0:
            raise Unreachable(f"Kafka at {self._servers} did not take the {self._what} within {timeout:.0f} s")
        refused, self._refused = self._refused, {}
        if refused:
            key, error = next(iter(refused.items()))
            raise Unreachable(
                f"Kafka at {self._servers} did not take the record {key!r} of the {self._what} topic {self._topic}: "
                f"{error.str()}. See whether the topic is there, and whether this user may write to it"
            )

    def _delivered(self, key: str, error: KafkaError | None) -> None:
        if error is None:
            self._refused.pop(key, None)
        else:
            self._refused[key] = error


@overload
def _bytes(value: str | bytes) -> bytes: ...
@overload
def _bytes(value: str | bytes | None) -> bytes | None: ...
def _bytes(value: str | bytes | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value

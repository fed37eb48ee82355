"""The ends of topics, to tell whether a reader has reached them."""

from __future__ import annotations

import threading

from confluent_kafka import Consumer, KafkaException, TopicPartition

from tailrace.errors import Unreachable
from tailrace.kafka.complaints import complaints

_TIMEOUT = 5.0


class Ends:
    """Asks Kafka where partitions end. Opens nothing before its first use; any thread may ask."""

    def __init__(self, servers: str) -> None:
        self._servers = servers
        self._consumer: Consumer | None = None
        self._lock = threading.Lock()

    def end(self, topic: str, partition: int) -> int:
        """The offset that the next record of a partition gets. Raises Unreachable if Kafka does not answer."""
        if not self._servers:
            raise Unreachable("this process has no address of Kafka: see --kafka")
        with self._lock:
            if self._consumer is None:
                self._consumer = Consumer(
                    {
                        "bootstrap.servers": self._servers,
                        "group.id": "tailrace.gateway",
                        "log_level": 0,
                        "error_cb": complaints("ends"),
                    }
                )
            try:
                found = self._consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=_TIMEOUT)
            except KafkaException as error:
                raise Unreachable(f"Kafka at {self._servers}: {error.args[0].str()}") from None
        if found is None:
            raise Unreachable(f"Kafka at {self._servers} did not say within {_TIMEOUT:.0f} s where {topic} ends")
        return found[1]

    def close(self) -> None:
        """Close the connection."""
        with self._lock:
            if self._consumer is not None:
                self._consumer.close()
                self._consumer = None

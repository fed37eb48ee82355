"""The ends of topics, to tell whether a reader has reached them."""

from __future__ import annotations

import threading

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from tailrace.errors import Unreachable
from tailrace.kafka.brokers import Brokers, Renewed
from tailrace.kafka.topics import Topics

_TIMEOUT = 5.0


class Ends:
    """Asks Kafka where partitions end. Opens nothing before its first use; any thread may ask.

    Nobody joins the `group`; Kafka's client wants one.
    """

    def __init__(self, brokers: Brokers, group: str) -> None:
        self._brokers = brokers
        self._consumer = Renewed(brokers, lambda: brokers.consumer("ends", {"group.id": group}), Consumer.close)
        self._lock = threading.Lock()

    def end(self, topic: str, partition: int) -> int:
        """The offset that the next record of a partition gets. Raises Unreachable if Kafka does not answer."""
        if not self._brokers:
            raise Unreachable("this process has no address of Kafka: see --kafka")
        with self._lock:
            try:
                found = self._consumer.get().get_watermark_offsets(TopicPartition(topic, partition), timeout=_TIMEOUT)
            except KafkaException as error:
                if error.args[0].code() == KafkaError._UNKNOWN_PARTITION:
                    # A client says so, too, of a topic that it may not look up. Then this raises what is true.
                    Topics(self._brokers, timeout=_TIMEOUT).describe([topic])
                raise Unreachable(f"Kafka at {self._brokers}: {self._brokers.why(error.args[0])}") from None
        if found is None:
            raise Unreachable(f"Kafka at {self._brokers} did not say within {_TIMEOUT:.0f} s where {topic} ends")
        return found[1]

    def close(self) -> None:
        """Close the connection."""
        with self._lock:
            self._consumer.close()

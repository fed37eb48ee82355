"""The generations in a changelog: all that is known of its builds if the catalog is lost."""

from __future__ import annotations

import time

from confluent_kafka import Consumer, KafkaException, TopicPartition

from tailrace.kafka.brokers import Brokers
from tailrace.kafka.config.reasons import RIGHTS

_TIMEOUT = 15.0
# A build writes to all partitions and replays at most its open batch, so the latest is among the last records.
_LAST = 1000


def highest_generation(brokers: Brokers, topic: str, partitions: int, group: str) -> int:
    """The highest generation among the last records of a changelog; 0 if it holds none. Nobody joins the `group`."""
    consumer = brokers.consumer("generations", {"group.id": group, "enable.auto.commit": False})
    try:
        return max((_highest(consumer, TopicPartition(topic, number)) for number in range(partitions)), default=0)
    except KafkaException as error:
        raise brokers.unreachable(error, f", topic {topic}", "allow Read on it") from None
    finally:
        consumer.close()


def _highest(consumer: Consumer, partition: TopicPartition) -> int:
    first, end = consumer.get_watermark_offsets(partition, timeout=_TIMEOUT)
    if first >= end:
        return 0
    highest, deadline = 0, time.monotonic() + _TIMEOUT
    consumer.assign([TopicPartition(partition.topic, partition.partition, max(first, end - _LAST))])
    while time.monotonic() < deadline:
        for message in consumer.consume(_LAST, 0.2):
            if (error := message.error()) is None:
                highest = max(highest, _generation(message.headers() or []))
            elif error.code() in RIGHTS:
                raise KafkaException(error)
        # Compaction leaves gaps, also at the end; the position moves past them.
        at = consumer.position([partition])[0].offset
        if at >= end:
            break
    consumer.unassign()
    return highest


def _generation(headers: object) -> int:
    text = dict(headers).get("g") if isinstance(headers, list) else None
    return int(text) if isinstance(text, bytes) and text.isdigit() and len(text) < 19 else 0

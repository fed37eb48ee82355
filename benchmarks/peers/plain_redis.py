"""Kafka → Redis as a team would write it by hand: a consumer, and a pipeline of HSET and PUBLISH per batch.

Usage: plain_redis.py KAFKA REDIS TOPIC PREFIX PARTITIONS rows|events

It keeps the newest record by arrival: no versions, no comparison, nothing that finds a Redis that was lost. How far it
is goes into the same pipeline, so that a restart could go on where it was. With `events`, it keeps every record of a
key: XADD to a stream of the key, of about 10,000 entries at most, and PUBLISH.
"""

from __future__ import annotations

import signal
import sys
import threading

import redis
from confluent_kafka import Consumer, TopicPartition

BATCH = 5000
LENGTH = 10_000


def main() -> int:
    """Copy until SIGTERM."""
    kafka, url, topic, prefix, partitions, what = sys.argv[1:]
    stopping = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    client = redis.Redis.from_url(url)
    consumer = Consumer(
        {
            "bootstrap.servers": kafka,
            "group.id": f"plain.{prefix}",
            "enable.auto.commit": False,
            "fetch.message.max.bytes": 8 * 1024 * 1024,
            "fetch.queue.backoff.ms": 10,
            "log_level": 0,
        }
    )
    rows = [f"{prefix}:{number}:rows" for number in range(int(partitions))]
    channels = [f"{prefix}:{number}:".encode() for number in range(int(partitions))]
    consumer.assign([TopicPartition(topic, number, 0) for number in range(int(partitions))])
    while not stopping.is_set():
        messages = [message for message in consumer.consume(BATCH, 0.1) if message.error() is None]
        if not messages:
            continue
        pipeline = client.pipeline(transaction=False)
        offsets: dict[int, int] = {}
        for message in messages:
            number, key, value = message.partition() or 0, bytes(message.key() or b""), bytes(message.value() or b"")
            if what == "events":
                pipeline.xadd(channels[number] + key, {"e": value}, maxlen=LENGTH, approximate=True)
            elif value:
                pipeline.hset(rows[number], key, value)
            else:
                pipeline.hdel(rows[number], key)
            pipeline.publish(channels[number] + key, value)
            offsets[number] = message.offset() or 0
        for number, offset in offsets.items():
            pipeline.hset(f"{prefix}:{number}:position", "offset", str(offset))
        pipeline.execute()
    consumer.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())

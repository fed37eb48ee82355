"""Changelogs for the benchmark of the materializer: filled before anything is measured, and read by every contender."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass

from confluent_kafka import Producer

from tailrace.catalog import APP_RECORD, Catalog, CatalogView, Column, catalog_topic
from tailrace.kafka.catalog_topic import CatalogWriter
from tailrace.kafka.topics import COMPACTED, Topics

PARTITIONS = 4
_KEY = (Column("movie_id", "bigint"),)


@dataclass(frozen=True)
class Load:
    """An app of one view, whose changelog holds `records` changes of `keys` keys."""

    app: str
    changelog: str
    records: int
    keys: int

    @property
    def prefix(self) -> str:
        """The prefix of its keys in Redis."""
        return f"tailrace:{self.app}"


def load(kafka: str, app: str, records: int, keys: int) -> Load:
    """Fill a changelog with rows of about 150 bytes; where there are as many keys as records, each comes once."""
    topics, name = Topics(kafka), f"{app}-ratings"
    topics.create(catalog_topic(app), partitions=1, replication=1, config=COMPACTED)
    topics.create(name, partitions=PARTITIONS, replication=1, config=COMPACTED)
    topic_id = topics.describe([name])[name].id
    catalog = Catalog(app, {name: CatalogView(name, name, topic_id, PARTITIONS, 1, _KEY, (), {})})
    writer = CatalogWriter(kafka, catalog_topic(app))
    writer.put(APP_RECORD, catalog.encode())
    writer.flush()
    _fill(kafka, name, records, keys)
    return Load(app, name, records, keys)


def _fill(kafka: str, topic: str, records: int, keys: int) -> None:
    producer = Producer(
        {
            "bootstrap.servers": kafka,
            "partitioner": "murmur2",
            "linger.ms": 20,
            "batch.size": 512 * 1024,
            "queue.buffering.max.messages": 500_000,
            "log_level": 0,
        }
    )
    chance, versions, now = random.Random(7), [0] * keys, b"%d" % int(time.time() * 1000)
    for number in range(records):
        key = number if keys == records else chance.randrange(keys)
        versions[key] += 1
        value = b'{"movie_id":%d,"rating":%.12f,"ratings":%d,"title":"%s","updated":"2026-01-31T12:00:00.000Z"}' % (
            key,
            chance.random() * 10,
            versions[key],
            b"x" * 48,
        )
        headers = [("g", b"1"), ("v", b"%d" % versions[key]), ("t", now)]
        while True:
            try:
                producer.produce(topic, value, key=b"%d" % key, headers=headers)  # type: ignore[arg-type]
                break
            except BufferError:
                producer.poll(0.1)
        if number % 10_000 == 0:
            producer.poll(0)
    if producer.flush(120) > 0:
        raise TimeoutError(f"Kafka at {kafka} did not take {records:,} records within 120 s")

"""Changelogs for the benchmark of the materializer: filled before anything is measured, and read by every contender."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from confluent_kafka import Producer

from tailrace.contracts.catalog import APP_RECORD, Catalog, CatalogFeed, CatalogView, Column, catalog_topic
from tailrace.kafka.brokers import Brokers
from tailrace.kafka.catalog_topic import CatalogWriter
from tailrace.kafka.topics import COMPACTED, EVENTS, Topics

PARTITIONS = 4
_KEY = (Column("movie_id", "bigint"),)
# Key, value and headers.
Record = tuple[bytes, bytes, list[tuple[str, bytes]]]


@dataclass(frozen=True)
class Load:
    """An app of one view or feed, whose changelog holds `records` records of `keys` keys."""

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
    name = f"{app}-ratings"
    topic_id = _create(kafka, app, name, COMPACTED)
    _write_catalog(kafka, Catalog(app, {name: CatalogView(name, name, topic_id, PARTITIONS, 1, _KEY, (), {})}))
    chance, versions, now = random.Random(7), [0] * keys, b"%d" % int(time.time() * 1000)

    def record(number: int) -> Record:
        key = number if keys == records else chance.randrange(keys)
        versions[key] += 1
        return b"%d" % key, _value(key, chance.random(), versions[key]), _headers(versions[key], now)

    _fill(kafka, name, records, record)
    return Load(app, name, records, keys)


def load_feed(kafka: str, app: str, records: int, clients: int) -> Load:
    """Fill the changelog of a feed that keeps its events for every client, with events of about 150 bytes."""
    name = f"{app}-notices"
    topic_id = _create(kafka, app, name, EVENTS)
    feed = CatalogFeed(name, name, topic_id, PARTITIONS, 1, _KEY, (), {}, retain="always", ordered=True)
    _write_catalog(kafka, Catalog(app, {}, {name: feed}))
    chance, now = random.Random(7), b"%d" % int(time.time() * 1000)

    def record(number: int) -> Record:
        client = chance.randrange(clients)
        headers = [*_headers(number + 1, now), ("p", b"0"), ("s", b"notices")]
        return b"%d" % client, _value(client, chance.random(), number), headers

    _fill(kafka, name, records, record)
    return Load(app, name, records, clients)


def _create(kafka: str, app: str, changelog: str, config: Mapping[str, str]) -> str:
    topics = Topics(Brokers(kafka))
    topics.create(catalog_topic(app), partitions=1, replication=1, config=COMPACTED)
    topics.create(changelog, partitions=PARTITIONS, replication=1, config=config)
    return topics.describe([changelog])[changelog].id


def _write_catalog(kafka: str, catalog: Catalog) -> None:
    writer = CatalogWriter(Brokers(kafka), catalog_topic(catalog.app))
    writer.put(APP_RECORD, catalog.encode())
    writer.flush()


def _value(key: int, rating: float, count: int) -> bytes:
    return b'{"movie_id":%d,"rating":%.12f,"ratings":%d,"title":"%s","updated":"2026-01-31T12:00:00.000Z"}' % (
        key,
        rating * 10,
        count,
        b"x" * 48,
    )


def _headers(version: int, now: bytes) -> list[tuple[str, bytes]]:
    return [("g", b"1"), ("v", b"%d" % version), ("t", now)]


def _fill(kafka: str, topic: str, records: int, record: Callable[[int], Record]) -> None:
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
    for number in range(records):
        key, value, headers = record(number)
        while True:
            try:
                producer.produce(topic, value, key=key, headers=headers)  # type: ignore[arg-type]
                break
            except BufferError:
                producer.poll(0.1)
        if number % 10_000 == 0:
            producer.poll(0)
    if producer.flush(120) > 0:
        raise TimeoutError(f"Kafka at {kafka} did not take {records:,} records within 120 s")

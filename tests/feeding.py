"""A feed whose changelog the test writes itself, and a plain version of the gateway's side of it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, cast

import redis
from confluent_kafka import Producer

from tailrace.contracts.catalog import APP_RECORD, Catalog, CatalogFeed, Column, catalog_topic
from tailrace.contracts.event import FeedEvent
from tailrace.dev.broker import Broker
from tailrace.kafka.brokers import Brokers
from tailrace.kafka.catalog_topic import CatalogWriter
from tailrace.kafka.topics import COMPACTED, EVENTS, Topics
from tailrace.store.connection.servers import AsyncServers
from tailrace.store.layout.feed_keys import FeedKeys, FeedPlace, feed_keys
from tailrace.store.layout.row import unpack
from tailrace.store.layout.stored_position import FIELDS, read_position
from tailrace.store.read.feed_histories import FeedHistories, Page, Registration


class FeedLog:
    """An app with one feed of one partition, its changelog and its catalog written by hand."""

    def __init__(self, broker: Broker, fresh: str, **declared: Any) -> None:
        self.app, self.feed, self.prefix = f"app-{fresh}", f"feed-{fresh}", f"test:{fresh}"
        self.broker = broker
        self._producer = Producer({"bootstrap.servers": broker.address, "message.max.bytes": 8 * 1024 * 1024})
        topics = Topics(Brokers(broker.address))
        topics.create(catalog_topic(self.app), partitions=1, replication=1, config=COMPACTED)
        topics.create(self.feed, partitions=1, replication=1, config=EVENTS)
        topic_id = topics.describe([self.feed])[self.feed].id
        self._catalogs = CatalogWriter(Brokers(broker.address), catalog_topic(self.app))
        entry = CatalogFeed(self.feed, self.feed, topic_id, 1, 1, (Column("client", "string"),), (), {}, ordered=True)
        self.entry = replace(entry, **{"hold": 600.0, **declared})
        self._versions: dict[tuple[str, int], int] = {}
        self.name()

    def name(self, **declared: Any) -> None:
        """Write a catalog that declares the feed with these settings."""
        self.entry = replace(self.entry, **declared)
        self._catalogs.put(APP_RECORD, Catalog(self.app, {}, {self.feed: self.entry}).encode())
        self._catalogs.flush()

    @property
    def place(self) -> FeedPlace:
        """Its partition."""
        return FeedPlace(self.entry, 0, Catalog(self.app, {}).lineage(self.entry))

    @property
    def keys(self) -> FeedKeys:
        """The Redis keys of its partition."""
        return feed_keys(self.prefix, self.feed, 0)

    def put(
        self, client: bytes, value: bytes, *, partition: int = 0, origin: str = "s", version: int | None = None
    ) -> None:
        """Write the next event of a source partition, or one of a version, and wait until the broker has it."""
        found = self._versions.get((origin, partition), 0) + 1 if version is None else version
        self._versions[origin, partition] = max(found, self._versions.get((origin, partition), 0))
        event = FeedEvent(client, value, self.entry.generation, found, 0, -1, b"%b:%d" % (origin.encode(), partition))
        self.put_raw(client, value, event.headers())

    def put_raw(self, key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes]]) -> None:
        """Write any record."""
        self._producer.produce(self.feed, value, key=key, headers=headers, partition=0)  # type: ignore[arg-type]
        assert self._producer.flush(30) == 0

    def stored(self, url: str) -> int | None:
        """The offset that Redis has stored."""
        client = redis.Redis.from_url(url)
        try:
            found = cast(list[Any], client.hmget(cast(str, self.keys.position), FIELDS))
            return read_position(found, self.place.lineage).offset
        finally:
            client.close()

    def kept(self, url: str) -> dict[bytes, list[bytes | None]]:
        """The values of all events that Redis keeps, by client, for every client."""
        client = redis.Redis.from_url(url)
        try:
            begun = cast(bytes, client.hget(cast(str, self.keys.position), "history") or b"")
            stem = self.keys.history(begun.decode(), b"")
            found: dict[bytes, list[bytes | None]] = {}
            for name in cast(list[bytes], client.keys(stem + b"*")):
                entries = cast(list[Any], client.xrange(cast(str, name)))
                found[name.removeprefix(stem)] = [unpack(fields[b"e"]).value for _, fields in entries]
            return found
        finally:
            client.close()


class Gateway:
    """The store as a gateway uses it, one call at a time."""

    def __init__(self, log: FeedLog, url: str, name: str, lease: float) -> None:
        self._log = log
        self._runner = asyncio.Runner()
        self._servers = AsyncServers(url)
        self._listening = FeedHistories(self._servers, log.prefix, name, lease=lease)

    def listen(self, client: bytes) -> Registration:
        """See `FeedHistories.listen`."""
        return self._runner.run(self._listening.listen(self._log.place, client))

    def leave(self, client: bytes) -> Registration:
        """See `FeedHistories.leave`."""
        return self._runner.run(self._listening.leave(self._log.place, client))

    def page(self, client: bytes, after: int) -> Page | None:
        """See `FeedHistories.events`."""
        return self._runner.run(self._listening.events(self._log.place, client, after))

    def events(self, client: bytes, after: int = -1) -> list[bytes | None] | None:
        """The values of the events of a client after an offset; None if it must register first."""
        page = self.page(client, after)
        return None if page is None else [row.value for row in page.events]

    def close(self) -> None:
        self._runner.run(self._servers.close())
        self._runner.close()


@contextmanager
def gateway(log: FeedLog, url: str, name: str = "g1", *, lease: float = 3600.0) -> Iterator[Gateway]:
    """A gateway's side of a feed. Registrations last long, so that no test waits for a refresh."""
    found = Gateway(log, url, name, lease)
    yield found
    found.close()

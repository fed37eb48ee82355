"""A feed in Redis that the test fills itself, as a materializer would, for gateways that serve it."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any, cast

import redis

from tailrace.contracts.catalog import APP_RECORD, Catalog, CatalogFeed, Column
from tailrace.contracts.event import FeedEvent
from tailrace.contracts.position import Position
from tailrace.store.layout.feed_keys import FeedKeys, FeedPlace, feed_keys
from tailrace.store.layout.keys import default_prefix
from tailrace.store.layout.packed_events import pack_events
from tailrace.store.layout.row import StoredRow
from tailrace.store.write.feeds import Beginning, Feeds, Taken
from tailrace.store.write.writer import StoreWriter

FEED = "notices"


class FeedStore:
    """An app with one feed of one partition; each event that is put is the next record of its changelog."""

    def __init__(self, url: str, app: str, **declared: Any) -> None:
        self.url, self.app = url, app
        self.redis = redis.Redis.from_url(url)
        self._writer = StoreWriter(url, default_prefix(app))
        self._feeds = Feeds(self._writer)
        entry = CatalogFeed(FEED, FEED, "topic", 1, 1, (Column("client", "string"),), (), {}, ordered=True)
        self.entry = replace(entry, **{"hold": 600.0, **declared})
        self.offset = -1
        self.begun = ""

    @property
    def keys(self) -> FeedKeys:
        """The Redis keys of its partition."""
        return feed_keys(default_prefix(self.app), FEED, 0)

    @property
    def place(self) -> FeedPlace:
        """Its partition."""
        return FeedPlace(self.entry, 0, Catalog(self.app, {}).lineage(self.entry))

    def declare(self, *, removed: bool = False, **declared: Any) -> None:
        """Write a catalog that declares the feed with these settings, or not at all."""
        self.entry = replace(self.entry, **declared)
        feeds = {} if removed else {FEED: self.entry}
        self._writer.put_catalog(APP_RECORD, Catalog(self.app, {}, feeds).encode())

    def begin(self, start: int = 0, since: int = -1, target: int = -1) -> None:
        """Begin the partition anew: it is read from `start`, keeps what is after `since`, and is whole at `target`."""
        found = self._feeds.begin(self.place, Beginning(0, start, since, target), anew=True)
        self.offset, self.begun = found.offset, found.begun

    def put(self, client: str, *values: str) -> int:
        """Put the next events of a client, in one batch; returns the offset of the last one."""
        first = self.offset + 1
        now = int(time.time() * 1000)
        events = [
            FeedEvent(client.encode(), f'{{"text":"{value}"}}'.encode(), self.entry.generation, n + 1, now, n, b"s:0")
            for n, value in enumerate(values, first)
        ]
        packed = pack_events(events, ordered=self.entry.ordered)
        taken = self._feeds.apply(
            self.place, self.begun, self.offset, self.offset + len(values), packed, {events[0].client}
        )
        assert isinstance(taken, Taken) and taken.new == len(values), taken
        self.offset += len(values)
        return self.offset

    def put_unheard(self, client: str, value: str) -> int:
        """Put an event without publishing it: for a gateway, a message was lost on the way."""
        self.offset += 1
        row = StoredRow(self.entry.generation, self.offset + 1, self.offset, 0, f'{{"text":"{value}"}}'.encode())
        history = self.keys.history(self.begun, client.encode())
        pipeline = self.redis.pipeline(transaction=True)
        pipeline.xadd(cast(str, history), {"e": cast(str, row.pack())}, id=f"{self.offset}-{self.offset + 1}")
        pipeline.hset(cast(str, self.keys.position), "offset", self.offset)
        pipeline.execute()
        return self.offset

    def pass_by(self, records: int = 1) -> None:
        """Put records of other clients."""
        self.put("somebody else", *["-"] * records)

    def position(self, offset: int, generation: int = 1) -> str:
        """The position of a client that has seen everything up to an offset."""
        return str(Position(self.place.lineage, generation, {0: offset} if offset >= 0 else {}))

    def sweep(self) -> None:
        """Drop what has lapsed, as a materializer does every second."""
        while self._feeds.lapse(self.place, self.begun):
            pass

    def listening(self) -> set[bytes]:
        """The registrations; some of them may have expired."""
        return set(cast(list[bytes], self.redis.zrange(self.keys.listening, 0, -1)))

    def held(self) -> set[bytes]:
        """All Redis keys of the feed that are about clients."""
        keys = self.keys
        whole = {keys.position, keys.marks, keys.times, keys.taken}
        stem = keys.position.removesuffix(b"position")
        return set(cast(list[bytes], self.redis.keys(stem + b"*"))) - whole


def begun(store: FeedStore) -> FeedStore:
    """A feed that is declared, and whose partition has begun."""
    store.declare()
    store.begin()
    return store

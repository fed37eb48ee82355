"""What stands around the gateway of `fanout`: rows and events in Redis, as a materializer writes them.

This is all that the benchmark knows of how the store is written. The gateway that it measures is a process, and its
clients ask over HTTP: for a key by its number, for the rows in which this key stands, or for the events of the client
with this name. Rows that are written together reach the gateway together, whatever is followed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Protocol

from fanout_figures import FEED, KEY, QUERY
from tailrace.contracts.catalog import APP_RECORD, Catalog, CatalogFeed, CatalogView, Column
from tailrace.contracts.commands import commands_topic
from tailrace.contracts.event import FeedEvent
from tailrace.contracts.record import Change
from tailrace.errors import PartDied
from tailrace.kafka.brokers import Brokers
from tailrace.kafka.topics import COMMANDS, Topics
from tailrace.queries import parse
from tailrace.store.layout import message
from tailrace.store.layout.feed_keys import FeedPlace
from tailrace.store.layout.keys import default_prefix
from tailrace.store.layout.packed import pack
from tailrace.store.layout.packed_events import pack_events
from tailrace.store.write.feeds import Beginning, FeedParcel, Feeds, Taken
from tailrace.store.write.match_writer import SETTLED, BelievedPartition, Matched, MatchWriter, Outcome
from tailrace.store.write.writer import Applied, Parcel, StoreWriter
from under_load import row

# The view, the feed, and the query of a key.
ROWS, EVENTS, WHERE = "rows", "events", "key = {key}"

_KEY, _ID = Column("key", "bigint"), Column("id", "bigint")
_COLUMNS = (Column("n", "bigint"), Column("t", "bigint"), Column("text", "string"))
_BY_KEY = CatalogView(ROWS, ROWS, "fanout", 1, 1, (_KEY,), _COLUMNS, {})
_BY_ID = CatalogView(ROWS, ROWS, "fanout", 1, 1, (_ID,), (_KEY, *_COLUMNS), {})
_FEED = CatalogFeed(EVENTS, EVENTS, "fanout", 1, 1, (_KEY,), _COLUMNS, {}, hold=600.0, ordered=True)
# Rows that match a query: more than are under way at once.
_MEMBERS = 1000
# Longer than a trial takes, in ms.
_LASTS = 3_600_000


class Store(Protocol):
    """What clients of an app follow, on one partition."""

    def publish(self, numbers: Sequence[int]) -> None:
        """Write a row of each number for every key; raises PartDied where Redis does not take it."""


class KeyStore:
    """Rows of a view, which clients follow by their keys: a script call per number, in one round trip."""

    def __init__(self, redis: str, app: str, keys: int) -> None:
        self._keys = keys
        catalog = Catalog(app, {ROWS: _BY_KEY})
        self._lineage = catalog.lineage(_BY_KEY)
        self._writer = _writer(redis, catalog)
        self._offset = self._writer.begin(ROWS, 0, self._lineage, -1, generation=1).offset

    def publish(self, numbers: Sequence[int]) -> None:
        """As `Store`."""
        parcels, at = [], time.time_ns()
        for number in numbers:
            first = self._offset + 1
            changes = [
                Change(b"%d" % key, row(number, key, at), 1, number, at // 1_000_000, first + key)
                for key in range(self._keys)
            ]
            reached = self._offset + self._keys
            parcels.append(Parcel(ROWS, 0, self._lineage, self._offset, reached, pack(changes)))
            self._offset = reached
        _expect(self._writer.apply_all(parcels), Applied)


class QueryStore:
    """Rows of a view that clients follow by queries, one for the rows of each key: a script call for all numbers.

    A query has only the newest of the rows with one id that come together, so each number's rows have ids of their own.
    """

    def __init__(self, redis: str, app: str, keys: int) -> None:
        self._keys = keys
        catalog = Catalog(app, {ROWS: _BY_ID})
        self._lineage = catalog.lineage(_BY_ID)
        writer = _writer(redis, catalog)
        self._offset = writer.begin(ROWS, 0, self._lineage, -1, generation=1).offset
        self._matches = MatchWriter(writer)
        self._queries = [parse(WHERE.format(key=key), (*_BY_ID.key, *_BY_ID.columns)).digest for key in range(keys)]
        now = int(time.time() * 1000)
        self._expires = dict.fromkeys(self._queries, now + _LASTS)
        # There are no rows yet, so nothing is to be looked at before the queries are complete.
        self._matches.enlist(self._place(), dict.fromkeys(self._queries, (False, now + _LASTS)), now)
        if lost := self._matches.settle(self._place(), self._queries, now):
            raise PartDied(f"expected Redis to take the queries, got {lost}")

    def publish(self, numbers: Sequence[int]) -> None:
        """As `Store`."""
        at, reached = time.time_ns(), self._offset
        changes: list[Change] = []
        events: list[message.QueryEvent] = []
        matched: dict[str, list[int]] = {query: [] for query in self._queries}
        for number in numbers:
            for key, query in enumerate(self._queries):
                reached += 1
                id, value, ms = b"%d" % (number % _MEMBERS * self._keys + key), row(number, key, at), at // 1_000_000
                changes.append(Change(id, value, 1, number, ms, reached))
                events.append(message.QueryEvent(message.ROW, id, 1, number, reached, ms, value))
                matched[query].append(len(events))
        outcome = Outcome(events, matched, dict.fromkeys(self._queries, SETTLED), self._expires)
        _expect([self._matches.apply(self._place(), reached, changes, outcome)], Matched)
        self._offset = reached

    def _place(self) -> BelievedPartition:
        return BelievedPartition(ROWS, 0, self._lineage, self._offset, 1)


class FeedStore:
    """Events of a feed, whose clients are named by the keys: a script call per number, in one round trip."""

    def __init__(self, redis: str, app: str, keys: int) -> None:
        self._keys = keys
        catalog = Catalog(app, {}, {EVENTS: _FEED})
        self._feeds = Feeds(_writer(redis, catalog))
        self._place = FeedPlace(_FEED, 0, catalog.lineage(_FEED))
        begun = self._feeds.begin(self._place, Beginning(first=0, start=0, since=-1, target=-1))
        self._begun, self._offset = begun.begun, begun.offset

    def publish(self, numbers: Sequence[int]) -> None:
        """As `Store`."""
        parcels, at = [], time.time_ns()
        for number in numbers:
            events = [_event(number, key, at, self._offset + 1 + key) for key in range(self._keys)]
            reached = self._offset + self._keys
            parcels.append(FeedParcel(self._place, self._begun, self._offset, reached, pack_events(events)))
            self._offset = reached
        _expect(self._feeds.apply_all(parcels), Taken)


# By what is followed.
STORES: dict[str, Callable[[str, str, int], Store]] = {KEY: KeyStore, QUERY: QueryStore, FEED: FeedStore}


def create_commands_topic(kafka: str, app: str) -> None:
    """Create the topic that a gateway asks for queries on, as a pipeline does."""
    Topics(Brokers(kafka)).create(commands_topic(app), partitions=1, replication=1, config=COMMANDS)


def _writer(redis: str, catalog: Catalog) -> StoreWriter:
    writer = StoreWriter(redis, default_prefix(catalog.app))
    writer.put_catalog(APP_RECORD, catalog.encode())
    return writer


def _event(number: int, key: int, at: int, offset: int) -> FeedEvent:
    return FeedEvent(b"%d" % key, row(number, key, at), 1, offset + 1, at // 1_000_000, offset, b"fanout:0")


def _expect(found: Sequence[object], taken: type) -> None:
    for one in found:
        if not isinstance(one, taken):
            raise PartDied(f"expected Redis to take the rows, got {one}")

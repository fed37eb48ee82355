"""The materializer's side of feeds in the store: atomic batches of events, and what is dropped when nobody listens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

from tailrace.catalog import CatalogFeed
from tailrace.event import Event
from tailrace.store.feed_keys import FeedKeys, feed_keys
from tailrace.store.writer import Moved, Writer, moved

# Of a feed that is not ordered, so many events of a partition are remembered by what they are.
REMEMBERED = 50_000

_LAPSED = 500


@dataclass(frozen=True, slots=True)
class FeedPlace:
    """One partition of a feed, as the catalog names it."""

    feed: CatalogFeed
    partition: int
    lineage: str


@dataclass(frozen=True, slots=True)
class FeedBegun:
    """What the store holds of a partition: up to which offset, and the name of its history.

    It may be read after `wait` seconds. `lost` records are gone from the changelog that the store has never seen.
    """

    offset: int
    begun: str
    wait: float
    lost: int


@dataclass(frozen=True, slots=True)
class Taken:
    """The batch is in the store: `new` of its events were no replays, `kept` of them are there to be read."""

    new: int
    kept: int


@dataclass(frozen=True, slots=True)
class Beginning:
    """Where a partition without a position is to begin.

    `start` is the first offset to read, `since` the offset after which events are kept; `first` and `target` are the
    first and the last offset of the changelog. Listeners have `grace` seconds to register before it is read.
    """

    first: int
    start: int
    since: int
    target: int
    grace: float = 0.0


class Feeds:
    """Writes events to Redis. Every method raises Unavailable when it fails, and is safe to repeat."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._begin = writer.script("begin_feed")
        self._feed = writer.script("feed")
        self._lapsed = writer.script("lapsed")
        self._lapse = writer.script("lapse")

    def begin(self, place: FeedPlace, at: Beginning, *, anew: bool = False) -> FeedBegun:
        """What the store holds of a partition, after emptying one of another lineage, or any if `anew`."""
        keys = self._keys(place)
        names = [keys.position, keys.marks, keys.taken, keys.times, keys.starts, keys.recent]
        args: list[Any] = [place.lineage, int(anew), at.first, at.start, at.since, at.target]
        args += [place.feed.generation, _ms(at.grace)]
        offset, begun, wait, lost = cast(list[Any], self._begin(keys=names, args=args))
        return FeedBegun(int(offset), begun.decode(), int(wait) / 1000, int(lost))

    def apply(
        self, place: FeedPlace, begun: str, expected: int, reached: int, events: Sequence[Event]
    ) -> Taken | Moved:
        """Take events, in the order of offsets, that lead from the offset `expected` to `reached`."""
        keys, feed = self._keys(place), place.feed
        clients = {event.client: None for event in events}
        numbers = {client: n for n, client in enumerate(clients, 1)}
        names = [keys.position, keys.marks, keys.taken, keys.times, keys.listening, keys.starts, keys.recent]
        names += [keys.stream(begun, client) for client in clients]
        args: list[Any] = [place.lineage, begun, expected, reached, feed.generation, feed.retain]
        args += ["ordered" if feed.ordered else "", feed.length, _ms(feed.age), REMEMBERED]
        args += [keys.channel(place.lineage, b""), len(clients), *clients]
        for e in events:
            packed = b"%d %d %d %d %b" % (e.generation, e.version, e.offset, e.timestamp, e.value)
            args += (numbers[e.client], e.source, packed)
            if not feed.ordered:
                args.append(e.identity)
        result = cast(list[Any], self._feed(keys=names, args=args))
        return Taken(int(result[1]), int(result[2])) if result[0] == b"applied" else moved(result[1])

    def lapse(self, place: FeedPlace, begun: str) -> int:
        """Drop registrations that have expired and histories that are too old; returns of how many clients.

        Some of them: call it again where it is not 0.
        """
        keys, feed = self._keys(place), place.feed
        found = self._lapsed(keys=[keys.listening, keys.times, keys.recent], args=[_ms(feed.age), _LAPSED])
        clients = set(cast(list[bytes], found))
        if not clients:
            return 0
        names = [keys.position, keys.listening, keys.leases, keys.starts, keys.recent, keys.times]
        names += [keys.stream(begun, client) for client in clients]
        args: list[Any] = [begun, feed.retain, _ms(feed.age), *clients]
        return int(cast(int, self._lapse(keys=names, args=args)))

    def _keys(self, place: FeedPlace) -> FeedKeys:
        return feed_keys(self._writer.prefix, place.feed.name, place.partition)


def _ms(seconds: float) -> int:
    return round(seconds * 1000)

"""Feeds in the store, as the materializer writes them: atomic batches of events, and what is dropped with time."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, cast

from tailrace.store.connection.scripts import Call
from tailrace.store.layout.feed_keys import FeedKeys, FeedPlace, feed_keys
from tailrace.store.layout.packed_events import PackedEvents
from tailrace.store.write.writer import PositionMoved, Rejected, StoreWriter, moved

# How many events of a partition are remembered by their identity, for feeds that are not ordered.
REMEMBERED = 50_000

_LAPSED = 500


@dataclass(frozen=True, slots=True)
class FeedBegun:
    """What the store holds of a partition: up to which offset, and the name of its history.

    It may be read after `wait` seconds. `lost` is how many records retention has removed before the store had them.
    `marks` are the highest versions taken, by source. They move with the offset only.
    """

    offset: int
    begun: str
    wait: float
    lost: int
    marks: dict[bytes, int]


@dataclass(frozen=True, slots=True)
class Taken:
    """The batch is in the store: `new` of its events were no replays, and `kept` of these were kept for clients."""

    new: int
    kept: int


@dataclass(frozen=True, slots=True)
class Beginning:
    """Where to begin with a partition that has no position.

    `start` is the first offset to read, `since` the offset after which events are kept; `first` and `target` are the
    first and the last offset of the changelog. Listeners have `grace` seconds to register before it is read.
    """

    first: int
    start: int
    since: int
    target: int
    grace: float = 0.0


@dataclass(frozen=True, slots=True)
class FeedParcel:
    """A batch of one partition that leads from the offset `expected` to `reached`.

    The histories of the clients in `tended` lose what is too old, and get more time before they expire. Do this now and
    then while these clients get events. A new history is always tended.
    """

    place: FeedPlace
    begun: str
    expected: int
    reached: int
    packed: PackedEvents
    tended: Collection[bytes] = ()


class Feeds:
    """Writes events to Redis. Every method raises Unavailable when it fails, and is safe to repeat."""

    def __init__(self, writer: StoreWriter) -> None:
        self._writer = writer
        self._begin = writer.script("begin_feed")
        self._feed = writer.script("history", "feed")
        self._lapsed = writer.script("lapsed")
        self._lapse = writer.script("lapse")

    def begin(self, place: FeedPlace, at: Beginning, *, anew: bool = False) -> FeedBegun:
        """What the store holds of a partition, after emptying one of another lineage, or any if `anew`."""
        keys = self._keys(place)
        names = [keys.position, keys.marks, keys.taken, keys.times, keys.starts, keys.recent]
        args: list[Any] = [place.lineage, int(anew), at.first, at.start, at.since, at.target]
        args += [place.feed.generation, _ms(at.grace)]
        offset, begun, wait, lost, held = cast(list[Any], self._begin(keys=names, args=args))
        marks = {source: int(version) for source, version in zip(held[::2], held[1::2], strict=True)}
        return FeedBegun(int(offset), begun.decode(), int(wait) / 1000, int(lost), marks)

    def apply(
        self,
        place: FeedPlace,
        begun: str,
        expected: int,
        reached: int,
        packed: PackedEvents,
        tended: Collection[bytes] = (),
    ) -> Taken | PositionMoved | Rejected:
        """Take one batch; see `FeedParcel`."""
        return self.apply_all([FeedParcel(place, begun, expected, reached, packed, tended)])[0]

    def apply_all(self, parcels: Sequence[FeedParcel]) -> list[Taken | PositionMoved | Rejected]:
        """Take batches in their order, in one round trip per server. Each is a step of its own, whatever others do."""
        found: list[Taken | PositionMoved | Rejected] = []
        for parcel, result in zip(parcels, self._feed.all([self._input(one) for one in parcels]), strict=True):
            if isinstance(result, Exception):
                found.append(Rejected(str(result)))
            elif result[0] == b"applied":
                found.append(Taken(parcel.packed.count - int(result[1]), int(result[2])))
            else:
                found.append(moved(result[1]))
        return found

    def _input(self, parcel: FeedParcel) -> Call:
        """The keys and arguments of `feed.lua`."""
        place, packed = parcel.place, parcel.packed
        keys, feed, tended = self._keys(place), place.feed, parcel.tended
        clients = packed.clients
        if tended:
            clients = {client: clients[client] for client in [*tended, *(c for c in clients if c not in tended)]}
        stem = keys.history(parcel.begun, b"")
        names = [keys.position, keys.marks, keys.taken, keys.times, keys.listening, keys.starts, keys.recent]
        names += [stem + client for client in clients]
        args: list[Any] = [place.lineage, parcel.begun, parcel.expected, parcel.reached, feed.generation, feed.retain]
        args += ["ordered" if packed.ordered else "", feed.length, _ms(feed.age), REMEMBERED]
        args += [keys.channel(place.lineage, b""), len(packed.marks), len(clients), len(tended)]
        for mark in packed.marks.items():
            args += mark
        for client, events in clients.items():
            args.append(client)
            args.append(len(events))
            args += events
        return names, args

    def lapse(self, place: FeedPlace, begun: str) -> int:
        """Drop some registrations that have expired and histories that are too old. Returns of how many clients.

        If it returns more than 0, there may be more: call it again.
        """
        keys, feed = self._keys(place), place.feed
        found = self._lapsed(keys=[keys.listening, keys.times, keys.recent], args=[_ms(feed.age), _LAPSED])
        clients = set(cast(list[bytes], found))
        if not clients:
            return 0
        names = [keys.position, keys.listening, keys.leases, keys.starts, keys.recent, keys.times]
        names += [keys.history(begun, client) for client in clients]
        args: list[Any] = [begun, feed.retain, _ms(feed.age), *clients]
        return int(cast(int, self._lapse(keys=names, args=args)))

    def _keys(self, place: FeedPlace) -> FeedKeys:
        return feed_keys(self._writer.prefix, place.feed.name, place.partition)


def _ms(seconds: float) -> int:
    return round(seconds * 1000)

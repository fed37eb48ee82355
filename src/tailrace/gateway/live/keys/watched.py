"""One key that clients of this gateway follow: each change is encoded once per surface and written to all of them.

The steps of a change: 1 `KeyState` says whether it is news; 2 at the end of the loop's turn, `flush` encodes
the changes of the turn, once for each surface that has a live follower; 3 `flush` writes them to every live
follower's connection, or hands them to the subscriptions that gather the changes of several keys.

Every live follower that is not slow was written every change up to the last flush. That is why ranks are
compared once per key and not once per follower. A slow follower is left out, and gets the newest row when it
has caught up.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from tailrace.gateway.catalog import ServedView
from tailrace.gateway.connection.fanout import Fanout
from tailrace.gateway.connection.wire import Wire
from tailrace.gateway.frames.frame import About, Frame, place
from tailrace.gateway.frames.surface import Surface
from tailrace.gateway.live.keys.progress import PartitionProgress
from tailrace.gateway.live.keys.state import KeyState
from tailrace.gateway.live.positions import After, Fresh, Reset
from tailrace.gateway.live.tick import Tick
from tailrace.gateway.metrics import Metrics
from tailrace.store.layout.row import StoredRow, unpack
from tailrace.store.read.reader import KeyRead


class KeyGatherer(Protocol):
    """A subscription of several keys: it gathers the frames of a turn and writes them itself."""

    def take(self, follower: Follower, frames: bytes, count: int) -> bool:
        """Take the frames of a key's changes since the last flush, `count` of them. False if they are not written."""

    def write(self) -> None:
        """Write what was gathered: every key that has changed in this turn has been flushed."""


class Following(Protocol):
    """A subscription of keys, which can leave and come back."""

    wire: Wire

    def rebuild(self) -> None:
        """Leave, to be started again: the view was rebuilt or removed."""

    def start(self) -> None: ...


class Follower:
    """A subscription, and one key that it follows. It is live from the snapshot on.

    If `gatherer` is None, changes are written straight to the wire. `seen` counts the key's changes that were
    written before its client became slow.
    """

    __slots__ = ("followed", "gatherer", "live", "seen", "subscription", "wire")

    def __init__(self, subscription: Following, followed: WatchedKey, gatherer: KeyGatherer | None = None) -> None:
        self.subscription = subscription
        self.wire = subscription.wire
        self.followed = followed
        self.gatherer = gatherer
        self.live = False
        self.seen = 0


class WatchedKey:
    """A key of one build of a view, its state, and its followers."""

    __slots__ = (
        "_about",
        "_count",
        "_fanout",
        "_flushed",
        "_gathering",
        "_metrics",
        "_tick",
        "_waiting",
        "channel",
        "followers",
        "key",
        "partition",
        "progress",
        "state",
        "view",
    )

    def __init__(
        self, view: ServedView, key: bytes, channel: bytes, progress: PartitionProgress, tick: Tick, metrics: Metrics
    ) -> None:
        self.view = view
        self.key = key
        self.channel = channel
        self.progress = progress
        self.partition = view.partition(key)
        self.state = KeyState()
        self.followers: set[Follower] = set()
        self._about = About({"view": view.name}, view)
        self._tick = tick
        self._metrics = metrics
        self._fanout = Fanout(metrics)
        self._gathering: dict[Follower, KeyGatherer] = {}
        self._waiting: list[Frame] = []
        self._count = 0
        self._flushed = 0

    def wires(self) -> Iterable[Wire]:
        return (follower.wire for follower in self.followers)

    def serves(self, held: KeyRead) -> bool:
        """Whether a read is of the build that is followed here. The store is handed over at a moment of its own."""
        return held.generation is None or held.generation == self.view.generation

    def receive(self, data: bytes) -> None:
        row = unpack(data)
        if self.offer(row):
            self._tick.heard(row.timestamp)

    def missed(self) -> None:
        """A message could not be read: it may have been any change of the partition. The sweep reads the row."""
        self.progress.doubt()

    def offer(self, row: StoredRow) -> bool:
        """Take in a published row; True if it was news. A row of another build is not."""
        if row.generation != self.view.generation:
            return False
        self.progress.hear(row.offset)
        news = self.state.offer(row)
        if news:
            self._announce()
        return news

    def learn(self, held: KeyRead) -> bool:
        """Take in what a read found; True if it was news to live followers, because pub/sub had not said so."""
        if not self.serves(held):
            return False
        if not held.whole:
            # The store is being restored: it may pass over what was heard before.
            self.progress.doubt()
        news = self.state.learn(held)
        if news:
            self._announce()
        return news

    def missing(self, entry: Fresh | After | Reset, held: KeyRead) -> StoredRow | None:
        """What a client that comes in lacks: the row or its absence. `held` is the whole read it comes in with."""
        state = self.state
        if not isinstance(entry, After):
            return state.row if state.present else None
        if state.row is not None:
            return state.row if state.row.offset > entry.offset else None
        if held.target is not None and entry.offset < held.target:
            # A client from before the restore may hold a row whose tombstone was compacted away since.
            return self.absence(max(state.offset, held.offset if held.offset is not None else -1))
        return None

    def newest(self) -> StoredRow:
        """What the key holds now, or its absence."""
        return self.state.row or self.absence(self.state.offset)

    def absence(self, offset: int) -> StoredRow:
        """A row that says that the key holds nothing at an offset."""
        return StoredRow(self.view.generation, 0, offset, 0, None)

    def encoded(self, row: StoredRow, follower: Follower) -> bytes:
        """A row, or its absence, encoded for a follower."""
        frame, surface = self._frame(row), follower.wire.surface
        body = surface.bare(frame) if follower.gatherer is not None else surface.encode(frame)
        self._metrics.sent(frame.kind, 1, len(body), surface.name)
        return body

    def enter(self, follower: Follower) -> None:
        """Make a follower live: from here on it gets every change that is not flushed yet."""
        follower.live = True
        follower.seen = self._flushed
        if follower.gatherer is not None or not follower.wire.paused:
            self._include(follower)

    def silence(self, follower: Follower) -> None:
        self._exclude(follower)
        follower.live = False

    def pause(self, follower: Follower) -> None:
        """Leave a follower out until it has caught up."""
        follower.seen = self._flushed
        self._exclude(follower)

    def resume(self, follower: Follower) -> None:
        """Include a follower that has caught up again; if it has missed any change, write it the newest row."""
        self.flush()
        missed = self._count - follower.seen
        follower.seen = self._count
        self._include(follower)
        if missed > 0:
            self._metrics.conflated(missed - 1)
            follower.wire.send(self.encoded(self.newest(), follower))

    def flush(self) -> None:
        """Write what has changed since the last flush to every follower that reads."""
        if not self._waiting:
            return
        frames, self._waiting = self._waiting, []
        self._flushed = self._count
        self._fanout.write(frames)
        if self._gathering:
            self._hand_over(frames)

    def _hand_over(self, frames: list[Frame]) -> None:
        bodies: dict[Surface, bytes] = {}
        taken: dict[Surface, int] = {}
        for follower, gatherer in tuple(self._gathering.items()):
            surface = follower.wire.surface
            if surface not in bodies:
                bodies[surface] = b"".join(map(surface.bare, frames))
            taken[surface] = taken.get(surface, 0) + gatherer.take(follower, bodies[surface], len(frames))
        for surface, body in bodies.items():
            self._fanout.count(frames, surface, len(body), taken[surface])

    def _frame(self, row: StoredRow) -> Frame:
        position = place(self.view.lineage, row.generation, self.partition, row.offset)
        return Frame(self._about, self.key, row.value, position)

    def _announce(self) -> None:
        if not self._waiting:
            self._tick.mark(self)
        self._count += 1
        self._waiting.append(self._frame(self.newest()))

    def _include(self, follower: Follower) -> None:
        if follower.gatherer is not None:
            self._gathering[follower] = follower.gatherer
        else:
            self._fanout.include(follower)

    def _exclude(self, follower: Follower) -> None:
        self._gathering.pop(follower, None)
        self._fanout.exclude(follower)

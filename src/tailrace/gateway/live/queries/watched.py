"""One query of one build of a view that clients of this gateway follow: each change is encoded once for all of them.

The position, a vector over partitions, belongs to the query and is the same for all live clients: each was
written every update up to the last flush. A client is behind if it reads slowly or is still coming in. When
it has caught up, it is written what is `recent` since its last update.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from tailrace.gateway.catalog import ServedView
from tailrace.gateway.connection.fanout import Fanout
from tailrace.gateway.connection.wire import Wire
from tailrace.gateway.frames.frame import About, place
from tailrace.gateway.live.positions import Reset
from tailrace.gateway.live.queries.recent import Recent, Update
from tailrace.gateway.live.queries.state import QueryProgress, Verdict
from tailrace.gateway.live.tick import Tick
from tailrace.gateway.metrics import Metrics
from tailrace.queries import Predicate
from tailrace.store.layout.message import Message

# How many members' offsets are kept per query, so that clients can be told what was missed without a reset.
MOST_HELD = 100_000
# How many bytes of a query's updates are kept for clients that are behind.
MOST_RECENT = 32 * 1024 * 1024


class QueryFollower(Protocol):
    """A subscription of a query. It is live from `ready` on; `begun` says that it may have been written something.

    While it is behind, `seen` is the last update that it was written, and `offsets` the position that this
    reaches.
    """

    wire: Wire
    id: str | None
    live: bool
    begun: bool
    seen: int
    offsets: Mapping[int, int]
    position: str | None
    reset: Reset | None

    def again(self, position: str | None, reset: Reset | None) -> None: ...


class WatchedQuery:
    """A query, how far each partition was followed, and its followers.

    `text` is the query as it was given, `predicate` what it means.
    """

    def __init__(
        self,
        view: ServedView,
        text: str,
        predicate: Predicate,
        tick: Tick,
        metrics: Metrics,
        *,
        most_held: int = MOST_HELD,
        most_recent: int = MOST_RECENT,
    ) -> None:
        self.view = view
        self.text = text
        self.query = predicate.digest
        self.clock = predicate.clock
        self.about = About({"view": view.name, "query": predicate.digest}, view)
        self.courses = [QueryProgress(view.generation) for _ in range(view.partitions)]
        self.followers: set[QueryFollower] = set()
        self.recent = Recent(most_recent)
        self._tick = tick
        self._metrics = metrics
        self._most_held = most_held
        self._fanout = Fanout(metrics)
        self._behind: set[QueryFollower] = set()
        self._updates: list[Update] = []
        self._seq = 0
        self._flushed = 0
        self._flushed_offsets: dict[int, int] = {}
        self._waiters: list[asyncio.Future[None]] = []

    def wires(self) -> Iterable[Wire]:
        return (follower.wire for follower in self.followers)

    @property
    def complete(self) -> bool:
        """Whether every partition was read, and nothing was missed since."""
        return all(course.live for course in self.courses)

    @property
    def offsets(self) -> dict[int, int]:
        """The position of all live clients after the next flush."""
        found = ((number, course.offset) for number, course in enumerate(self.courses))
        return {number: offset for number, offset in found if offset is not None and offset >= 0}

    def take(self, partition: int, message: Message) -> bool:
        """Take in a published message; False if something was missed and the partition must be read."""
        course = self.courses[partition]
        verdict = course.judge(message)
        if verdict is Verdict.MISSED:
            course.live = False
            return False
        if verdict is Verdict.NEXT:
            event = message.event
            self._tick.heard(event.timestamp if not self.clock and event.timestamp > 0 else None)
            if course.advance(message):
                self.tell(partition, event.key, event.value, event.offset, settled=message.settled)
            else:
                self.learned()
        return True

    def tell(self, partition: int, key: bytes, value: bytes | None, offset: int, *, settled: bool = False) -> None:
        """Tell all clients what a key has from now on: its row, or None if it has left the query."""
        course = self.courses[partition]
        if course.held is not None:
            if value is None:
                course.held.pop(key, None)
            else:
                course.held[key] = offset
                if self.too_many():
                    self.drop_held()
        self._seq += 1
        self.learned()
        position = place(self.view.lineage, self.view.generation, partition, offset) if settled else None
        self._updates.append(Update(self.about, self._seq, key, value, position))

    def drop_held(self) -> None:
        """Forget the members, because there are too many: what is missed from now on may need a reset."""
        for course in self.courses:
            course.held = None

    def too_many(self) -> bool:
        """Whether there are more members than are kept."""
        return self.held_count() > self._most_held

    def held_count(self) -> int:
        """How many members' offsets are kept."""
        return sum(len(course.held or ()) for course in self.courses)

    def forget_recent(self) -> None:
        """Keep nothing for clients that are behind: they read what they have missed from the store."""
        self.flush()
        self.recent.clear(self._flushed)

    def flush(self) -> None:
        """Write what has changed since the last flush to every client that reads, all of it at once."""
        latest: dict[bytes, Update] = {}
        for update in self._updates:
            latest.pop(update.key, None)
            latest[update.key] = update
        self._updates = []
        updates = list(latest.values())
        self._flushed, self._flushed_offsets = self._seq, self.offsets
        if self._behind:
            for update in updates:
                self.recent.put(update)
        if updates:
            self._fanout.write(updates, self._reached())
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    def begin(self, follower: QueryFollower) -> None:
        """From now on, keep updates for a client that comes in. It is written them when it enters."""
        self.flush()
        self._lag(follower)

    def enter(self, follower: QueryFollower, ready: Callable[[Mapping[int, int]], bytes] | None) -> bool:
        """Write what has changed since the client began, and `ready` if it is due. It is live from now on.

        False if too much has changed: then the client must read what is newer than `follower.offsets`.
        """
        self.flush()
        if not self.recent.knows(follower.seen):
            return False
        self._catch_up(follower, ready)
        follower.live = True
        return True

    def pause(self, follower: QueryFollower) -> None:
        """Leave a client out until it has caught up."""
        if follower not in self._behind:
            self._fanout.exclude(follower)
            self._lag(follower)

    def resume(self, follower: QueryFollower) -> bool:
        """Write a client what it has missed, and include it again. False as for `enter`."""
        self.flush()
        if not self.recent.knows(follower.seen):
            return False
        self._catch_up(follower)
        return True

    def leave(self, follower: QueryFollower) -> None:
        self.followers.discard(follower)
        self.silence(follower)

    def silence(self, follower: QueryFollower) -> None:
        self._fanout.exclude(follower)
        self._keep_up(follower)

    async def settled(self, until: Callable[[], bool]) -> None:
        """Wait until a condition holds; it is checked after every flush."""
        while not until():
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            await waiter

    def learned(self) -> None:
        """Flush at the end of this turn, because something was taken in."""
        self._tick.mark(self)

    def _lag(self, follower: QueryFollower) -> None:
        follower.seen, follower.offsets = self._flushed, self._flushed_offsets
        if not self._behind:
            self.recent.clear(self._flushed)
        self._behind.add(follower)

    def _keep_up(self, follower: QueryFollower) -> None:
        self._behind.discard(follower)
        if not self._behind:
            self.recent.clear(self._flushed)

    def _catch_up(self, follower: QueryFollower, ready: Callable[[Mapping[int, int]], bytes] | None = None) -> None:
        updates = self.recent.since(follower.seen)
        wire, surface = follower.wire, follower.wire.surface
        self._keep_up(follower)
        self._fanout.include(follower)
        frames = b"".join(map(surface.bare, updates))
        if updates:
            self._fanout.count(updates, surface, len(frames))
        if ready is not None:
            frames += ready(self._flushed_offsets)
        elif updates:
            frames = surface.identified(frames, self._reached())
        if frames:
            wire.send(frames)

    def _reached(self) -> bytes:
        vector = b"".join(b".%d-%d" % pair for pair in sorted(self._flushed_offsets.items()))
        return b"%b.%d%b" % (self.view.lineage.encode(), self.view.generation, vector)

"""One query of one build of a view that clients of this gateway follow: each change is encoded once for all of them.

The position, a vector over partitions, is the query's and the same for all clients that are live: each has been written
every update up to the last flush. One that is behind, because it reads slowly or is still coming in, is written what is
`recent` since its last update when it has caught up.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from tailrace.gateway.catalog import KnownView
from tailrace.gateway.connection.wire import Framing, Wire
from tailrace.gateway.frames.query_frames import QueryFrames
from tailrace.gateway.frames.sse import chunk
from tailrace.gateway.frames.update import Update, sizes
from tailrace.gateway.live.queries.recent import Recent
from tailrace.gateway.live.queries.state import Course, Verdict
from tailrace.gateway.metrics import Metrics
from tailrace.queries import Predicate
from tailrace.store.layout.message import Message

if TYPE_CHECKING:
    from tailrace.gateway.live.queries.subscription import QuerySubscription

log = logging.getLogger(__name__)

# Members whose offsets are kept per query, so that what was missed can be told without a reset.
MOST_HELD = 100_000
# Updates of a query that wait for clients that are behind, in bytes.
MOST_RECENT = 32 * 1024 * 1024


class FollowedQuery:
    """`mark` asks for a flush in this tick; `text` is the query as it was given, `predicate` what it means."""

    def __init__(
        self,
        view: KnownView,
        text: str,
        predicate: Predicate,
        mark: Callable[[FollowedQuery], None],
        metrics: Metrics,
        *,
        most_held: int = MOST_HELD,
        most_recent: int = MOST_RECENT,
    ) -> None:
        self.view = view
        self.text = text
        self.query = predicate.digest
        self.clock = predicate.clock
        self.frames = QueryFrames(view, predicate.digest)
        self.courses = [Course(view.generation) for _ in range(view.partitions)]
        self.followers: set[QuerySubscription] = set()
        self.recent = Recent(most_recent)
        self._mark = mark
        self._metrics = metrics
        self._most_held = most_held
        self._live: dict[Framing, dict[Wire, set[QuerySubscription]]] = {framing: {} for framing in Framing}
        self._behind: set[QuerySubscription] = set()
        self._tick: list[Update] = []
        self._seq = 0
        self._flushed = 0
        self._flushed_offsets: dict[int, int] = {}
        self._waiters: list[asyncio.Future[None]] = []

    @property
    def complete(self) -> bool:
        """Whether every partition was read, and nothing was missed since."""
        return all(course.live for course in self.courses)

    @property
    def offsets(self) -> dict[int, int]:
        """The position of all live clients, once what has come is flushed."""
        found = ((number, course.offset) for number, course in enumerate(self.courses))
        return {number: offset for number, offset in found if offset is not None and offset >= 0}

    def take(self, partition: int, message: Message) -> bool:
        """Take in a published message; False where something was missed and the partition must be read."""
        course = self.courses[partition]
        verdict = course.judge(message)
        if verdict is Verdict.MISSED:
            course.live = False
            return False
        if verdict is Verdict.NEXT:
            event = message.event
            if not self.clock and event.timestamp > 0:
                self._metrics.delay.observe(max(0.0, time.time() - event.timestamp / 1000))
            if course.advance(message):
                self.tell(partition, event.key, event.value, event.offset, settled=message.settled)
            else:
                self._ask()
        return True

    def tell(self, partition: int, key: bytes, value: bytes | None, offset: int, *, settled: bool = False) -> None:
        """Tell all clients what a key is from now on: its row, or None where it has left."""
        course = self.courses[partition]
        if course.held is not None:
            if value is None:
                course.held.pop(key, None)
            else:
                course.held[key] = offset
                if self.too_many():
                    self.drop_held()
        self._seq += 1
        self._ask()
        self._tick.append(Update(self.frames, self._seq, partition, key, value, offset if settled else None))

    def drop_held(self) -> None:
        """There are too many members to remember: what is missed from now on may need a reset."""
        for course in self.courses:
            course.held = None

    def too_many(self) -> bool:
        """Whether there are more members than are kept."""
        return self.held_count() > self._most_held

    def held_count(self) -> int:
        """How many members' offsets are kept."""
        return sum(len(course.held or ()) for course in self.courses)

    def forget_recent(self) -> None:
        """Keep nothing for clients that are behind: they read from the store what they have missed."""
        self.flush()
        self.recent.clear(self._flushed)

    def flush(self) -> None:
        """Write what has changed since the last flush to every client that reads, all of it at once."""
        latest: dict[bytes, Update] = {}
        for update in self._tick:
            latest.pop(update.key, None)
            latest[update.key] = update
        self._tick = []
        updates = list(latest.values())
        self._flushed, self._flushed_offsets = self._seq, self.offsets
        if self._behind:
            for update in updates:
                self.recent.put(update)
        if updates:
            for framing, wires in self._live.items():
                if wires:
                    _write_all(tuple(wires), self._encoded(framing, updates))
                    self._count(updates, framing, len(wires))
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    def begin(self, follower: QuerySubscription) -> None:
        """Note what changes from now on for a client that comes in; it is told when it enters."""
        self.flush()
        self._lag(follower)

    def enter(self, follower: QuerySubscription, *, ready: bool) -> bool:
        """Write what has changed since the client began, and `ready`; it is live from now on.

        False where too much has changed since: then it must read what is newer than `follower.offsets`.
        """
        self.flush()
        if not self.recent.knows(follower.seen):
            return False
        self._catch_up(follower, ready=ready)
        follower.live = True
        return True

    def pause(self, follower: QuerySubscription) -> None:
        """Leave a client out until it has caught up."""
        if follower not in self._behind:
            self._exclude(follower)
            self._lag(follower)

    def resume(self, follower: QuerySubscription) -> bool:
        """Write a client what it has missed, and feed it again; False as for `enter`."""
        self.flush()
        if not self.recent.knows(follower.seen):
            return False
        self._catch_up(follower, ready=False)
        return True

    def leave(self, follower: QuerySubscription) -> None:
        """Forget a client."""
        self.followers.discard(follower)
        self.silence(follower)

    def silence(self, follower: QuerySubscription) -> None:
        """Write a client nothing more."""
        self._exclude(follower)
        self._behind.discard(follower)
        if not self._behind:
            self.recent.clear(self._flushed)

    async def settled(self, until: Callable[[], bool]) -> None:
        """Wait until a condition holds; it is looked at whenever something was taken in."""
        while not until():
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            await waiter

    def learned(self) -> None:
        """A read was taken in."""
        self._ask()

    def _ask(self) -> None:
        self._mark(self)

    def _lag(self, follower: QuerySubscription) -> None:
        follower.seen, follower.offsets = self._flushed, self._flushed_offsets
        if not self._behind:
            self.recent.clear(self._flushed)
        self._behind.add(follower)

    def _catch_up(self, follower: QuerySubscription, *, ready: bool) -> None:
        updates = self.recent.since(follower.seen)
        wire = follower.wire
        self._behind.discard(follower)
        if not self._behind:
            self.recent.clear(self._flushed)
        self._live[wire.framing].setdefault(wire, set()).add(follower)
        frames = b""
        if updates:
            frames = b"".join(u.message() if wire.socket else u.event() for u in updates)
            if not wire.socket and not ready:
                frames = self.frames.identified(frames, self._flushed_offsets)
            self._count(updates, wire.framing, 1)
        if ready:
            frame = self.frames.ready(wire.socket, follower.id, self._flushed_offsets)
            self._metrics.sent("ready", 1, len(frame), wire.framing.surface)
            frames += frame
        if frames:
            wire.send(frames)

    def _exclude(self, follower: QuerySubscription) -> None:
        wires = self._live[follower.wire.framing]
        held = wires.get(follower.wire)
        if held is not None:
            held.discard(follower)
            if not held:
                del wires[follower.wire]

    def _encoded(self, framing: Framing, updates: Iterable[Update]) -> bytes:
        if framing is Framing.SOCKET:
            return b"".join(update.message() for update in updates)
        events = self.frames.identified(b"".join(update.event() for update in updates), self._flushed_offsets)
        return chunk(events) if framing is Framing.CHUNKED else events

    def _count(self, updates: Iterable[Update], framing: Framing, receivers: int) -> None:
        for kind, (count, size) in sizes(updates, socket=framing is Framing.SOCKET).items():
            self._metrics.sent(kind, count * receivers, size * receivers, framing.surface)


def _write_all(wires: tuple[Wire, ...], data: bytes) -> None:
    for wire in wires:
        try:
            if not wire.closed.done():
                wire.write(data)
        except Exception:
            # A transport that refuses is on its way to `connection_lost`; the others must not pay for it.
            log.exception("write=refused bytes=%d", len(data))

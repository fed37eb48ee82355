"""The hub: from one pub/sub link to the followers of every key."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Protocol
from weakref import WeakValueDictionary

from tailrace.gateway.catalog import KnownView
from tailrace.gateway.connection.close_reasons import FAULT, SHUTDOWN, SLOW
from tailrace.gateway.connection.pace import Pace
from tailrace.gateway.connection.wire import Wire
from tailrace.gateway.frames.sse import KEEP_ALIVE
from tailrace.gateway.live.keys.follower import Follower, Following, Gatherer
from tailrace.gateway.live.keys.progress import Course
from tailrace.gateway.live.keys.watched import Followed
from tailrace.gateway.metrics import Metrics
from tailrace.store.layout.row import unpack

log = logging.getLogger(__name__)

SLOTS = 15

# A drain ends so many connections at once at least, in so many batches at most, within this part of the grace.
_BATCH = 100
_BATCHES = 40
_SPREAD = 0.75


class Link(Protocol):
    """Where messages come from: `tailrace.store.read.channels.Channels`."""

    @property
    def up(self) -> bool:
        """Whether every message of every wanted channel comes through."""

    def join(self, channel: bytes) -> None:
        """Want a channel."""

    def leave(self, channel: bytes) -> None:
        """Want it no longer."""


class Hub:
    """All keys that are followed here. It joins a key's channel with its first follower and leaves with the last.

    `channel` names the channel of (view, partition, lineage, key).
    """

    def __init__(self, link: Link, channel: Callable[[str, int, str, bytes], bytes], metrics: Metrics) -> None:
        self._link = link
        self._channel = channel
        self._metrics = metrics
        self._followed: dict[bytes, Followed] = {}
        self._courses: WeakValueDictionary[tuple[KnownView, int], Course] = WeakValueDictionary()
        self._changed: list[Followed] = []
        self._gathered: list[Gatherer] = []
        self._news = 0
        self._pace = Pace()
        self._wires: list[set[Wire]] = [set() for _ in range(SLOTS)]
        self._slot = 0
        self.draining = False
        self._empty = asyncio.Event()

    def attach(
        self, view: KnownView, key: bytes, subscription: Following, gatherer: Gatherer | None = None
    ) -> Follower:
        """Follow a key. The follower hears nothing until its join has made it live."""
        partition = view.partition(key)
        channel = self._channel(view.name, partition, view.lineage, key)
        followed = self._followed.get(channel)
        if followed is None:
            course = self._courses.get((view, partition))
            if course is None:
                course = self._courses[view, partition] = Course()
            followed = self._followed[channel] = Followed(view, key, channel, course, self._mark, self._metrics)
            self._link.join(channel)
        follower = Follower(subscription, followed, gatherer)
        followed.followers.add(follower)
        self._metrics.followers.inc()
        self._metrics.channels.set(len(self._followed))
        return follower

    def detach(self, follower: Follower) -> None:
        """Follow no longer."""
        followed = follower.followed
        if follower not in followed.followers:
            return
        followed.followers.discard(follower)
        followed.silence(follower)
        self._metrics.followers.dec()
        if not followed.followers:
            del self._followed[followed.channel]
            self._link.leave(followed.channel)
        self._metrics.channels.set(len(self._followed))

    def deliver(self, channel: bytes, data: bytes) -> None:
        """Pass a published row on; what is not one is logged and dropped, and the sweep reads the row."""
        followed = self._followed.get(channel)
        if followed is None:
            return
        try:
            row = unpack(data)
            news = followed.offer(row)
        except Exception:
            log.exception("message=dropped channel=%r bytes=%d", channel[:200], len(data))
            self._metrics.set_aside("message")
            followed.course.doubt()
            return
        if news:
            self._news += 1
            self._metrics.delay.observe(max(0.0, time.time() - row.timestamp / 1000))

    def flush(self) -> None:
        """Write all that has changed; runs after the messages of a tick of the loop, or of a burst."""
        began = time.monotonic()
        self._news = 0
        changed, self._changed = self._changed, []
        for followed in changed:
            try:
                followed.flush()
            except Exception:
                log.exception("flush=failed channel=%r", followed.channel[:200])
                self._metrics.set_aside("flush")
                for wire in {follower.wire for follower in followed.followers}:
                    wire.finish(FAULT)
        gathered, self._gathered = self._gathered, []
        for gatherer in gathered:
            try:
                gatherer.write()
            except Exception:
                # A transport that refuses is on its way to `connection_lost`; the others must not pay for it.
                log.exception("write=refused")
                self._metrics.set_aside("flush")
        self._pace.flushed(time.monotonic() - began)

    def gather(self, gatherer: Gatherer) -> None:
        """Call `write` in the next flush, when every key that has changed is flushed."""
        self._schedule()
        self._gathered.append(gatherer)

    def sure(self, course: Course) -> bool:
        """Whether everything that a partition's course has heard of is all there was."""
        return self._link.up and course.sure

    def doubt(self) -> None:
        """Messages of any key may have been lost."""
        for course in tuple(self._courses.values()):
            course.doubt()

    def followed(self) -> Iterator[Followed]:
        """Every key that has a follower now."""
        return iter(tuple(self._followed.values()))

    def open(self, wire: Wire) -> None:
        """Keep a connection alive from now on; connections take turns, so that no tick has to write to all."""
        self._slot = (self._slot + 1) % SLOTS
        self._wires[self._slot].add(wire)
        self._metrics.opened(wire.framing.surface)
        if self.draining:
            wire.finish(SHUTDOWN)

    def close(self, wire: Wire) -> None:
        """Forget a connection."""
        for slot in self._wires:
            if wire in slot:
                slot.remove(wire)
                self._metrics.closed(wire.framing.surface, wire.ending.reason if wire.ending is not None else "client")
        if self.draining and not any(self._wires):
            self._empty.set()

    def wires(self) -> list[Wire]:
        """Every connection that is open now."""
        return [wire for slot in self._wires for wire in slot]

    def keep_alive(self, slot: int) -> None:
        """Write a comment to the connections whose turn it is; a client that does not read needs none.

        A WebSocket has pings of its own.
        """
        for wire in tuple(self._wires[slot % SLOTS]):
            if not wire.paused and not wire.socket and not wire.closed.done():
                wire.send(KEEP_ALIVE)

    def end_slow(self, limit: float) -> None:
        """Cut off every client that has read nothing of what waits for it for so many seconds.

        The writer is not asked: a client that does not read would hold up its own deadline.
        """
        now = asyncio.get_running_loop().time()
        for wire in self.wires():
            if wire.stuck(now) >= limit:
                wire.finish(SLOW)
                wire.abort()

    async def drain(self, grace: float) -> None:
        """End every connection, in batches over most of the grace, in seconds; at its end, cut off who does not read.

        So ten thousand clients do not all connect to the next gateway in one moment.
        """
        self.draining = True
        end = asyncio.get_running_loop().time() + grace
        wires = self.wires()
        log.info("drain=started streams=%d", len(wires))
        size = max(_BATCH, -(-len(wires) // _BATCHES))
        for first in range(0, len(wires), size):
            if first:
                await asyncio.sleep(grace * _SPREAD / _BATCHES)
            self.flush()
            for wire in wires[first : first + size]:
                wire.finish(SHUTDOWN)
        if not any(self._wires):
            return
        with suppress(TimeoutError):
            async with asyncio.timeout_at(end):
                await self._empty.wait()
        for wire in self.wires():
            wire.abort()

    def _mark(self, followed: Followed) -> None:
        self._schedule()
        self._changed.append(followed)

    def _schedule(self) -> None:
        if not self._changed and not self._gathered:
            asyncio.get_running_loop().call_soon(self._end_tick)

    def _end_tick(self) -> None:
        if wait := self._pace.wait(self._news, len(self._changed)):
            asyncio.get_running_loop().call_later(wait, self.flush)
        else:
            self.flush()

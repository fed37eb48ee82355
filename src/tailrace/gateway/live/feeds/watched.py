"""One client of a feed, as connections to this gateway follow it: one registration and one channel for all of them.

The steps of an event: 1 `FeedState` says whether it comes next; 2 at the end of the loop's turn, `flush`
encodes the events of the turn, once for each surface; 3 `flush` writes them to every live follower's
connection.

Every live follower was written everything up to the last flush. A follower that reads too slowly is no longer
live, and nothing is kept for it here. The store has its events, and it reads on from there when there is room
again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from tailrace.contracts.position import Position
from tailrace.gateway.catalog import ServedFeed
from tailrace.gateway.connection.fanout import Fanout
from tailrace.gateway.connection.wire import Wire
from tailrace.gateway.frames.frame import About, Frame, place
from tailrace.gateway.live.feeds.position import missed
from tailrace.gateway.live.feeds.state import Check, FeedState
from tailrace.gateway.live.positions import Reset
from tailrace.gateway.live.tick import Tick
from tailrace.gateway.metrics import Metrics
from tailrace.store.layout.feed_keys import FeedPlace
from tailrace.store.layout.row import StoredRow
from tailrace.store.read.feed_histories import PAGE, Heard, Page, Registration, heard

# How many events the first page has, and about how many bytes the next ones have.
FIRST_PAGE = 50
_PAGE_BYTES = 262_144


class FeedSource(Protocol):
    """What registers clients and reads events: `tailrace.store.read.feed_histories.FeedHistories`."""

    async def listen(self, place: FeedPlace, client: bytes) -> Registration: ...

    async def leave(self, place: FeedPlace, client: bytes) -> Registration: ...

    async def events(self, place: FeedPlace, client: bytes, after: int, count: int = PAGE) -> Page | None:
        """The next events after an offset; None if the client must register first."""


class FeedFollower(Protocol):
    """A subscription of a feed. While it is not live, it was written everything up to `cursor`."""

    wire: Wire
    cursor: int

    def owe(self, size: int) -> None:
        """Note that so many more bytes of events wait for it in the store."""

    def restart(self, reset: Reset) -> None:
        """Tell the client that what it holds can't be continued, and send it what is kept."""

    def uproot(self, reset: Reset) -> None:
        """Leave a feed that goes on elsewhere; the caller calls `start`."""

    def start(self) -> None: ...

    def end_removed(self) -> None:
        """End, because the feed is no longer declared."""


class WatchedFeed:
    """A client of a feed, what was passed on to it, and its followers.

    `wake` asks for `repair`. `order` is a lock around registering the client and ending its registration: if
    a client comes back at once, its earlier leave must not undo that.
    """

    def __init__(
        self,
        feed: ServedFeed,
        client: bytes,
        channel: bytes,
        source: FeedSource,
        order: asyncio.Lock,
        wake: Callable[[WatchedFeed], None],
        tick: Tick,
        metrics: Metrics,
    ) -> None:
        self.client = client
        self.channel = channel
        self.state = FeedState()
        self.followers: set[FeedFollower] = set()
        # The followers that are not live.
        self._late: set[FeedFollower] = set()
        # Live followers were written everything up to this offset.
        self.flushed = -1
        self._source = source
        self._order = order
        self._wake = wake
        self._tick = tick
        self._metrics = metrics
        self._fanout = Fanout(metrics)
        self._waiting: list[StoredRow] = []
        self._repairing = asyncio.Lock()
        self._lost_since: float | None = None
        self.declare(feed)

    def declare(self, feed: ServedFeed) -> None:
        """Go on with another declaration of the feed."""
        self.feed = feed
        self.place = feed.place(self.client)
        self._about = About({"feed": feed.name, "client": self.client.decode()})

    def wires(self) -> Iterable[Wire]:
        return (follower.wire for follower in self.followers)

    def attach(self, follower: FeedFollower) -> None:
        """Add a follower; `enter` makes it live."""
        self.followers.add(follower)
        self._late.add(follower)

    def detach(self, follower: FeedFollower) -> None:
        self.exclude(follower)
        self.followers.discard(follower)
        self._late.discard(follower)

    def receive(self, data: bytes) -> None:
        message = heard(data)
        if self.offer(message):
            self._tick.heard(message.event.timestamp)

    def missed(self) -> None:
        """Nothing to do: the next message, or the next check, finds what is missing."""

    def offer(self, message: Heard) -> bool:
        """Take in a published event; True if it was passed on."""
        behind = self.state.behind
        news = self.state.offer(message)
        if news:
            self._pass_on([message.event])
        elif self.state.gap:
            self._wake(self)
        elif self.state.front is None and message.event.offset > behind:
            self._owe([message.event])
        return news

    def enter(self, follower: FeedFollower, after: int, page: Page) -> bool:
        """Make a follower live after it was written a page that was read after an offset.

        False if it must read on: others are further, or `repair` must first bring them as far.
        """
        state = self.state
        if state.front is None:
            state.begin(page.reached)
        else:
            self._pass_on(state.learn(after, page))
        if follower.cursor != state.front:
            return False
        self.flush()
        self._fanout.include(follower)
        self._late.discard(follower)
        if state.gap:
            self._wake(self)
        return True

    def has(self, follower: FeedFollower) -> bool:
        return follower in self._fanout

    def exclude(self, follower: FeedFollower) -> None:
        if self._fanout.exclude(follower):
            self._late.add(follower)
            if not self._fanout:
                self.state.end()
                self._waiting.clear()

    def flush(self) -> None:
        """Write what was passed on since the last flush to every live follower."""
        if self.state.front is not None:
            self.flushed = self.state.front
        events, self._waiting = self._waiting, []
        if events:
            self._fanout.write([self.frame(event) for event in events])
            self._owe(events)

    def frame(self, event: StoredRow) -> Frame:
        position = place(self.feed.lineage, event.generation, self.place.partition, event.offset)
        return Frame(self._about, None, event.value or b"null", position, "event")

    def position(self, offset: int) -> Position:
        """The position of a client that has everything up to an offset."""
        offsets = {self.place.partition: offset} if offset >= 0 else {}
        return Position(self.feed.lineage, self.feed.entry.generation, offsets)

    async def listen(self) -> Registration:
        """Register the client, or refresh its registration; raises Unavailable."""
        async with self._order:
            return await self._source.listen(self.place, self.client)

    async def leave(self) -> None:
        """End the registration; raises Unavailable."""
        async with self._order:
            await self._source.leave(self.place, self.client)

    async def page(self, after: int, count: int) -> Page | None:
        """The next events after an offset; None if the client must register first."""
        return await self._source.events(self.place, self.client, after, count)

    async def repair(self) -> None:
        """Read what live followers lack, and pass it on; raises Unavailable."""
        async with self._repairing:
            count = FIRST_PAGE
            while (front := self.state.front) is not None:
                behind = self.state.behind
                page = await self.page(front, count)
                if page is None or self.state.front is None:
                    # No longer registered: the next check registers the client, and sees what was missed.
                    return
                if page.start > self.state.front:
                    self.restart(missed(self.feed, self.state.front, page.start, None))
                    return
                news = self.state.learn(front, page)
                self._metrics.repaired.inc(len(news))
                self._pass_on(news)
                self.flush()
                if len(page.events) == count:
                    count = page_size(page.events)
                elif not self.state.settle(behind):
                    return

    async def check(self, patience: float) -> None:
        """Refresh the registration, and see whether anything was missed; raises Unavailable.

        If a whole store has not reached what was passed on after `patience` seconds, it has lost that.
        """
        asked = self.state.front
        listener = await self.listen()
        found = self.state.check(asked, listener)
        now = asyncio.get_running_loop().time()
        if found is not Check.LOST:
            self._lost_since = None
        if found is Check.GAP:
            await self.repair()
        elif found is Check.MISSED and listener.start is not None:
            self.restart(missed(self.feed, self.state.front or 0, listener.start, listener.offset))
        elif found is Check.LOST:
            self._lost_since = now if self._lost_since is None else self._lost_since
            if now - self._lost_since >= patience:
                self.restart(Reset("ahead", f"offset {asked} was sent, the store holds up to {listener.offset} only"))

    def restart(self, reset: Reset) -> None:
        """Tell live followers that what they hold can't be continued, and send them what is kept."""
        self.flush()
        for one in self.followers - self._late:
            self.exclude(one)
            one.restart(reset)

    def _pass_on(self, news: Sequence[StoredRow]) -> None:
        if news:
            if not self._waiting:
                self._tick.mark(self)
            self._waiting.extend(news)

    def _owe(self, events: Sequence[StoredRow]) -> None:
        """Tell followers that are not live how many bytes of new events wait for them in the store."""
        if self._late:
            size = sum(len(event.value or b"") for event in events)
            for late in tuple(self._late):
                late.owe(size)


def page_size(events: Sequence[StoredRow]) -> int:
    """How many events to ask for in the next page, after these."""
    mean = sum(len(event.value or b"") for event in events) // len(events) + 100
    return max(1, min(PAGE, _PAGE_BYTES // mean))

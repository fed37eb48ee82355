"""One client of a feed that listens here, over any number of connections: one registration, one channel for all.

The steps of an event: 1 `FeedStanding` says whether it comes next, 2 at the end of the loop's tick `flush` encodes the
tick's events, once per surface, 3 and writes them to every live subscription's transport.
Every live subscription has been written everything up to the last flush. One that reads too slowly is live no longer:
nothing is kept for it here, the store has it, and it reads on from there when there is room again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Protocol

from tailrace.gateway.catalog import KnownFeed
from tailrace.gateway.connection.wire import Framing
from tailrace.gateway.frames.feed_frames import FeedFrames
from tailrace.gateway.live.feeds.position import missed
from tailrace.gateway.live.feeds.state import Check, FeedStanding
from tailrace.gateway.live.positions import Reset
from tailrace.gateway.metrics import Metrics
from tailrace.store.layout.row import Row
from tailrace.store.read.listening import PAGE, Heard, Listener, Page
from tailrace.store.write.feeds import FeedPlace

if TYPE_CHECKING:
    from tailrace.gateway.live.feeds.subscription import FeedSubscription

log = logging.getLogger(__name__)

# So many events are read first; after that, pages of about so many bytes.
FIRST_PAGE = 50
_PAGE_BYTES = 262_144


class FeedSource(Protocol):
    """Where clients are registered and events are read: `tailrace.store.read.listening.Listening`."""

    async def listen(self, place: FeedPlace, client: bytes) -> Listener:
        """Register a client, or refresh its registration."""

    async def leave(self, place: FeedPlace, client: bytes) -> Listener:
        """End a registration."""

    async def events(self, place: FeedPlace, client: bytes, after: int, count: int = PAGE) -> Page | None:
        """The next events after an offset; None where the client must register first."""


class FollowedFeed:
    """A client of a feed, how it stands, and its subscriptions.

    `mark` asks for a flush in this tick, `wake` for `repair`. `order` is held by whoever registers the client or ends
    that: one that comes back at once must not be undone by its own leave.
    """

    def __init__(
        self,
        feed: KnownFeed,
        client: bytes,
        channel: bytes,
        source: FeedSource,
        order: asyncio.Lock,
        mark: Callable[[FollowedFeed], None],
        wake: Callable[[FollowedFeed], None],
        metrics: Metrics,
    ) -> None:
        self.client = client
        self.channel = channel
        self.standing = FeedStanding()
        self.subscriptions: set[FeedSubscription] = set()
        # The offset up to which live subscriptions were written everything.
        self.flushed = -1
        self._source = source
        self._order = order
        self._mark = mark
        self._wake = wake
        self._metrics = metrics
        self._live: dict[FeedSubscription, None] = {}
        self._waiting: list[Row] = []
        self._repairing = asyncio.Lock()
        self._lost_since: float | None = None
        self.declare(feed)

    def declare(self, feed: KnownFeed) -> None:
        """Go on with a feed that is declared so."""
        self.feed = feed
        self.place = feed.place(self.client)
        self.frames = FeedFrames(feed, self.client)

    def offer(self, heard: Heard) -> bool:
        """Take in a published event; True where it was passed on."""
        behind = self.standing.behind
        news = self.standing.offer(heard)
        if news:
            self._pass_on([heard.event])
        elif self.standing.gap:
            self._wake(self)
        elif self.standing.front is None and heard.event.offset > behind:
            self._owe([heard.event])
        return news

    def enter(self, subscription: FeedSubscription, after: int, page: Page) -> bool:
        """Make a subscription live that was written a page, read after an offset, and so has all it reaches.

        False where it must read on: others are further, or must be brought as far first, see `repair`.
        """
        standing = self.standing
        if standing.front is None:
            standing.begin(page.reached)
        else:
            self._pass_on(standing.learn(after, page))
        if subscription.cursor != standing.front:
            return False
        self.flush()
        self._live[subscription] = None
        if standing.gap:
            self._wake(self)
        return True

    def has(self, subscription: FeedSubscription) -> bool:
        """Whether a subscription is live."""
        return subscription in self._live

    def exclude(self, subscription: FeedSubscription) -> None:
        """Write a subscription nothing more."""
        if subscription in self._live:
            del self._live[subscription]
            if not self._live:
                self.standing.end()
                self._waiting.clear()

    def flush(self) -> None:
        """Write what was passed on since the last flush to every live subscription."""
        if self.standing.front is not None:
            self.flushed = self.standing.front
        rows, self._waiting = self._waiting, []
        if not rows:
            return
        bodies: dict[bool, bytes] = {}
        wrapped: dict[Framing, bytes] = {}
        # A write may find a client slow, and change who is live.
        for one in tuple(self._live):
            wire = one.wire
            if wire.framing not in wrapped:
                body = bodies.get(wire.socket) or self._encoded(rows, socket=wire.socket)
                bodies[wire.socket], wrapped[wire.framing] = body, wire.framing.wrap(body)
            self._metrics.sent("event", len(rows), len(bodies[wire.socket]), wire.framing.surface)
            try:
                wire.write(wrapped[wire.framing])
            except Exception:
                # A transport that refuses is on its way to `connection_lost`; the others must not pay for it.
                log.exception("write=refused bytes=%d", len(wrapped[wire.framing]))
        self._owe(rows)

    async def listen(self) -> Listener:
        """Register the client, or refresh its registration; raises Unavailable."""
        async with self._order:
            return await self._source.listen(self.place, self.client)

    async def leave(self) -> None:
        """End the registration; raises Unavailable."""
        async with self._order:
            await self._source.leave(self.place, self.client)

    async def page(self, after: int, count: int) -> Page | None:
        """The next events after an offset, as the source gives them."""
        return await self._source.events(self.place, self.client, after, count)

    async def repair(self) -> None:
        """Read what live subscriptions have not heard, and pass it on; raises Unavailable."""
        async with self._repairing:
            count = FIRST_PAGE
            while (front := self.standing.front) is not None:
                behind = self.standing.behind
                page = await self.page(front, count)
                if page is None or self.standing.front is None:
                    # Not registered any more: the next check registers it, and sees what was missed.
                    return
                if page.start > self.standing.front:
                    self.restart(missed(self.feed, self.standing.front, page.start, None))
                    return
                news = self.standing.learn(front, page)
                self._metrics.repaired.inc(len(news))
                self._pass_on(news)
                self.flush()
                if len(page.events) == count:
                    count = page_size(page.events)
                elif not self.standing.settle(behind):
                    return

    async def check(self, patience: float) -> None:
        """Refresh the registration, and see whether anything was missed; raises Unavailable.

        A whole store that has not reached what was passed on has lost it; it gets some patience, in seconds.
        """
        asked = self.standing.front
        listener = await self.listen()
        found = self.standing.check(asked, listener)
        now = asyncio.get_running_loop().time()
        if found is not Check.LOST:
            self._lost_since = None
        if found is Check.GAP:
            await self.repair()
        elif found is Check.MISSED and listener.start is not None:
            self.restart(missed(self.feed, self.standing.front or 0, listener.start, listener.offset))
        elif found is Check.LOST:
            self._lost_since = now if self._lost_since is None else self._lost_since
            if now - self._lost_since >= patience:
                self.restart(Reset("ahead", f"offset {asked} was sent, the store holds up to {listener.offset} only"))

    def restart(self, reset: Reset) -> None:
        """Tell live subscriptions that what they hold can't be continued, and send them what is kept."""
        self.flush()
        for one in tuple(self._live):
            self.exclude(one)
            one.restart(reset)

    def _pass_on(self, news: Iterable[Row]) -> None:
        before = len(self._waiting)
        self._waiting.extend(news)
        if not before and self._waiting:
            self._mark(self)

    def _owe(self, events: Sequence[Row]) -> None:
        """Events have come that wait in the store for those who are not live."""
        size = sum(len(event.value or b"") for event in events)
        for late in tuple(self.subscriptions):
            if late not in self._live:
                late.owe(size)

    def _encoded(self, rows: Sequence[Row], *, socket: bool) -> bytes:
        return b"".join([self.frames.event(row, socket=socket) for row in rows])


def page_size(events: Sequence[Row]) -> int:
    """How many events the next page is to have, after these."""
    mean = sum(len(event.value or b"") for event in events) // len(events) + 100
    return max(1, min(PAGE, _PAGE_BYTES // mean))

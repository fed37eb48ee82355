"""One connection that follows a client's feed: from its position on, every event once and in order.

The steps:

1. Join the channel and register the client: from here on the store keeps its events.
2. Once the store is whole, judge the client's position.
3. Read events in pages and write them, as fast as the client reads.
4. Write `ready`.
5. Once it has all that live subscriptions have, it is live, and `WatchedFeed` writes to it.

A client that reads too slowly goes back to step 3, after the last event that was written to it. The store has
the rest, so nothing waits here but what the transport holds. If too much waits in the store, its connection
ends. Cancelling a step leaves nothing behind but what `FeedRegistry.detach` removes.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import ParamSpec

from tailrace.gateway.connection.close_reasons import FAULT, GONE, SLOW
from tailrace.gateway.connection.wire import Wire
from tailrace.gateway.live.feeds.position import feed_ahead, feed_entry, missed
from tailrace.gateway.live.feeds.registry import FeedRegistry
from tailrace.gateway.live.feeds.watched import FIRST_PAGE, WatchedFeed, page_size
from tailrace.gateway.live.positions import After, Ahead, Fresh, Reset
from tailrace.gateway.live.subscription import Behind, Subscription
from tailrace.gateway.problems import Problem, unknown_feed
from tailrace.store.connection.outages import Unavailable
from tailrace.store.read.feed_histories import Page, Registration

log = logging.getLogger(__name__)

# The events of a page are joined into writes of about this many bytes.
_WRITE = 32_768

P = ParamSpec("P")
_Judged = tuple[Fresh | After | Reset, Registration]


class FeedSubscription(Subscription):
    """A wire, and the feed that it follows. While it is not live, it was written everything up to `cursor`.

    `owed` is how many bytes of events wait for it in the store.
    """

    def __init__(
        self, registry: FeedRegistry, wire: Wire, id: str | None, feed: str, client: bytes, position: str | None
    ) -> None:
        super().__init__(wire, id, registry.metrics, registry.timing)
        self.feed = feed
        self.client = client
        self.cursor = -1
        self.owed = 0
        self.followed: WatchedFeed | None = None
        self._registry = registry
        self._position = position
        self._reset: Reset | None = None
        # Whether `ready` is due, whether the client was told anything, and whether it takes all that is kept.
        self._ready_due = True
        self._told = False
        self._from_start = False
        self._task: asyncio.Task[None] | None = None
        self._stopped = False

    def start(self) -> None:
        if self._stopped:
            return
        if self._registry.follows(self.wire, self.feed, self.client):
            self.end(already_followed(self.feed, self.client), FAULT)
            return
        self.followed = self._registry.attach(self, self.feed, self.client)
        if self.followed is None:
            self.end_removed()
        else:
            self._run(self._join, self.followed)

    def pause(self) -> None:
        """The client reads too slowly: once it has caught up, read on from the store."""
        followed = self.followed
        if followed is not None and followed.has(self):
            followed.exclude(self)
            self.cursor = followed.flushed
            self._run(self._catch_up, followed)

    def resume(self) -> None:
        """Nothing to do: `_catch_up` waits by itself until the client has caught up."""

    def stop(self) -> None:
        self._stopped = True
        if self._task is not None:
            self._task.cancel()
        if self.followed is not None:
            self.followed.exclude(self)

    def close(self) -> None:
        """Leave; the last subscription ends the registration."""
        self.stop()
        self._leave()

    def restart(self, reset: Reset) -> None:
        """Tell the client that what it holds can't be continued, and send it what is kept."""
        if self.followed is not None and not self._stopped:
            self._run(self._again, self.followed, reset)

    def uproot(self, reset: Reset) -> None:
        """Leave a feed that goes on elsewhere; the caller calls `start`.

        A client that was told nothing yet is judged by its position.
        """
        if self._task is not None:
            self._task.cancel()
        if self._told:
            self._reset = reset
        self._ready_due = True
        self._leave()

    def owe(self, size: int) -> None:
        """Note that so many more bytes of events wait for this client. If that is too much, its connection ends.

        The client may come back with its last position.
        """
        self.owed += size
        if self.owed > self._registry.limit and self.wire.paused and not self._stopped:
            log.info("feed=slow feed=%s client=%r owed=%d", self.feed, self.client[:200], self.owed)
            self.stop()
            self.wire.finish(SLOW)

    def end_removed(self) -> None:
        """End, because the feed is no longer declared."""
        self.stop()
        self.end(unknown_feed(self.feed), GONE)

    def send(self, kind: str, frames: bytes, count: int = 1) -> None:
        self._told = self._told or kind != "progress"
        super().send(kind, frames, count)

    def _leave(self) -> None:
        if self.followed is not None:
            self._registry.detach(self, self.followed)

    async def _join(self, followed: WatchedFeed) -> None:
        await self._registry.channels.joined(followed.channel)
        come, listener = await self.restored(lambda: self._judged(followed))
        come = self._reset or come
        if isinstance(come, Reset):
            await self._again(followed, come)
            return
        if isinstance(come, After):
            self.cursor = come.offset
        elif followed.feed.entry.retain == "always" or listener.offset is None:
            self.cursor, self._from_start = -1, True
        else:
            self.cursor = listener.offset
        await self._catch_up(followed)

    async def _judged(self, followed: WatchedFeed) -> _Judged | Behind[_Judged]:
        listener = await followed.listen()
        if not listener.whole:
            return Behind((listener.offset, listener.target))
        come = feed_entry(self._position, followed.feed, followed.place.partition, listener)
        if isinstance(come, Ahead):
            return Behind((listener.offset, come.offset), (feed_ahead(come, listener.offset), listener))
        return come, listener

    async def _again(self, followed: WatchedFeed, reset: Reset) -> None:
        self._reset = reset
        await self.wire.writable()
        self._tell(followed, reset)
        await self._catch_up(followed)

    async def _catch_up(self, followed: WatchedFeed) -> None:
        count = FIRST_PAGE
        while True:
            await self.wire.writable()
            if self.wire.closed.done():
                return
            after = self.cursor
            try:
                page = await followed.page(after, count)
                if page is None:
                    # No longer registered: the next page shows what was missed meanwhile.
                    if not (await followed.listen()).whole:
                        await asyncio.sleep(self.timing.poll)
                    continue
            except Unavailable:
                await asyncio.sleep(self.timing.poll)
                continue
            if self._full():
                continue
            if not page.complete and not self._from_start:
                self._tell(followed, missed(followed.feed, after, page.start, None))
                continue
            if not self._write(followed, page):
                continue
            if len(page.events) == count:
                count = page_size(page.events)
                continue
            if self._ready_due and not self._full():
                self._ready_due, self._reset = False, None
                self.send("ready", self._ready(followed))
            if self._full():
                continue
            if followed.enter(self, after, page):
                self.owed = 0
                return
            front = followed.state.front
            if front is not None and front < self.cursor:
                await self._repaired(followed)

    async def _repaired(self, followed: WatchedFeed) -> None:
        """Bring live followers as far as this one. If the store can't, wait a little."""
        with suppress(Unavailable):
            await followed.repair()
        front = followed.state.front
        if front is not None and front < self.cursor:
            await asyncio.sleep(self.timing.poll)

    def _write(self, followed: WatchedFeed, page: Page) -> bool:
        """Write a page as far as there is room. True if all of it was written."""
        frames: list[bytes] = []
        size = 0
        for n, event in enumerate(page.events, 1):
            frames.append(self.wire.surface.encode(followed.frame(event)))
            size += len(frames[-1])
            if size < _WRITE and n < len(page.events):
                continue
            if self._full() or self.wire.closed.done():
                return False
            self.send("event", b"".join(frames), len(frames))
            self.cursor, self._from_start = event.offset, False
            self.owed = max(0, self.owed - size)
            frames, size = [], 0
        self.cursor, self._from_start = page.reached, False
        return True

    def _full(self) -> bool:
        return self.wire.paused

    def _tell(self, followed: WatchedFeed, reset: Reset) -> None:
        self._ready_due = self._from_start = True
        self._reset = reset
        self.cursor = -1
        position = str(followed.position(-1))
        self.send("reset", self.wire.surface.reset(self.id, reset.reason, reset.message, position))
        self.metrics.reset(reset.reason)

    def _ready(self, followed: WatchedFeed) -> bytes:
        entry = followed.feed.entry
        about = {"feed": entry.name, "client": self.client.decode(), "generation": entry.generation}
        return self.wire.surface.ready(self.id, about, str(followed.position(self.cursor)))

    def _run(self, step: Callable[P, Awaitable[None]], *args: P.args, **kwargs: P.kwargs) -> None:
        self._task = asyncio.create_task(self.guarded(step, *args, **kwargs))


def already_followed(feed: str, client: bytes) -> Problem:
    """A 409: frames name the feed and the client, so two subscriptions could not be told apart."""
    return Problem(
        409,
        "already followed",
        expected="one subscription of a feed and client on a connection",
        got=f"a second one of feed {feed}, client {client.decode()[:200]}",
        remedy="Use the subscription that is there, or unsubscribe it first.",
    )

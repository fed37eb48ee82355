"""One connection that follows a client's feed: from its position on, every event once and in order.

The steps: 1 the channel is joined and the client registered: from here on events are kept; 2 the client's position is
judged once the store is whole; 3 events are read in pages and written, as fast as the client reads them; 4 `ready`;
5 a subscription that has all that live ones have is live, and `FollowedFeed` writes to it.
A client that reads too slowly goes back to step 3, after the last event that was written to it: the store has the rest,
so nothing waits here but what the transport holds. It is ended when more is waiting for it than it may be owed.
Cancelling a step leaves nothing behind but what `FeedHub.detach` removes.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from contextlib import suppress
from typing import TYPE_CHECKING

from tailrace.gateway.connection.close_reasons import FAULT, end
from tailrace.gateway.connection.wire import Wire
from tailrace.gateway.frames import notices
from tailrace.gateway.live.feeds.position import feed_ahead, feed_entry, missed
from tailrace.gateway.live.feeds.problems import already_followed
from tailrace.gateway.live.feeds.watched import FIRST_PAGE, FollowedFeed, page_size
from tailrace.gateway.live.positions import After, Ahead, Fresh, Reset
from tailrace.gateway.problems import Problem
from tailrace.store.read.listening import Listener, Page
from tailrace.store.read.reader import Unavailable

if TYPE_CHECKING:
    from tailrace.gateway.live.feeds.registry import FeedHub

log = logging.getLogger(__name__)

# Events of a page are joined into writes of about so many bytes.
_WRITE = 32_768


class FeedSubscription:
    """A wire and the feed it is fed from. `cursor` is the offset up to which it was written everything while not live.

    `owed` is how many bytes of events wait for it in the store.
    """

    def __init__(
        self, hub: FeedHub, wire: Wire, id: str | None, feed: str, client: bytes, position: str | None
    ) -> None:
        self.wire = wire
        self.id = id
        self.feed = feed
        self.client = client
        self.cursor = -1
        self.owed = 0
        self.followed: FollowedFeed | None = None
        self._hub = hub
        self._position = position
        self._reset: Reset | None = None
        # Whether `ready` is still to come, whether the client was sent anything, and whether it takes whatever is kept.
        self._ready_due = True
        self._told = False
        self._from_start = False
        self._task: asyncio.Task[None] | None = None
        self._stopped = False

    def start(self) -> None:
        """Begin to join."""
        if self._stopped:
            return
        if self._hub.follows(self.wire, self.feed, self.client):
            end(self, already_followed(self.feed, self.client), FAULT)
            return
        self.followed = self._hub.attach(self)
        if self.followed is not None:
            self._run(self._join(self.followed))

    def pause(self) -> None:
        """The client reads too slowly: read on from the store when it has caught up."""
        followed = self.followed
        if followed is not None and followed.has(self):
            followed.exclude(self)
            self.cursor = followed.flushed
            self._run(self._catch_up(followed))

    def resume(self) -> None:
        """The client has caught up; `_catch_up` waits for that by itself."""

    def stop(self) -> None:
        """Write nothing more."""
        self._stopped = True
        if self._task is not None:
            self._task.cancel()
        if self.followed is not None:
            self.followed.exclude(self)

    def close(self) -> None:
        """Leave; the last one ends the registration."""
        self.stop()
        self._hub.detach(self)

    def restart(self, reset: Reset) -> None:
        """Tell the client that what it holds can't be continued, and send it what is kept."""
        if self.followed is not None and not self._stopped:
            self._run(self._again(self.followed, reset))

    def uproot(self, reset: Reset) -> None:
        """Leave a feed that goes on elsewhere; `start` follows. Who was told nothing yet is judged by its position."""
        if self._task is not None:
            self._task.cancel()
        if self._told:
            self._reset = reset
        self._ready_due = True
        self._hub.detach(self)

    def owe(self, size: int) -> None:
        """Note that so many bytes of events wait for this client; it is ended where that is too much."""
        self.owed += size
        if self.owed > self._hub.limit and self.wire.paused and not self._stopped:
            self._hub.end_slow(self)

    async def _join(self, followed: FollowedFeed) -> None:
        await self._hub.joined(followed)
        come, listener = await self._judged(followed)
        come = self._reset or come
        if isinstance(come, Reset):
            await self._again(followed, come)
            return
        always = followed.feed.entry.retain == "always"
        if isinstance(come, After):
            self.cursor = come.offset
        elif always or listener.offset is None:
            self.cursor, self._from_start = -1, True
        else:
            self.cursor = listener.offset
        await self._catch_up(followed)

    async def _judged(self, followed: FollowedFeed) -> tuple[Fresh | After | Reset, Listener]:
        timing = self._hub.timing
        clock = asyncio.get_running_loop().time
        impatient: float | None = None
        while True:
            try:
                listener = await followed.listen()
            except Unavailable:
                await asyncio.sleep(timing.poll)
                continue
            target = listener.target
            if listener.whole:
                come = feed_entry(self._position, followed.feed, followed.place.partition, listener)
                if not isinstance(come, Ahead):
                    return come, listener
                impatient = impatient or clock() + timing.patience
                if clock() >= impatient:
                    return feed_ahead(come, listener.offset), listener
                target = come.offset
            else:
                impatient = None
            if not self.wire.paused:
                self._send("progress", notices.progress(self, listener.offset, target))
            await asyncio.sleep(timing.poll)

    async def _again(self, followed: FollowedFeed, reset: Reset) -> None:
        self._reset = reset
        await self.wire.writable()
        self._tell(followed, reset)
        await self._catch_up(followed)

    async def _catch_up(self, followed: FollowedFeed) -> None:
        count = FIRST_PAGE
        while True:
            await self.wire.writable()
            if self.wire.closed.done():
                return
            after = self.cursor
            try:
                page = await followed.page(after, count)
                if page is None:
                    # Not registered any more: what was missed meanwhile shows in the next page.
                    if not (await followed.listen()).whole:
                        await asyncio.sleep(self._hub.timing.poll)
                    continue
            except Unavailable:
                await asyncio.sleep(self._hub.timing.poll)
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
                self._send("ready", self._ready(followed))
            if self._full():
                continue
            if followed.enter(self, after, page):
                self.owed = 0
                return
            front = followed.standing.front
            if front is not None and front < self.cursor:
                await self._repaired(followed)

    async def _repaired(self, followed: FollowedFeed) -> None:
        """Bring those who are live as far as this one; where the store can't, some time must pass first."""
        with suppress(Unavailable):
            await followed.repair()
        front = followed.standing.front
        if front is not None and front < self.cursor:
            await asyncio.sleep(self._hub.timing.poll)

    def _write(self, followed: FollowedFeed, page: Page) -> bool:
        """Write a page as far as there is room; True where all of it is written."""
        encode, socket = followed.frames.event, self.wire.socket
        frames: list[bytes] = []
        size = 0
        for n, event in enumerate(page.events, 1):
            frames.append(encode(event, socket=socket))
            size += len(frames[-1])
            if size < _WRITE and n < len(page.events):
                continue
            if self.wire.paused or self.wire.closed.done():
                return False
            self._send("event", b"".join(frames), len(frames))
            self.cursor, self._from_start = event.offset, False
            self.owed = max(0, self.owed - size)
            frames, size = [], 0
        self.cursor, self._from_start = page.reached, False
        return True

    def _full(self) -> bool:
        return self.wire.paused

    def _tell(self, followed: FollowedFeed, reset: Reset) -> None:
        self._ready_due = self._from_start = True
        self._reset = reset
        self.cursor = -1
        self._send("reset", notices.reset(self, reset.reason, reset.message, followed.frames.position(-1)))
        self._hub.metrics.reset(reset.reason)

    def _ready(self, followed: FollowedFeed) -> bytes:
        entry = followed.feed.entry
        about = {"feed": entry.name, "client": self.client.decode(), "generation": entry.generation}
        return notices.ready(self, about, followed.frames.position(self.cursor))

    def _send(self, kind: str, frames: bytes, count: int = 1) -> None:
        self._told = self._told or kind != "progress"
        self.wire.send(frames)
        self._hub.metrics.sent(kind, count, len(frames), self.wire.framing.surface)

    def _run(self, step: Coroutine[None, None, None]) -> None:
        self._task = asyncio.create_task(self._guarded(step))

    async def _guarded(self, step: Coroutine[None, None, None]) -> None:
        try:
            await step
        except Exception:
            # The client connects again, with the position it has.
            log.exception("feed=failed feed=%s client=%r", self.feed, self.client[:200])
            end(self, Problem(500, "internal error", remedy="Subscribe again with the last position."), FAULT)

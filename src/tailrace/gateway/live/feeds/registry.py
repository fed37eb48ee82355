"""All clients of feeds that listen through this gateway, registered from the first connection to the last."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from weakref import WeakValueDictionary

from tailrace.gateway.catalog import ServedCatalog
from tailrace.gateway.connection.wire import Wire
from tailrace.gateway.live.channels import ChannelRegistry
from tailrace.gateway.live.feeds.position import feed_rebuilt
from tailrace.gateway.live.feeds.watched import FeedFollower, FeedSource, WatchedFeed
from tailrace.gateway.live.tick import Tick
from tailrace.gateway.metrics import Metrics
from tailrace.gateway.timing import Timing
from tailrace.store.connection.outages import Unavailable
from tailrace.store.layout.feed_keys import FeedPlace

log = logging.getLogger(__name__)

# How many bytes of events may wait for a client.
LIMIT = 1 << 20
# How many registrations are refreshed at a time.
_BATCH = 50
# How many seconds a gateway that shuts down waits for its clients to be signed off. Registrations expire anyway.
_FAREWELL = 2.0


class FeedRegistry:
    """Followed feeds by channel, and what subscriptions of feeds need.

    `limit` is how many bytes of events may wait for a client that reads too slowly.
    """

    def __init__(
        self,
        channels: ChannelRegistry,
        source: FeedSource,
        channel: Callable[[FeedPlace, bytes], bytes],
        tick: Tick,
        known: ServedCatalog,
        metrics: Metrics,
        timing: Timing,
        limit: int = LIMIT,
    ) -> None:
        self.channels = channels
        self.metrics = metrics
        self.timing = timing
        self.limit = limit
        self._source = source
        self._channel = channel
        self._tick = tick
        self._known = known
        self._followed: dict[bytes, WatchedFeed] = {}
        self._orders: WeakValueDictionary[tuple[str, int, bytes], asyncio.Lock] = WeakValueDictionary()
        self._tasks: set[asyncio.Task[None]] = set()
        self._repairs: dict[WatchedFeed, asyncio.Task[None]] = {}
        self._urgent = asyncio.Event()

    def follows(self, wire: Wire, feed: str, client: bytes) -> bool:
        """Whether a connection follows a client's feed."""
        known = self._known.feeds.get(feed)
        followed = self._followed.get(self._channel(known.place(client), client)) if known is not None else None
        return followed is not None and any(one is wire for one in followed.wires())

    def attach(self, follower: FeedFollower, name: str, client: bytes) -> WatchedFeed | None:
        """Listen for a client of a feed; None if the feed is no longer declared."""
        feed = self._known.feeds.get(name)
        if feed is None:
            return None
        channel = self._channel(feed.place(client), client)
        followed = self._followed.get(channel)
        if followed is None:
            order = self._orders.setdefault((name, feed.partition(client), client), asyncio.Lock())
            followed = self._followed[channel] = WatchedFeed(
                feed, client, channel, self._source, order, self._wake, self._tick, self.metrics
            )
            self.channels.join(channel, followed)
            self.metrics.feed_listeners.set(len(self._followed))
        followed.attach(follower)
        return followed

    def detach(self, follower: FeedFollower, followed: WatchedFeed) -> None:
        """Stop listening for a follower; safe to call again."""
        if follower not in followed.followers:
            return
        followed.detach(follower)
        if followed.followers:
            return
        del self._followed[followed.channel]
        self.channels.leave(followed.channel, followed)
        self.metrics.feed_listeners.set(len(self._followed))
        if (repair := self._repairs.pop(followed, None)) is not None:
            repair.cancel()
        self._spawn(self._leave(followed))

    def refresh(self) -> None:
        """Take in the catalog: follow feeds that go on elsewhere there, and end subscriptions of removed feeds."""
        for followed in tuple(self._followed.values()):
            feed = self._known.feeds.get(followed.feed.name)
            if feed is None:
                for one in tuple(followed.followers):
                    one.end_removed()
            elif not feed.continues(followed.feed):
                followed.flush()
                moving = tuple(followed.followers)
                # The client is signed off from the old place before it is registered at the new one.
                for one in moving:
                    one.uproot(feed_rebuilt(feed))
                for one in moving:
                    one.start()
            elif feed != followed.feed:
                followed.declare(feed)

    def hurry(self) -> None:
        """Messages may have been lost: check everything now."""
        self._urgent.set()

    async def run(self) -> None:
        """Keep every client registered, and find what was lost, until cancelled.

        A pass is spread over a third of the lease; after the pub/sub link was replaced, one runs at once.
        """
        interval = self.timing.lease / 3
        while True:
            urgent = self._urgent.is_set()
            self._urgent.clear()
            followed = tuple(self._followed.values())
            batches = [followed[first : first + _BATCH] for first in range(0, len(followed), _BATCH)]
            pause = 0.0 if urgent else interval / max(1, len(batches))
            if not batches:
                await self._wait(interval)
            for batch in batches:
                await asyncio.gather(*map(self._checked, batch))
                if await self._wait(pause):
                    break

    async def finish(self) -> None:
        """Let clients that have just left be signed off."""
        if self._tasks:
            await asyncio.wait(tuple(self._tasks), timeout=_FAREWELL)
        for task in tuple(self._tasks):
            task.cancel()

    async def _leave(self, followed: WatchedFeed) -> None:
        try:
            await followed.leave()
        except Unavailable as error:
            # The registration expires by itself.
            log.debug("feed=unavailable step=leave error=%r", str(error))

    async def _checked(self, followed: WatchedFeed) -> None:
        if not followed.followers:
            return
        try:
            await followed.check(self.timing.patience)
        except Unavailable as error:
            log.debug("feed=unavailable step=check error=%r", str(error))
        except Exception:
            # The rest of the batch is checked all the same, and this one when its turn comes again.
            log.exception("feed=failed step=check feed=%s client=%r", followed.feed.name, followed.client[:200])
            self.metrics.set_aside("feed")

    def _wake(self, followed: WatchedFeed) -> None:
        if followed not in self._repairs and followed.followers:
            self._repairs[followed] = self._spawn(self._repair(followed))

    async def _repair(self, followed: WatchedFeed) -> None:
        try:
            await followed.repair()
        except Unavailable as error:
            # The next check finds the gap again.
            log.debug("feed=unavailable step=repair error=%r", str(error))
        finally:
            self._repairs.pop(followed, None)

    async def _wait(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                await self._urgent.wait()
        except TimeoutError:
            return False
        return True

    def _spawn(self, step: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(step)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

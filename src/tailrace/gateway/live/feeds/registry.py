"""All clients of feeds that listen through this gateway: registered with the first connection, gone with the last."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine
from typing import Protocol
from weakref import WeakValueDictionary

from tailrace.gateway.catalog import Known, KnownFeed
from tailrace.gateway.connection.close_reasons import FAULT, GONE, SLOW, end
from tailrace.gateway.connection.wire import Wire
from tailrace.gateway.live.feeds.position import feed_rebuilt
from tailrace.gateway.live.feeds.subscription import FeedSubscription
from tailrace.gateway.live.feeds.watched import FeedSource, FollowedFeed
from tailrace.gateway.metrics import Metrics
from tailrace.gateway.timing import Timing
from tailrace.gateway.unknown import unknown_feed
from tailrace.store.read.listening import heard
from tailrace.store.read.reader import Unavailable
from tailrace.store.write.feeds import FeedPlace

log = logging.getLogger(__name__)

# How many bytes of events may wait for a client.
LIMIT = 1 << 20
# So many registrations are refreshed at a time.
_BATCH = 50
# How long a gateway that shuts down waits until its clients are signed off; they are held for some time anyway.
_FAREWELL = 2.0


class Link(Protocol):
    """Where messages come from: `tailrace.store.read.channels.Channels`."""

    def join(self, channel: bytes) -> None:
        """Want a channel."""

    def leave(self, channel: bytes) -> None:
        """Want it no longer."""

    async def joined(self, channel: bytes) -> None:
        """Wait until its messages come."""


class FeedHub:
    """Followed feeds by channel. `limit` is how many bytes of events may wait for a client that reads too slowly."""

    def __init__(
        self,
        link: Link,
        source: FeedSource,
        channel: Callable[[FeedPlace, bytes], bytes],
        known: Known,
        metrics: Metrics,
        timing: Timing,
        limit: int = LIMIT,
    ) -> None:
        self.metrics = metrics
        self.timing = timing
        self.limit = limit
        self._link = link
        self._source = source
        self._channel = channel
        self._known = known
        self._followed: dict[bytes, FollowedFeed] = {}
        self._changed: list[FollowedFeed] = []
        self._orders: WeakValueDictionary[tuple[str, int, bytes], asyncio.Lock] = WeakValueDictionary()
        self._tasks: set[asyncio.Task[None]] = set()
        self._repairs: dict[FollowedFeed, asyncio.Task[None]] = {}
        self._urgent = asyncio.Event()

    def follow(self, wire: Wire, id: str | None, feed: str, client: bytes, position: str | None) -> FeedSubscription:
        """A subscription, still to be started."""
        return FeedSubscription(self, wire, id, feed, client, position)

    def follows(self, wire: Wire, feed: str, client: bytes) -> bool:
        """Whether a connection follows a client's feed."""
        known = self._known.feeds.get(feed)
        followed = self._followed.get(self._channel(known.place(client), client)) if known is not None else None
        return followed is not None and any(one.wire is wire for one in followed.subscriptions)

    def attach(self, subscription: FeedSubscription) -> FollowedFeed | None:
        """Listen for a subscription's client; None where its feed is not there any more, and the stream ends."""
        feed = self._known.feeds.get(subscription.feed)
        if feed is None:
            self.end_removed(subscription)
            return None
        client = subscription.client
        channel = self._channel(feed.place(client), client)
        followed = self._followed.get(channel)
        if followed is None:
            followed = self._followed[channel] = self._listened(feed, client, channel)
            self._link.join(channel)
            self.metrics.feed_listeners.set(len(self._followed))
        followed.subscriptions.add(subscription)
        return followed

    def detach(self, subscription: FeedSubscription) -> None:
        """Listen no longer for a subscription; safe to call again."""
        followed = subscription.followed
        if followed is None or subscription not in followed.subscriptions:
            return
        followed.exclude(subscription)
        followed.subscriptions.discard(subscription)
        if followed.subscriptions:
            return
        del self._followed[followed.channel]
        self._link.leave(followed.channel)
        self.metrics.feed_listeners.set(len(self._followed))
        if (repair := self._repairs.pop(followed, None)) is not None:
            repair.cancel()
        self._spawn(self._leave(followed))

    async def joined(self, followed: FollowedFeed) -> None:
        """Wait until messages for a client come."""
        await self._link.joined(followed.channel)

    def deliver(self, channel: bytes, data: bytes) -> bool:
        """Pass a published event on; False where the channel is none of a feed.

        What is not an event is logged and dropped, and the next check reads what is missing.
        """
        followed = self._followed.get(channel)
        if followed is None:
            return False
        try:
            message = heard(data)
            news = followed.offer(message)
        except Exception:
            log.exception("message=dropped channel=%r bytes=%d", channel[:200], len(data))
            self.metrics.set_aside("message")
            return True
        if news:
            self.metrics.delay.observe(max(0.0, time.time() - message.event.timestamp / 1000))
        return True

    def flush(self) -> None:
        """Write all that was passed on; runs once per tick of the loop, after the messages of the tick."""
        changed, self._changed = self._changed, []
        for followed in changed:
            try:
                followed.flush()
            except Exception:
                log.exception("flush=failed channel=%r", followed.channel[:200])
                self.metrics.set_aside("flush")
                for wire in {one.wire for one in followed.subscriptions}:
                    wire.finish(FAULT)

    def refresh(self) -> None:
        """Take in the catalog: feeds that go on elsewhere are followed there, and those of removed ones end."""
        for followed in tuple(self._followed.values()):
            feed = self._known.feeds.get(followed.feed.name)
            if feed is None:
                for one in tuple(followed.subscriptions):
                    self.end_removed(one)
            elif not feed.continues(followed.feed):
                followed.flush()
                moving = tuple(followed.subscriptions)
                # The client is signed off here before it is registered there.
                for one in moving:
                    one.uproot(feed_rebuilt(feed))
                for one in moving:
                    one.start()
            elif feed != followed.feed:
                followed.declare(feed)

    def end_slow(self, subscription: FeedSubscription) -> None:
        """End a client that reads too slowly; it may come back with its last position."""
        log.info("feed=slow feed=%s client=%r owed=%d", subscription.feed, subscription.client[:200], subscription.owed)
        subscription.stop()
        subscription.wire.finish(SLOW)

    def end_removed(self, subscription: FeedSubscription) -> None:
        """End the stream of a feed that is not declared any more."""
        subscription.stop()
        end(subscription, unknown_feed(subscription.feed), GONE)

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

    def _listened(self, feed: KnownFeed, client: bytes, channel: bytes) -> FollowedFeed:
        key = (feed.name, feed.partition(client), client)
        order = self._orders.setdefault(key, asyncio.Lock())
        return FollowedFeed(feed, client, channel, self._source, order, self._mark, self._wake, self.metrics)

    async def _leave(self, followed: FollowedFeed) -> None:
        try:
            await followed.leave()
        except Unavailable as error:
            # It expires by itself.
            log.debug("feed=unavailable step=leave error=%r", str(error))

    async def _checked(self, followed: FollowedFeed) -> None:
        if not followed.subscriptions:
            return
        try:
            await followed.check(self.timing.patience)
        except Unavailable as error:
            log.debug("feed=unavailable step=check error=%r", str(error))
        except Exception:
            # The others of its batch are checked all the same, and it is when its turn comes again.
            log.exception("feed=failed step=check feed=%s client=%r", followed.feed.name, followed.client[:200])
            self.metrics.set_aside("feed")

    def _wake(self, followed: FollowedFeed) -> None:
        if followed not in self._repairs and followed.subscriptions:
            self._repairs[followed] = self._spawn(self._repair(followed))

    async def _repair(self, followed: FollowedFeed) -> None:
        try:
            await followed.repair()
        except Unavailable as error:
            # The next check finds it again.
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

    def _mark(self, followed: FollowedFeed) -> None:
        if not self._changed:
            asyncio.get_running_loop().call_soon(self.flush)
        self._changed.append(followed)

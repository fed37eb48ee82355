"""The gateway's parts, put together, and what runs behind the requests."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from tailrace.gateway.access_hook import Access, Identity
from tailrace.gateway.hub import SLOTS, Hub
from tailrace.gateway.joining import Joining
from tailrace.gateway.known import Known
from tailrace.gateway.metrics import Metrics
from tailrace.gateway.problems import Problem
from tailrace.gateway.reads import Reads
from tailrace.gateway.requests import Follow
from tailrace.gateway.subscription import Subscription
from tailrace.gateway.sweep import Sweep
from tailrace.gateway.timing import Timing
from tailrace.gateway.waits import Waits
from tailrace.gateway.wire import Wire
from tailrace.kafka.ends import Ends
from tailrace.kafka.events_in import EventsIn
from tailrace.store.channels import Channels
from tailrace.store.reader import Reader, Unavailable

log = logging.getLogger(__name__)

# Looks whether a client may follow what it asks for, and can: raises a Problem that says what was expected. Returns
# what makes the subscription, which is started once it is there.
Factory = Callable[[Any, Identity | None], Awaitable[Callable[[Wire], Subscription]]]


class Gateway:
    """Serves one app from one Redis. It starts and stays up without Redis, and says so to whoever asks.

    `followers` makes subscriptions, by the type of the request: each part puts its own in.
    """

    def __init__(self, app: str, redis: str, prefix: str, timing: Timing, *, kafka: str = "") -> None:
        self.app = app
        self.timing = timing
        self.access: Access | None = None
        self.followers: dict[type[Follow], Factory] = {}
        self.known = Known()
        self.metrics = Metrics(self.known)
        self.reader = Reader(redis, prefix)
        self.channels = Channels(redis, self._receive, self._recovered, ping=timing.ping)
        self.hub = Hub(self.channels, self.reader.channel, self.metrics)
        self.scanning = self.reader.scanning
        self.reads = Reads(self.reader)
        self.waits = Waits(self.channels, self.reader.channel)
        self.ends = Ends(kafka)
        self.events_in = EventsIn(kafka)
        self.joining = Joining(self.hub, self.channels, self.reads, self.known, self.metrics, timing)
        self.sweep = Sweep(self.hub, self.reader, self.metrics, timing.sweep)
        self.metrics.waits.set_function(lambda: len(self.waits))
        self.metrics.link_up.set_function(lambda: self.channels.up)
        self._catalog_channel = self.reader.catalog_channel()
        self._catalog_changed = asyncio.Event()
        self.channels.join(self._catalog_channel)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Everything behind the requests, until the context ends."""
        tasks = [
            asyncio.create_task(_kept_running(part))
            for part in (
                self.channels.run,
                self.sweep.run,
                self._follow_catalog,
                self._keep_alive,
                self._end_slow,
                self._wake,
            )
        ]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self.reader.close()
            await asyncio.to_thread(self.events_in.close)
            await asyncio.to_thread(self.ends.close)

    async def prepare(self, follow: Follow, identity: Identity | None) -> Callable[[Wire], Subscription]:
        """What makes the subscription that a client asks for; raises a Problem for one that it can't have."""
        factory = self.followers.get(type(follow))
        if factory is None:
            raise Problem(
                501,
                "not served",
                expected=sorted(kind.__name__ for kind in self.followers),
                got=type(follow).__name__,
                remedy="This gateway does not serve it: see /docs for what it serves.",
            )
        return await factory(follow, identity)

    async def drain(self) -> None:
        """Take no more streams, and end those there are."""
        self.waits.drain()
        await self.hub.drain(self.timing.grace)

    def _receive(self, channel: bytes, data: bytes) -> None:
        if channel == self._catalog_channel:
            self._catalog_changed.set()
        else:
            self.waits.hear(channel)
            self.hub.deliver(channel, data)

    def _recovered(self) -> None:
        if self.channels.connects > 1:
            self.metrics.reconnects.inc()
        self._catalog_changed.set()
        self.hub.doubt()
        self.sweep.hurry()
        self.waits.wake()

    async def _follow_catalog(self) -> None:
        while True:
            self._catalog_changed.clear()
            try:
                changed = self.known.load(await self.reader.catalog())
                self.joining.rebuild(changed)
                self.waits.wake()
                partitions = self.known.partitions()
                stored = await self.reader.stored(partitions) if partitions else []
                names = [(view, partition) for view, partition, _ in partitions]
                self.metrics.stored(dict(zip(names, stored, strict=True)))
            except Unavailable as error:
                log.debug("catalog=unavailable error=%r", str(error))
            try:
                async with asyncio.timeout(self.timing.sweep if self.known.loaded else self.timing.poll):
                    await self._catalog_changed.wait()
            except TimeoutError:
                continue

    async def _wake(self) -> None:
        """Make up for messages that pub/sub has lost, for requests that wait."""
        while True:
            await asyncio.sleep(self.timing.sweep)
            self.waits.wake()

    async def _keep_alive(self) -> None:
        slot = 0
        while True:
            await asyncio.sleep(self.timing.keep_alive / SLOTS)
            self.hub.keep_alive(slot := (slot + 1) % SLOTS)

    async def _end_slow(self) -> None:
        while True:
            await asyncio.sleep(self.timing.slow / 4)
            self.hub.end_slow(self.timing.slow)


async def _kept_running(part: Callable[[], Awaitable[None]]) -> None:
    """A part that fails in a way nobody foresaw is loud, and starts again."""
    while True:
        try:
            await part()
        except Exception:
            log.exception("part=failed name=%s", getattr(part, "__qualname__", part))
        await asyncio.sleep(1)

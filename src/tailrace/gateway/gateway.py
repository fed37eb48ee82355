"""The gateway's parts, put together, and what runs behind the requests."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any
from uuid import uuid4

from tailrace.access.limits import Limits
from tailrace.access.revoked import Revoked
from tailrace.contracts.commands import commands_topic
from tailrace.gateway.catalog import Known
from tailrace.gateway.connection.doorway import Doorway
from tailrace.gateway.connection.wire import Wire
from tailrace.gateway.guard.access import Access, Identity
from tailrace.gateway.guard.budgets import Budgets, bytes_of, name_of
from tailrace.gateway.guard.presence import Presence, Revoking
from tailrace.gateway.http.waits import Waits
from tailrace.gateway.ingest.schemas import EventSchemas
from tailrace.gateway.live.feeds.registry import FeedHub
from tailrace.gateway.live.keys.reads import Reads
from tailrace.gateway.live.keys.registry import SLOTS, Hub
from tailrace.gateway.live.keys.snapshot import Joining
from tailrace.gateway.live.keys.sweep import Sweep
from tailrace.gateway.live.predicates import Predicates
from tailrace.gateway.live.queries.registry import Queries
from tailrace.gateway.live.queries.snapshot import QueryJoining
from tailrace.gateway.live.requests import Follow, FollowFeed, FollowKeys, FollowQuery, FollowStream
from tailrace.gateway.live.streams.commands import Commanding
from tailrace.gateway.live.streams.connected import HeldStreams
from tailrace.gateway.live.streams.directory import KeptStreams
from tailrace.gateway.live.streams.subscription import StreamSubscription
from tailrace.gateway.live.subscription import Subscription
from tailrace.gateway.metrics import Metrics
from tailrace.gateway.problems import Problem, check_keys
from tailrace.gateway.timing import Timing
from tailrace.kafka.async_delivery import AsyncDelivery
from tailrace.kafka.async_writer import AsyncWriter
from tailrace.kafka.commands_topic import CommandsReader
from tailrace.kafka.ends import Ends
from tailrace.store.read.channels import Channels
from tailrace.store.read.listening import Listening
from tailrace.store.read.matches import Matches
from tailrace.store.read.page_keys import PageKeys
from tailrace.store.read.reader import Reader, Unavailable
from tailrace.store.read.revocations import Revocations
from tailrace.store.read.streams import Streams

log = logging.getLogger(__name__)

_LIMITS = Limits()

# Looks whether a client may follow what it asks for, and can: raises a Problem that says what was expected. Returns
# what makes the subscription, which is started once it is there.
Factory = Callable[[Any, Identity | None], Awaitable[Callable[[Wire], Subscription]]]


class Gateway:
    """Serves one app from one Redis. It starts and stays up without Redis, and says so to whoever asks.

    `followers` makes subscriptions, by the type of the request: each part puts its own in.
    """

    def __init__(
        self, app: str, redis: str, prefix: str, timing: Timing, *, kafka: str = "", limits: Limits = _LIMITS
    ) -> None:
        self.app = app
        self.timing = timing
        self.access: Access | None = None
        self.limits = limits
        self.presence = Presence(limits, timing.grace)
        self.revoked = Revoked()
        self.revoking = Revoking(self.presence, self.revoked, Revocations(redis, prefix), timing.sweep)
        self.followers: dict[type[Follow], Factory] = {}
        self.known = Known()
        self.metrics = Metrics(self.known)
        self.known.failed = partial(self.metrics.set_aside, "catalog")
        self.doorway = Doorway(timing, self.metrics)
        self.budgets = Budgets(limits, self.metrics)
        self.reader = Reader(redis, prefix)
        self.channels = Channels(redis, self._receive, self._recovered, ping=timing.ping)
        self.hub = Hub(self.channels, self.reader.channel, self.metrics)
        self.scanning = self.reader.scanning
        self.page_keys = PageKeys(self.reader.servers, prefix)
        self.reads = Reads(self.reader)
        self.waits = Waits(self.channels, self.reader.channel)
        self.ends = Ends(kafka)
        self.events_in = AsyncDelivery(kafka, "events in")
        self.event_schemas = EventSchemas()
        self.joining = Joining(self.hub, self.channels, self.reads, self.known, self.metrics, timing)
        commands = AsyncWriter(kafka, commands_topic(app), "commands") if kafka else None
        self.commanding = Commanding(commands)
        self.matches = Matches(self.reader.servers, prefix)
        self.predicates = Predicates()
        self.queries = Queries(
            self.channels, self.matches, self.known, self.predicates, self.commanding, self.metrics, timing
        )
        self.query_joining = QueryJoining(self.queries, self.matches, self.reader, self.metrics, timing)
        streams = Streams(self.reader.servers, prefix)
        topic = partial(CommandsReader, kafka, app) if kafka else None
        self.kept_streams = KeptStreams(streams, self.commanding, topic, self.budgets, timing.look)
        self.held_streams = HeldStreams(
            self.channels, self.kept_streams, self._may_add, timing.sweep, partial(self.metrics.set_aside, "stream")
        )
        self.sweep = Sweep(self.hub, self.reader, self.metrics, timing.sweep)
        self.listening = Listening(redis, prefix, uuid4().hex, lease=timing.lease)
        channel = self.listening.channel
        self.feeds = FeedHub(self.channels, self.listening, channel, self.known, self.metrics, timing)
        self.metrics.watch("queries", "Distinct queries that are followed.", lambda: len(self.queries))
        self.metrics.watch("streams", "Clients' streams that have a connection here.", lambda: len(self.held_streams))
        self.metrics.waits.set_function(lambda: len(self.waits))
        self.metrics.link_up.set_function(lambda: self.channels.up)
        self._catalog_channel = self.reader.catalog_channel()
        self._catalog_changed = asyncio.Event()
        self.channels.join(self._catalog_channel)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Everything behind the requests, until the context ends."""
        tasks = [
            asyncio.create_task(self._kept_running(part))
            for part in (
                self.channels.run,
                self.doorway.run,
                self.sweep.run,
                self.feeds.run,
                self.queries.run,
                self.held_streams.run,
                self._follow_catalog,
                self._keep_alive,
                self._end_slow,
                self._wake,
            )
        ]
        if self.access is not None:
            self.channels.join(self.revoking.channel)
            tasks += [
                asyncio.create_task(self._kept_running(part)) for part in (self.revoking.run, self.revoking.follow)
            ]
        try:
            yield
        finally:
            await self.feeds.finish()
            await _ended(tasks)
            await self.commanding.close()
            await self.reader.close()
            await self.listening.close()
            await self.event_schemas.close()
            await asyncio.to_thread(self.events_in.close)
            await asyncio.to_thread(self.ends.close)
            await self.revoking.close()
            if self.access is not None:
                await self.access.close()

    async def prepare(self, follow: Follow, identity: Identity | None) -> Callable[[Wire], Subscription]:
        """What makes the subscription that a client asks for; raises a Problem for one that it can't have."""
        if isinstance(follow, FollowKeys):
            check_keys(self.limits, follow.keys)
        elif isinstance(follow, FollowFeed):
            check_keys(self.limits, [follow.client])
        if self.access is not None:
            follow = await self.access.narrowed(identity, follow)
        factory = self.followers.get(type(follow))
        if factory is None:
            raise Problem(
                501,
                "not served",
                expected=sorted(kind.__name__ for kind in self.followers),
                got=type(follow).__name__,
                remedy="This gateway does not serve it: see /docs for what it serves.",
            )
        if isinstance(follow, FollowStream):
            # Counts as what the stream follows.
            return await factory(follow, identity)
        afford = await self.afford(follow, identity)
        make = await factory(follow, identity)
        return lambda wire: afford(make(wire))

    async def afford(self, follow: Follow, identity: Identity | None) -> Callable[[Subscription], Subscription]:
        """What counts the subscription once it is there; raises a Problem if its user follows too much already."""
        user, budgets = name_of(identity), self.budgets
        size, cost = bytes_of(follow), 0
        if isinstance(follow, FollowQuery):
            cost = await self.cost(follow.view, follow.where, identity)
            budgets.queries.check(user, cost)
            # It is computed for a while after its client has left.
            budgets.pace(user, cost)
        budgets.followed.check(user, size)

        def counted(subscription: Subscription) -> Subscription:
            budgets.queries.hold(subscription, user, cost)
            try:
                budgets.followed.hold(subscription, user, size)
            except Problem:
                budgets.left(subscription)
                raise
            return subscription

        return counted

    async def cost(self, name: str, where: str | None, identity: Identity | None) -> int:
        """What a query costs for every row that changes: as many comparisons, one at least."""
        view = self.known.views.get(name)
        if view is None:
            return 0
        filter = None if self.access is None else self.access.query_filter(identity, name)
        _, predicate = await self.predicates.parse(view, where, filter)
        return max(1, predicate.cost)

    async def drain(self) -> None:
        """Take no more streams, and end those there are."""
        self.waits.drain()
        await self.hub.drain(self.timing.grace)

    def _may_add(self, held: StreamSubscription, keys: Sequence[bytes]) -> None:
        check_keys(self.limits, held.stream.keys or ())
        self.budgets.followed.hold(held, name_of(held.wire.identity), bytes_of(held.asked))
        if self.access is not None:
            self.access.may_follow_keys(held.wire.identity, held.stream.view, keys)

    def _receive(self, channel: bytes, data: bytes) -> None:
        try:
            self._pass_on(channel, data)
        except Exception:
            # One message must not cost the link, and all others with it.
            log.exception("message=dropped channel=%r bytes=%d", channel[:200], len(data))
            self.metrics.set_aside("message")

    def _pass_on(self, channel: bytes, data: bytes) -> None:
        if channel == self._catalog_channel:
            self._catalog_changed.set()
        elif channel == self.revoking.channel:
            self.revoking.hurry()
        elif not (
            self.feeds.deliver(channel, data)
            or self.queries.deliver(channel, data)
            or self.held_streams.deliver(channel)
        ):
            self.waits.hear(channel)
            self.hub.deliver(channel, data)

    def _recovered(self) -> None:
        if self.channels.connects > 1:
            self.metrics.reconnects.inc()
        self._catalog_changed.set()
        self.revoking.hurry()
        self.hub.doubt()
        self.sweep.hurry()
        self.feeds.hurry()
        self.queries.recovered()
        self.held_streams.recovered()
        self.waits.wake()

    async def _kept_running(self, part: Callable[[], Awaitable[None]]) -> None:
        """A part that fails in a way nobody foresaw is loud, and starts again."""
        while True:
            try:
                await part()
            except Exception:
                log.exception("part=failed name=%s", getattr(part, "__qualname__", part))
                self.metrics.set_aside("part")
            await asyncio.sleep(1)

    async def _follow_catalog(self) -> None:
        while True:
            self._catalog_changed.clear()
            try:
                changed = self.known.load(await self.reader.catalog())
                self.joining.rebuild(changed)
                self.feeds.refresh()
                self.queries.rebuild(changed)
                self.waits.wake()
                self.event_schemas.keep(self.known.topics.values())
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


async def _ended(tasks: Iterable[asyncio.Task[None]]) -> None:
    """Cancel tasks until they have ended: what they wait in may take a cancellation for another error, once."""
    left = set(tasks)
    while left:
        for task in left:
            task.cancel()
        _, left = await asyncio.wait(left, timeout=1)

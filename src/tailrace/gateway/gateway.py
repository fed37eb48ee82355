"""The gateway's parts, put together, and the tasks that run behind the requests."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from functools import partial
from uuid import uuid4

from tailrace.access.limits import Limits
from tailrace.access.revoked import Revoked
from tailrace.contracts.commands import commands_topic
from tailrace.events.schemas import EventSchemas
from tailrace.gateway.budgets import Budgets
from tailrace.gateway.catalog import ServedCatalog
from tailrace.gateway.connection.certificate import ServerCertificate
from tailrace.gateway.connection.connections import Connections
from tailrace.gateway.connection.doorway import Doorway
from tailrace.gateway.guard.access import Access
from tailrace.gateway.guard.presence import Presence, Revoking
from tailrace.gateway.live.channels import Bell, ChannelRegistry
from tailrace.gateway.live.commands import CommandWriter
from tailrace.gateway.live.feeds.registry import FeedRegistry
from tailrace.gateway.live.keys.reads import Reads
from tailrace.gateway.live.keys.registry import KeyRegistry
from tailrace.gateway.live.keys.sweep import Sweep
from tailrace.gateway.live.predicates import Predicates
from tailrace.gateway.live.queries.registry import QueryRegistry
from tailrace.gateway.live.streams.connected import ConnectedStreams
from tailrace.gateway.live.streams.directory import StreamDirectory
from tailrace.gateway.live.tick import Tick
from tailrace.gateway.live.waits import Waits
from tailrace.gateway.metrics import Metrics
from tailrace.gateway.timing import Timing
from tailrace.kafka.async_delivery import AsyncDelivery
from tailrace.kafka.async_writer import AsyncWriter
from tailrace.kafka.brokers import Brokers
from tailrace.kafka.commands_topic import CommandsReader
from tailrace.kafka.ends import Ends
from tailrace.store.connection.outages import Unavailable
from tailrace.store.connection.servers import AsyncServers
from tailrace.store.read.channels import Channels
from tailrace.store.read.feed_histories import FeedHistories
from tailrace.store.read.matches import Matches
from tailrace.store.read.page_keys import PageKeys
from tailrace.store.read.reader import Reader
from tailrace.store.read.revocations import Revocations
from tailrace.store.read.scans import Scans
from tailrace.store.read.streams import Streams

log = logging.getLogger(__name__)

_LIMITS = Limits()
# A gateway that serves keys and feeds alone needs none.
_NO_BROKERS = Brokers("")


class Gateway:
    """Serves one app from one Redis. It starts and stays up without Redis, and tells clients that Redis is away.

    `access` decides what clients may have. That is everything, until `run` replaces it. `certificate` is what clients
    are shown, if the gateway speaks TLS itself.
    """

    def __init__(
        self,
        app: str,
        redis: str,
        prefix: str,
        timing: Timing,
        *,
        kafka: Brokers = _NO_BROKERS,
        limits: Limits = _LIMITS,
    ) -> None:
        self.app = app
        self.timing = timing
        self.limits = limits
        self.known = ServedCatalog()
        self.metrics = Metrics(self.known)
        self.known.failed = partial(self.metrics.set_aside, "catalog")
        self.predicates = Predicates()
        self.servers = AsyncServers(redis)
        # Which clients come in, and how much they take.
        self.access = Access(self.known, self.predicates)
        self.presence = Presence(limits, timing.grace)
        self.revoked = Revoked()
        self.revoking = Revoking(self.presence, self.revoked, Revocations(self.servers, prefix), timing.sweep)
        self.doorway = Doorway(timing, self.metrics)
        self.certificate: ServerCertificate | None = None
        self.budgets = Budgets(limits, self.metrics)
        # What is read.
        self.reader = Reader(self.servers, prefix)
        self.scanning = Scans(self.servers, prefix)
        self.page_keys = PageKeys(self.servers, prefix)
        self.reads = Reads(self.reader)
        self.matches = Matches(self.servers, prefix)
        self.listening = FeedHistories(self.servers, prefix, uuid4().hex, lease=timing.lease)
        self.kafka = kafka
        self.ends = Ends(kafka, f"tailrace.{app}.gateway")
        # What is heard, and written to clients.
        self.link = Channels(self.servers, self._receive, self._recovered, ping=timing.ping)
        self.channels = ChannelRegistry(self.link, self.metrics)
        self.tick = Tick(self.metrics)
        self.connections = Connections(self.metrics, timing, self.tick.flush)
        self.waits = Waits(self.channels, self.reader.channel)
        # What is followed.
        commands = AsyncWriter(kafka, commands_topic(app), "commands") if kafka else None
        self.commands = CommandWriter(commands)
        self.keys = KeyRegistry(
            self.channels, self.reader.channel, self.tick, self.reads, self.known, self.metrics, timing
        )
        self.sweep = Sweep(self.keys, self.reader, self.metrics, timing.sweep)
        self.queries = QueryRegistry(
            self.channels,
            self.matches,
            self.reader,
            self.known,
            self.predicates,
            self.commands,
            self.tick,
            self.metrics,
            timing,
        )
        self.feeds = FeedRegistry(
            self.channels, self.listening, self.listening.channel, self.tick, self.known, self.metrics, timing
        )
        streams = Streams(self.servers, prefix)
        topic = partial(CommandsReader, kafka, app) if kafka else None
        self.directory = StreamDirectory(streams, self.commands, topic, self.budgets, timing.look)
        self.connected = ConnectedStreams(self.channels, self.directory, timing.sweep, self.metrics)
        # What clients send.
        self.events_in = AsyncDelivery(kafka, "events in")
        self.event_schemas = EventSchemas()
        self.metrics.watch("queries", "Distinct queries that are followed.", lambda: len(self.queries))
        self.metrics.watch("streams", "Clients' streams that have a connection here.", lambda: len(self.connected))
        self.metrics.waits.set_function(lambda: len(self.waits))
        self.metrics.link_up.set_function(lambda: self.link.up)
        self._catalog_changed = asyncio.Event()
        self.channels.join(self.reader.catalog_channel(), Bell(self._catalog_changed.set))

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run everything behind the requests until the context ends."""
        parts = [
            self.link.run,
            self.doorway.run,
            self.sweep.run,
            self.feeds.run,
            self.queries.run,
            self.connected.run,
            self.connections.run_keep_alive,
            self.connections.run_end_slow,
            self._follow_catalog,
            self._wake,
        ]
        if self.access.on:
            self.channels.join(self.revoking.channel, Bell(self.revoking.hurry))
            parts += [self.revoking.run, self.revoking.follow]
        if self.certificate is not None:
            parts.append(self.certificate.run)
        tasks = [asyncio.create_task(self._kept_running(part)) for part in parts]
        try:
            yield
        finally:
            await self.feeds.finish()
            await _ended(tasks)
            await self.commands.close()
            await self.servers.close()
            await self.event_schemas.close()
            await asyncio.to_thread(self.events_in.close)
            await asyncio.to_thread(self.ends.close)

    async def drain(self) -> None:
        """Accept no more streams, and end those that are open."""
        self.waits.drain()
        await self.connections.drain(self.timing.grace)

    def _receive(self, channel: bytes, data: bytes) -> None:
        self.channels.deliver(channel, data)

    def _recovered(self) -> None:
        if self.link.connects > 1:
            self.metrics.reconnects.inc()
        self._catalog_changed.set()
        self.revoking.hurry()
        self.keys.doubt()
        self.sweep.hurry()
        self.feeds.hurry()
        self.queries.recovered()
        self.connected.recovered()
        self.waits.wake()

    async def _kept_running(self, part: Callable[[], Awaitable[None]]) -> None:
        """Run a part for ever. If it fails in a way that nobody foresaw, log that and start it again."""
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
                self.keys.rebuild(changed)
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
        """Wake waiting requests now and then, because pub/sub may lose messages."""
        while True:
            await asyncio.sleep(self.timing.sweep)
            self.waits.wake()


async def _ended(tasks: Iterable[asyncio.Task[None]]) -> None:
    """Cancel tasks until they have ended: code that they wait in may mistake a cancellation for another error."""
    left = set(tasks)
    while left:
        for task in left:
            task.cancel()
        _, left = await asyncio.wait(left, timeout=1)

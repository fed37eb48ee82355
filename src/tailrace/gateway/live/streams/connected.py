"""Streams that have a connection here: their connections are told of changes, and they are kept while used."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Protocol

from tailrace.contracts.commands import Stream
from tailrace.gateway.live.channels import Bell, ChannelRegistry
from tailrace.gateway.live.streams.directory import StreamDirectory
from tailrace.gateway.metrics import Metrics
from tailrace.store.connection.outages import Unavailable

log = logging.getLogger(__name__)

_TICK = 0.5


class StreamFollower(Protocol):
    """A connection to a stream."""

    stream: Stream

    def take(self, stream: Stream | None) -> None:
        """Take the stream as it is now; None if it has ended."""


class _Connected:
    """The connections to one stream, and when it was last refreshed."""

    def __init__(self, channel: bytes, work: asyncio.Event) -> None:
        self.channel = channel
        self.subscriptions: set[StreamFollower] = set()
        self.refreshed = 0.0
        # The first read makes up for changes from before the channel was joined.
        self.asked = True
        self.bell = Bell(self.ask)
        self._work = work

    def ask(self) -> None:
        """Have the stream read again."""
        self.asked = True
        self._work.set()


class ConnectedStreams:
    """Connections by the id of their stream."""

    def __init__(self, channels: ChannelRegistry, directory: StreamDirectory, sweep: float, metrics: Metrics) -> None:
        self._channels = channels
        self._directory = directory
        self._sweep = sweep
        self._metrics = metrics
        self._connected: dict[str, _Connected] = {}
        self._work = asyncio.Event()

    def __len__(self) -> int:
        return len(self._connected)

    def hold(self, subscription: StreamFollower) -> None:
        """A connection to a stream has begun."""
        id = subscription.stream.id
        connected = self._connected.get(id)
        if connected is None:
            connected = self._connected[id] = _Connected(self._directory.store.channel(id), self._work)
            self._channels.join(connected.channel, connected.bell)
        connected.subscriptions.add(subscription)
        connected.ask()

    def release(self, subscription: StreamFollower) -> None:
        """A connection to a stream has ended."""
        id = subscription.stream.id
        connected = self._connected.get(id)
        if connected is None:
            return
        connected.subscriptions.discard(subscription)
        if not connected.subscriptions:
            del self._connected[id]
            self._channels.leave(connected.channel, connected.bell)

    def recovered(self) -> None:
        """The pub/sub link was replaced: messages may have been lost."""
        for connected in self._connected.values():
            connected.asked = True
        self._work.set()

    async def run(self) -> None:
        """Read changed streams, refresh those in use, and end those that are not, until cancelled."""
        swept = time.monotonic()
        while True:
            try:
                async with asyncio.timeout(_TICK):
                    await self._work.wait()
            except TimeoutError:
                pass
            self._work.clear()
            now = time.monotonic()
            if now - swept >= self._sweep:
                swept = now
                self.recovered()
                self._work.clear()
            try:
                for id, connected in tuple(self._connected.items()):
                    try:
                        await self._tend(connected, now)
                    except Unavailable:
                        raise
                    except Exception:
                        log.exception("stream=failed stream=%s", id)
                        self._metrics.set_aside("stream")
                await self._directory.tend()
            except Unavailable as error:
                log.debug("streams=unavailable error=%r", str(error))
                self._work.clear()
                await asyncio.sleep(_TICK)

    async def _tend(self, connected: _Connected, now: float) -> None:
        subscription = next(iter(connected.subscriptions), None)
        if subscription is None:
            return
        stream = subscription.stream
        due = now - connected.refreshed >= stream.ttl / 3
        if not due and not connected.asked:
            return
        try:
            async with asyncio.timeout(_TICK):
                await self._channels.joined(connected.channel)
        except TimeoutError:
            return
        connected.asked = False
        if due:
            connected.refreshed = now
        try:
            found = await self._directory.refresh(stream, command=due)
        except Unavailable:
            connected.asked = True
            raise
        for one in tuple(connected.subscriptions):
            one.take(found)

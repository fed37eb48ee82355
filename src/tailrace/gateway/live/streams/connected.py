"""Streams that have a connection here: told when they are changed, and kept while they are used."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence

from tailrace.gateway.live.streams.directory import KeptStreams
from tailrace.gateway.live.streams.subscription import StreamSubscription
from tailrace.store.read.channels import Channels
from tailrace.store.read.reader import Unavailable

log = logging.getLogger(__name__)

_TICK = 0.5


class _Held:
    """The connections to one stream, and when it was last refreshed."""

    def __init__(self) -> None:
        self.subscriptions: set[StreamSubscription] = set()
        self.refreshed = 0.0
        self.asked = True


class HeldStreams:
    """Connections by the id of their stream. `check` raises a Problem where a client may not follow keys of a view.

    `failed` is called for a stream that fails in a way nobody foresaw: it is logged, and the others go on.
    """

    def __init__(
        self,
        channels: Channels,
        kept: KeptStreams,
        check: Callable[[StreamSubscription, Sequence[bytes]], None],
        sweep: float,
        failed: Callable[[], None] = lambda: None,
    ) -> None:
        self._failed = failed
        self._channels = channels
        self._kept = kept
        self._check = check
        self._sweep = sweep
        self._held: dict[str, _Held] = {}
        self._names: dict[bytes, str] = {}
        self._work = asyncio.Event()

    def __len__(self) -> int:
        return len(self._held)

    def allow(self, subscription: StreamSubscription, keys: Sequence[bytes]) -> None:
        """Return where the client of a connection may follow keys that were added to its stream."""
        self._check(subscription, keys)

    def hold(self, subscription: StreamSubscription) -> None:
        """A connection to a stream has begun."""
        id = subscription.stream.id
        held = self._held.get(id)
        if held is None:
            held = self._held[id] = _Held()
            channel = self._kept.store.channel(id)
            self._names[channel] = id
            self._channels.join(channel)
        held.subscriptions.add(subscription)
        # What was changed before the channel was joined is read.
        held.asked = True
        self._work.set()

    def release(self, subscription: StreamSubscription) -> None:
        """A connection to a stream has ended."""
        id = subscription.stream.id
        held = self._held.get(id)
        if held is None:
            return
        held.subscriptions.discard(subscription)
        if not held.subscriptions:
            del self._held[id]
            channel = self._kept.store.channel(id)
            del self._names[channel]
            self._channels.leave(channel)

    def deliver(self, channel: bytes) -> bool:
        """A stream was changed; False where the channel is not a stream's."""
        id = self._names.get(channel)
        if id is None:
            return False
        self._held[id].asked = True
        self._work.set()
        return True

    def recovered(self) -> None:
        """The pub/sub link was replaced: messages may have been lost."""
        for held in self._held.values():
            held.asked = True
        self._work.set()

    async def run(self) -> None:
        """Read streams that were changed, refresh those that are used, and end those that are not, until cancelled."""
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
                for id, held in tuple(self._held.items()):
                    try:
                        await self._tend(id, held, now)
                    except Unavailable:
                        raise
                    except Exception:
                        log.exception("stream=failed stream=%s", id)
                        self._failed()
                await self._kept.tend()
            except Unavailable as error:
                log.debug("streams=unavailable error=%r", str(error))
                self._work.clear()
                await asyncio.sleep(_TICK)

    async def _tend(self, id: str, held: _Held, now: float) -> None:
        subscription = next(iter(held.subscriptions), None)
        if subscription is None:
            return
        stream = subscription.stream
        due = now - held.refreshed >= stream.ttl / 3
        if not due and not held.asked:
            return
        try:
            async with asyncio.timeout(_TICK):
                await self._channels.joined(self._kept.store.channel(id))
        except TimeoutError:
            return
        held.asked = False
        if due:
            held.refreshed = now
        try:
            found = await self._kept.refresh(stream, command=due)
        except Unavailable:
            held.asked = True
            raise
        for one in tuple(held.subscriptions):
            one.take(found)

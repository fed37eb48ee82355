"""Requests that wait: lookups, for a key (long poll), and listings, for a store that is behind.

A wait joins the channel of its key, once for all requests that wait for the key. A message wakes them, and
they read the key again, together. Pub/sub may lose messages, so all are also woken now and then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TypeVar

from tailrace.gateway.catalog import ServedView
from tailrace.gateway.live.channels import ChannelRegistry

T = TypeVar("T")

# The most seconds that a client may ask for: proxies commonly end a request that takes longer.
LONGEST = 60.0


class Awaited:
    """A key that requests wait for. Any message of its channel wakes them."""

    __slots__ = ("_signal", "channel", "waiting")

    def __init__(self, channel: bytes) -> None:
        self.channel = channel
        self.waiting = 0
        self._signal = asyncio.Event()

    @property
    def signal(self) -> asyncio.Event:
        """An event, set when the key may have changed since a read that begins after this call."""
        return self._signal

    def wake(self) -> None:
        signal, self._signal = self._signal, asyncio.Event()
        signal.set()

    def receive(self, _: bytes) -> None:
        self.wake()

    def missed(self) -> None:
        self.wake()


class Waits:
    """All keys that requests wait for here. `channel` names the channel of (view, partition, lineage, key)."""

    def __init__(self, channels: ChannelRegistry, channel: Callable[[str, int, str, bytes], bytes]) -> None:
        self._channels = channels
        self._channel = channel
        self._awaited: dict[bytes, Awaited] = {}
        self._others = 0
        self.draining = False

    def __len__(self) -> int:
        return self._others + sum(awaited.waiting for awaited in self._awaited.values())

    @contextmanager
    def counted(self) -> Iterator[None]:
        """Count a request that waits for something else than a key."""
        self._others += 1
        try:
            yield
        finally:
            self._others -= 1

    async def until(
        self, view: ServedView, key: bytes, read: Callable[[], Awaitable[T]], done: Callable[[T], bool], seconds: float
    ) -> T:
        """Read a key until the answer is `done`, the time is up or the gateway drains; returns the last answer."""
        found = await read()
        if done(found):
            return found
        with suppress(TimeoutError), self._awaiting(view, key) as awaited:
            async with asyncio.timeout(min(seconds, LONGEST)):
                await self._channels.joined(awaited.channel)
                while not self.draining:
                    signal = awaited.signal
                    found = await read()
                    if done(found):
                        break
                    await signal.wait()
        return found

    def hear(self, channel: bytes) -> None:
        """Let the requests that wait for a key's channel read again."""
        awaited = self._awaited.get(channel)
        if awaited is not None:
            awaited.wake()

    def wake(self) -> None:
        """Let all requests read again: messages may have been lost, or more is known."""
        for awaited in tuple(self._awaited.values()):
            awaited.wake()

    def drain(self) -> None:
        """End every wait with what is known now, and begin none."""
        self.draining = True
        self.wake()

    @contextmanager
    def _awaiting(self, view: ServedView, key: bytes) -> Iterator[Awaited]:
        channel = self._channel(view.name, view.partition(key), view.lineage, key)
        awaited = self._awaited.get(channel)
        if awaited is None:
            awaited = self._awaited[channel] = Awaited(channel)
            self._channels.join(channel, awaited)
        awaited.waiting += 1
        try:
            yield awaited
        finally:
            awaited.waiting -= 1
            if not awaited.waiting:
                del self._awaited[channel]
                self._channels.leave(channel, awaited)

"""Requests that wait: for keys, the long poll of a lookup; and listings, for a store that is behind.

A wait joins the channel of its key; however many requests wait for one key, it is joined once. A message wakes them,
and they read the key again, together. Pub/sub may lose messages, so all are woken now and then, too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Protocol, TypeVar

from tailrace.gateway.catalog import KnownView
from tailrace.gateway.guard.access import Access, Identity

T = TypeVar("T")

# As many seconds a client may ask for; proxies commonly end a request that takes longer.
LONGEST = 60.0


class Link(Protocol):
    """Where messages come from: `tailrace.store.read.channels.Channels`."""

    def join(self, channel: bytes) -> None:
        """Want a channel."""

    def leave(self, channel: bytes) -> None:
        """Want it no longer."""

    async def joined(self, channel: bytes) -> None:
        """Wait until the messages of a wanted channel come."""


class Awaited:
    """One key that requests wait for."""

    __slots__ = ("_signal", "channel", "waiting")

    def __init__(self, channel: bytes) -> None:
        self.channel = channel
        self.waiting = 0
        self._signal = asyncio.Event()

    @property
    def signal(self) -> asyncio.Event:
        """Is set when the key may hold something else than what is read after this call."""
        return self._signal

    def wake(self) -> None:
        """Let all that wait read again."""
        signal, self._signal = self._signal, asyncio.Event()
        signal.set()


class Waits:
    """All keys that are waited for here. `channel` names the channel of (view, partition, lineage, key)."""

    def __init__(self, link: Link, channel: Callable[[str, int, str, bytes], bytes]) -> None:
        self._link = link
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
        self, view: KnownView, key: bytes, read: Callable[[], Awaitable[T]], done: Callable[[T], bool], seconds: float
    ) -> T:
        """What a read of a key gives once it is `done`, or as it is when the time is up or the gateway drains."""
        found = await read()
        if done(found):
            return found
        with suppress(TimeoutError), self._awaiting(view, key) as awaited:
            async with asyncio.timeout(min(seconds, LONGEST)):
                await self._link.joined(awaited.channel)
                while not self.draining:
                    signal = awaited.signal
                    found = await read()
                    if done(found):
                        break
                    await signal.wait()
        return found

    def hear(self, channel: bytes) -> None:
        """A message has come on a channel."""
        awaited = self._awaited.get(channel)
        if awaited is not None:
            awaited.wake()

    def wake(self) -> None:
        """Let everybody read again: messages may have been lost, or more is known."""
        for awaited in tuple(self._awaited.values()):
            awaited.wake()

    def drain(self) -> None:
        """End every wait with what is known now, and begin none."""
        self.draining = True
        self.wake()

    @contextmanager
    def _awaiting(self, view: KnownView, key: bytes) -> Iterator[Awaited]:
        channel = self._channel(view.name, view.partition(key), view.lineage, key)
        awaited = self._awaited.get(channel)
        if awaited is None:
            awaited = self._awaited[channel] = Awaited(channel)
            self._link.join(channel)
        awaited.waiting += 1
        try:
            yield awaited
        finally:
            awaited.waiting -= 1
            if not awaited.waiting:
                del self._awaited[channel]
                self._link.leave(channel)


class ClientGone(Exception):
    """Nobody is there any more to read the answer."""


async def while_connected(receive: Callable[[], Awaitable[Any]], work: Coroutine[Any, Any, T]) -> T:
    """Do something for a client, and stop when it disconnects; raises ClientGone then. `receive` is that of ASGI."""
    found = await _unless(_disconnected(receive), work)
    if found is None:
        raise ClientGone
    return found.result()


async def while_valid(access: Access | None, identity: Identity | None, work: Coroutine[Any, Any, T]) -> T:
    """Do something for a client as long as its token counts; raises a Problem when that is over or was revoked.

    The end is looked at again before the answer: other clients' requests and the setting of clocks come between.
    """
    if access is None or identity is None:
        return await work
    found = await _unless(access.lapse(identity), work)
    access.check(identity)
    if found is None:
        raise TimeoutError("the token has lapsed, and counts again: the clock was set")
    return found.result()


async def _unless(event: Coroutine[Any, Any, None], work: Coroutine[Any, Any, T]) -> asyncio.Task[T] | None:
    """Do something, and stop where an event comes before it is done; None then. Nothing is left running."""
    task, come = asyncio.create_task(work), asyncio.create_task(event)
    try:
        await asyncio.wait((task, come), return_when=asyncio.FIRST_COMPLETED)
        return task if task.done() else None
    finally:
        for one in (task, come):
            one.cancel()
        await asyncio.gather(task, come, return_exceptions=True)


async def _disconnected(receive: Callable[[], Awaitable[Any]]) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass

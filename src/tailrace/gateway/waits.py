"""Keys that requests wait for: the long poll of a lookup.

A wait joins the channel of its key; however many requests wait for one key, it is joined once. A message wakes them,
and they read the key again, together. Pub/sub may lose messages, so all are woken now and then, too.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Protocol, TypeVar

from tailrace.gateway.access_hook import Access, Identity
from tailrace.gateway.known import KnownView

T = TypeVar("T")

# As many seconds a client may ask for; proxies commonly end a request that takes longer.
LONGEST = 60.0
# A wait that ends with a token ends after it, by any clock, in seconds.
_MARGIN = 0.01


class Link(Protocol):
    """Where messages come from: `tailrace.store.channels.Channels`."""

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
        self.draining = False

    def __len__(self) -> int:
        return sum(awaited.waiting for awaited in self._awaited.values())

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
    task, gone = asyncio.create_task(work), asyncio.create_task(_disconnected(receive))
    try:
        await asyncio.wait((task, gone), return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ClientGone
        return task.result()
    finally:
        for one in (task, gone):
            one.cancel()
        await asyncio.gather(task, gone, return_exceptions=True)


async def while_valid(access: Access | None, identity: Identity | None, work: Coroutine[Any, Any, T]) -> T:
    """Do something for a client as long as its token lasts; raises a Problem then, and where it was revoked meanwhile.

    The end is looked at again before the answer: other clients' requests and the setting of clocks come between.
    """
    if access is None or identity is None or identity.expires is None:
        return await work
    try:
        async with asyncio.timeout(max(0.0, identity.expires / 1000 - time.time()) + _MARGIN):
            found = await work
    except TimeoutError:
        access.check(identity)
        raise
    access.check(identity)
    return found


async def _disconnected(receive: Callable[[], Awaitable[Any]]) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass

"""The pub/sub link: one connection for all channels that a process listens to.

Pub/sub delivers at most once, so the link says when messages may be missing: it calls `recovered` after every
connect, once Redis has confirmed all wanted channels. Whoever reads again then has seen everything. The
client library's own pub/sub reconnects in silence; that is why the link speaks to a plain connection.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable
from contextlib import suppress
from itertools import islice
from typing import Any

import redis

from tailrace.store.connection.address import Node
from tailrace.store.connection.outages import Unavailable, unavailable
from tailrace.store.connection.servers import AsyncServers

log = logging.getLogger(__name__)

_BATCH = 500
_FIRST_DELAY = 0.1
_LONGEST_DELAY = 2.0
_LOST = (Unavailable, redis.RedisError, OSError)


class Channels:
    """Wanted channels, which stay subscribed across failures of the connection.

    `receive` gets each message as (channel, data), and must not raise. The link sends a ping every `ping`
    seconds; a connection that is silent until the next one is replaced.
    """

    def __init__(
        self,
        servers: AsyncServers,
        receive: Callable[[bytes, bytes], None],
        recovered: Callable[[], None],
        *,
        ping: float = 2.0,
    ) -> None:
        self._servers = servers
        self._last: Node | None = None
        self._receive = receive
        self._recovered = recovered
        self._ping = ping
        self._wanted: Counter[bytes] = Counter()
        self._waiting: dict[bytes, asyncio.Event] = {}
        self._work = asyncio.Event()
        self._asked: set[bytes] = set()
        self._subscribed: set[bytes] = set()
        self._unconfirmed: Counter[bytes] = Counter()
        self._to_join: set[bytes] = set()
        self._to_leave: set[bytes] = set()
        self._heard = False
        self.up = False
        # Why the link is down, if it has been tried.
        self.problem: str | None = None
        self.connects = 0

    def join(self, channel: bytes) -> None:
        """Want a channel until `leave` is called as often; `joined` waits until Redis sends its messages."""
        self._wanted[channel] += 1
        if self._wanted[channel] > 1:
            return
        if channel in self._to_leave:
            self._to_leave.discard(channel)
        elif channel not in self._asked:
            self._to_join.add(channel)
            self._work.set()

    def leave(self, channel: bytes) -> None:
        """Undo one `join`."""
        self._wanted[channel] -= 1
        if self._wanted[channel] > 0:
            return
        del self._wanted[channel]
        if (event := self._waiting.pop(channel, None)) is not None:
            # Waiters look again: the channel may be joined again before they do.
            event.set()
        if channel in self._to_join:
            self._to_join.discard(channel)
        elif channel in self._asked:
            self._to_leave.add(channel)
            self._work.set()

    async def joined(self, channel: bytes) -> None:
        """Wait until the link carries every message of a channel from now on, or nobody wants the channel."""
        while channel in self._wanted and channel not in self._subscribed:
            await self._waiting.setdefault(channel, asyncio.Event()).wait()

    async def run(self) -> None:
        """Keep the link up until cancelled."""
        delay = _FIRST_DELAY
        while True:
            try:
                await self._connected()
            except _LOST as error:
                self.problem = self._why(error)
                if self.up or delay == _FIRST_DELAY:
                    log.warning("link=down channels=%d error=%r", len(self._wanted), self.problem)
                delay = _FIRST_DELAY if self.up else min(delay * 2, _LONGEST_DELAY)
            finally:
                self.up = False
                self._forget()
            await asyncio.sleep(delay)

    async def _connected(self) -> None:
        node = await self._choose()
        connection: Any = await self._servers.connected(node)
        try:
            self._to_join = set(self._wanted)
            self._work.set()
            await _together(self._write(connection), self._read(connection), self._watch(node))
        finally:
            await connection.disconnect(nowait=True)

    async def _choose(self) -> Node:
        """A server that hears everything. In a Cluster any node does: take another one than the last time."""
        nodes = await self._servers.nodes()
        at = nodes.index(self._last) + 1 if self._last in nodes else 0
        self._last = nodes[at % len(nodes)]
        return self._last

    async def _watch(self, node: Node) -> None:
        """End the link if its server no longer hears everything."""
        while True:
            await asyncio.sleep(self._ping)
            if not await self._servers.hears(node):
                raise redis.ConnectionError(f"{node.name} hears no longer what is published")

    async def _write(self, connection: Any) -> None:
        clock = asyncio.get_running_loop().time
        next_ping = clock() + self._ping
        self._heard = True
        while True:
            while self._to_join:
                batch = _take(self._to_join)
                self._asked.update(batch)
                self._unconfirmed.update(batch)
                await _send(connection, "SUBSCRIBE", *batch)
            while self._to_leave:
                batch = _take(self._to_leave)
                self._asked.difference_update(batch)
                self._subscribed.difference_update(batch)
                await _send(connection, "UNSUBSCRIBE", *batch)
            if clock() >= next_ping:
                if not self._heard:
                    raise redis.ConnectionError(f"no answer for {self._ping} s")
                self._heard = False
                await _send(connection, "PING")
                next_ping = clock() + self._ping
            with suppress(TimeoutError):
                async with asyncio.timeout_at(next_ping):
                    await self._work.wait()
                    self._work.clear()

    async def _read(self, connection: Any) -> None:
        # No pause between messages that have arrived together, so that they go out together.
        while True:
            reply = await connection.read_response(timeout=math.inf)
            self._heard = True
            kind = reply[0]
            if kind == b"message":
                self._receive(reply[1], reply[2])
            elif kind == b"subscribe":
                self._confirm(reply[1])

    def _confirm(self, channel: bytes) -> None:
        # After leave and join, two confirmations of a channel are under way: the last one counts.
        self._unconfirmed[channel] -= 1
        if self._unconfirmed[channel] > 0:
            return
        del self._unconfirmed[channel]
        if channel in self._asked:
            self._subscribed.add(channel)
            if (event := self._waiting.pop(channel, None)) is not None:
                event.set()
        if not self.up and not self._unconfirmed and not self._to_join:
            self.up, self.problem = True, None
            self.connects += 1
            log.info("link=up channels=%d connects=%d", len(self._asked), self.connects)
            self._recovered()

    def _why(self, error: Exception) -> str:
        found = error if isinstance(error, Unavailable) else None
        found = found or unavailable(error, self._last, key=next(iter(self._wanted), b""))
        return str(found or error) or repr(error)

    def _forget(self) -> None:
        self._asked.clear()
        self._subscribed.clear()
        self._unconfirmed.clear()
        self._to_join = set(self._wanted)
        self._to_leave.clear()


async def _together(*parts: Coroutine[None, None, None]) -> None:
    """Run until one part fails, and raise what it failed with.

    If a part of a `TaskGroup` fails while the group is cancelled, the group raises the failure and the
    cancellation is
    lost: the task that should stop goes on.
    """
    tasks = [asyncio.create_task(part) for part in parts]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _take(channels: set[bytes]) -> Iterable[bytes]:
    batch = list(islice(channels, _BATCH))
    channels.difference_update(batch)
    return batch


async def _send(connection: Any, *command: str | bytes) -> None:
    # The library would open a dropped connection again, without its channels.
    if not connection.is_connected:
        raise redis.ConnectionError("the connection was closed")
    await connection.send_command(*command)

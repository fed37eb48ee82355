"""The hub: from one pub/sub link to the followers of every key."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

from tailrace.gateway.followed import Followed
from tailrace.gateway.follower import Follower
from tailrace.gateway.frames import KEEP_ALIVE
from tailrace.gateway.known import KnownView
from tailrace.gateway.metrics import Metrics
from tailrace.gateway.wire import Wire
from tailrace.store.row import unpack

log = logging.getLogger(__name__)

SLOTS = 15


class Link(Protocol):
    """Where messages come from: `tailrace.store.channels.Channels`."""

    def join(self, channel: bytes) -> None:
        """Want a channel."""

    def leave(self, channel: bytes) -> None:
        """Want it no longer."""


class Hub:
    """All keys that are followed here. It joins a key's channel with its first follower and leaves with the last.

    `channel` names the channel of (view, partition, lineage, key).
    """

    def __init__(self, link: Link, channel: Callable[[str, int, str, bytes], bytes], metrics: Metrics) -> None:
        self._link = link
        self._channel = channel
        self._metrics = metrics
        self._followed: dict[bytes, Followed] = {}
        self._changed: list[Followed] = []
        self._wires: list[set[Wire]] = [set() for _ in range(SLOTS)]
        self._slot = 0
        self.draining = False

    def attach(self, view: KnownView, key: bytes, wire: Wire) -> Follower:
        """Follow a key. The follower hears nothing until its join has made it live."""
        channel = self._channel(view.name, view.partition(key), view.lineage, key)
        followed = self._followed.get(channel)
        if followed is None:
            followed = self._followed[channel] = Followed(view, key, channel, self._mark, self._metrics)
            self._link.join(channel)
        follower = Follower(wire, followed)
        followed.followers.add(follower)
        self._metrics.followers.inc()
        self._metrics.channels.set(len(self._followed))
        return follower

    def detach(self, follower: Follower) -> None:
        """Follow no longer."""
        followed = follower.followed
        if follower not in followed.followers:
            return
        if follower.joining is not None:
            follower.joining.cancel()
        followed.leave(follower)
        self._metrics.followers.dec()
        if not followed.followers:
            del self._followed[followed.channel]
            self._link.leave(followed.channel)
        self._metrics.channels.set(len(self._followed))

    def deliver(self, channel: bytes, data: bytes) -> None:
        """Pass a published row on; what is not one is logged and dropped, and the sweep reads the row."""
        followed = self._followed.get(channel)
        if followed is None:
            return
        try:
            row = unpack(data)
            news = followed.offer(row)
        except Exception:
            log.exception("message=dropped channel=%r bytes=%d", channel[:200], len(data))
            return
        if news:
            self._metrics.delay.observe(max(0.0, time.time() - row.timestamp / 1000))

    def flush(self) -> None:
        """Write all that has changed; runs once per tick of the loop, after the messages of the tick."""
        changed, self._changed = self._changed, []
        for followed in changed:
            followed.flush()

    def followed(self) -> Iterator[Followed]:
        """Every key that has a follower now."""
        return iter(tuple(self._followed.values()))

    def open(self, wire: Wire) -> None:
        """Keep a connection alive from now on; connections take turns, so that no tick has to write to all."""
        self._slot = (self._slot + 1) % SLOTS
        self._wires[self._slot].add(wire)
        self._metrics.connections.inc()

    def close(self, wire: Wire) -> None:
        """Forget a connection."""
        for slot in self._wires:
            if wire in slot:
                slot.remove(wire)
                self._metrics.connections.dec()

    def keep_alive(self, slot: int) -> None:
        """Write a comment to the connections whose turn it is; a client that does not read needs none."""
        for wire in tuple(self._wires[slot % SLOTS]):
            if not wire.paused and not wire.closed.done():
                wire.send(KEEP_ALIVE)

    def drain(self, grace: float) -> None:
        """End every stream; clients that do not read are cut off after the grace, in seconds."""
        self.draining = True
        self.flush()
        wires = [wire for slot in self._wires for wire in slot]
        for wire in wires:
            wire.finish()
        asyncio.get_running_loop().call_later(grace, _abort, wires)
        log.info("drain=started streams=%d", len(wires))

    def _mark(self, followed: Followed) -> None:
        if not self._changed:
            asyncio.get_running_loop().call_soon(self.flush)
        self._changed.append(followed)


def _abort(wires: Iterable[Wire]) -> None:
    for wire in wires:
        wire.abort()

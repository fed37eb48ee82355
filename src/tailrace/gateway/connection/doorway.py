"""The doorway: every connection comes through it, before its first byte.

A connection that owes a request has a deadline, and so has a WebSocket that owes a token. If the descriptors
run low, the connection that has owed for longest makes room. If none owes anything, the newcomer may ask for
health alone. A connection that reads nothing of its answer is cut off. `Connections` and `Presence` look
after WebSockets and streams.
"""

from __future__ import annotations

import asyncio
import logging
import resource
from collections.abc import Collection
from typing import Protocol

from tailrace.gateway.connection.arrivals import Arrivals, Capacity, Unread
from tailrace.gateway.metrics import Metrics
from tailrace.gateway.timing import Timing

log = logging.getLogger(__name__)

# Seconds between two log lines that say that the limit is near.
_QUIET = 60.0


class Guest(Protocol):
    """A connection: a `LendingProtocol`, or the `Session` of a WebSocket that owes a token."""

    def overdue(self) -> None:
        """Its request has not come in time."""

    def abort(self) -> None: ...

    def unread(self) -> int:
        """How many bytes wait for it to read them."""


class Doorway:
    """Which guests may come in, owe a request, or do not read. `connections` are all that are open."""

    def __init__(self, timing: Timing, metrics: Metrics) -> None:
        self.timing = timing
        self._metrics = metrics
        self._arrivals = Arrivals[Guest]()
        self._unread: dict[Guest, Unread] = {}
        self.connections: Collection[object] = ()
        self._said = float("-inf")
        metrics.watch(
            "sockets", "Connections that are open, also those without a request.", lambda: len(self.connections)
        )
        metrics.watch("sockets_most", "So many there may be, by the descriptors.", lambda: capacity().most)
        metrics.watch("sockets_owing", "Of them, those that owe a request or a token.", lambda: len(self._arrivals))

    def enter(self, guest: Guest) -> bool:
        """Take in a new connection, already one of `connections`. False if it may ask for health alone."""
        connections, most = len(self.connections), capacity()
        if most.near(connections):
            self._warn(connections, most)
        ordinary = connections <= most.most
        if not ordinary:
            self._metrics.limited("sockets")
            # A connection that still reads its last answer is spared.
            longest = next((one for one in self._arrivals if one is not guest and not one.unread()), None)
            if longest is not None:
                self._arrivals.forget(longest)
                longest.abort()
                ordinary = True
            elif connections > most.most + most.reserve:
                guest.abort()
                return False
        self.expect(guest, self.timing.request)
        return ordinary

    def leave(self, guest: Guest) -> None:
        """Forget a connection: it has ended, or something else looks after it now."""
        self._arrivals.forget(guest)
        self._unread.pop(guest, None)

    def expect(self, guest: Guest, seconds: float) -> None:
        """A connection owes a request from now on."""
        self._arrivals.expect(guest, asyncio.get_running_loop().time() + seconds)

    def served(self, guest: Guest) -> None:
        self._arrivals.forget(guest)

    def late(self) -> None:
        """Count a request that has begun and has not come in time."""
        self._metrics.limited("request-deadline")

    def refused(self, status: int) -> None:
        """Count bytes that are no request that can be served."""
        self._metrics.refused(status)

    def hold(self, guest: Guest) -> None:
        """Watch whether a client reads the answer that waits for it."""
        self._unread.setdefault(guest, Unread())

    def read(self, guest: Guest) -> None:
        self._unread.pop(guest, None)

    async def run(self) -> None:
        """End connections that owe a request for too long or do not read, until cancelled."""
        while True:
            timing = self.timing
            await asyncio.sleep(min(1.0, min(timing.request, timing.idle, timing.slow, timing.introduction) / 4))
            self._look(asyncio.get_running_loop().time())

    def _look(self, now: float) -> None:
        for guest in self._arrivals.overdue(now):
            guest.overdue()
        for guest, unread in tuple(self._unread.items()):
            if unread.stuck(guest.unread(), now) >= self.timing.slow:
                self._metrics.limited("slow-client")
                guest.abort()

    def _warn(self, connections: int, most: Capacity) -> None:
        now = asyncio.get_running_loop().time()
        if now - self._said >= _QUIET:
            self._said = now
            log.warning(
                "sockets=near-limit open=%d most=%d without_request=%d: raise the limit of open files (ulimit -n)",
                connections,
                most.most,
                len(self._arrivals),
            )


def capacity() -> Capacity:
    """How many connections there may be. The limit of descriptors may change while the process runs."""
    return Capacity.of(resource.getrlimit(resource.RLIMIT_NOFILE)[0])

"""Which clients are connected: how many connections each user has, and which of them have to end."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter

from tailrace.access.identity import Identity
from tailrace.access.limits import BURST, Limits, too_many
from tailrace.access.rates import Rates
from tailrace.access.refused import Refused
from tailrace.access.revoked import Revoked
from tailrace.gateway.budgets import user_of
from tailrace.gateway.connection.close_reasons import TOO_MANY, UNAUTHORIZED, Ending
from tailrace.gateway.connection.wire import Wire
from tailrace.store.connection.outages import Unavailable
from tailrace.store.read.revocations import Revocations

log = logging.getLogger(__name__)

# Connections are checked at least once in so many seconds, and when the first token expires.
_LOOK = 1.0
# How many users may be behind one address.
SHARE = 20


class _Held:
    """The user that a connection counts for, and the identity that it was last seen with."""

    __slots__ = ("identity", "user")

    def __init__(self, user: str) -> None:
        self.user = user
        self.identity: Identity | None = None


class Presence:
    """Counts connections by user, and ends those whose token is over or was revoked.

    The token names the user. A WebSocket that has not sent one yet counts for its address. If access is off,
    there are no users, and only the gateway's own limit counts. A client that does not read why its
    connection ends is cut off after `grace` seconds.
    """

    def __init__(self, limits: Limits, grace: float) -> None:
        self._limits = limits
        self._grace = grace
        self._rates = Rates(limits.connects, limits.connects * BURST)
        self._shared = Rates(limits.connects * SHARE, limits.connects * SHARE * BURST)
        self._users: Counter[str] = Counter()
        self._of: dict[Wire, _Held] = {}
        self._entering = 0

    @property
    def total(self) -> int:
        return len(self._of) + self._entering

    def enter(self, user: str, share: int = 1) -> None:
        """Count a connection that is about to be made; `bind` or `withdraw` follows.

        Raises Refused if the gateway or the user has too many connections, or if the user connects too often. An
        address, which many users may share, has the `share` of several.
        """
        if self.total >= self._limits.connections:
            raise Refused(
                503,
                "no room",
                expected=f"at most {self._limits.connections} connections to this gateway",
                got="as many already",
                remedy="Connect again later; another gateway may have room.",
                retry_after=5,
            )
        if user:
            most = self._limits.user_connections * share
            if self._users[user] >= most:
                raise too_many("connections", f"at most {most} connections of one user", "as many already", 5)
            self.pace(user, share)
        self._users[user] += 1
        self._entering += 1

    def pace(self, user: str, share: int = 1) -> None:
        """Raise Refused if a user asks too often."""
        rates = self._rates if share == 1 else self._shared
        wait = rates.take(user, asyncio.get_running_loop().time())
        if wait > 0:
            most = self._limits.connects * share
            raise too_many("connects", f"at most {most} new connections per second", "more", wait)

    def bind(self, user: str, wire: Wire) -> None:
        """The connection is made; `leave` follows when it ends."""
        self._entering -= 1
        self._of[wire] = _Held(user)

    def withdraw(self, user: str) -> None:
        """The connection is not made after all."""
        self._entering -= 1
        self._less(user)

    def leave(self, wire: Wire) -> None:
        held = self._of.pop(wire, None)
        if held is not None:
            self._less(held.user)

    def look(self, revoked: Revoked, now: float, *, again: bool) -> float:
        """End connections that have to end; returns when the next token expires, in seconds since 1970.

        A token is looked up in the revocations once, and `again` if there are new ones.
        """
        first = float("inf")
        for wire, held in tuple(self._of.items()):
            if wire.identity is None or wire.closed.done():
                continue
            identity = wire.identity
            asked = again
            if identity is not held.identity:
                asked = True
                self._name(wire, held, identity)
            if identity.until <= now or (asked and revoked.includes(identity)):
                self._end(wire, UNAUTHORIZED)
            else:
                first = min(first, identity.until)
        return first

    def _name(self, wire: Wire, held: _Held, identity: Identity) -> None:
        """Count a connection for the user that it has named, first or anew."""
        held.identity, named = identity, user_of(identity)
        if named != held.user:
            self._less(held.user)
            held.user = named
            self._users[named] += 1
            if self._users[named] > self._limits.user_connections:
                self._end(wire, TOO_MANY)

    def _end(self, wire: Wire, ending: Ending) -> None:
        wire.finish(ending)
        # Not by its writer, which waits for the client to read.
        asyncio.get_running_loop().call_later(self._grace, _cut, wire)

    def _less(self, user: str) -> None:
        self._users[user] -= 1
        if self._users[user] <= 0:
            del self._users[user]


class Revoking:
    """Keeps the revocations in step with Redis, and has `presence` end connections that have to end."""

    def __init__(self, presence: Presence, revoked: Revoked, store: Revocations, interval: float) -> None:
        self._presence = presence
        self._revoked = revoked
        self._store = store
        self._interval = interval
        self._told = asyncio.Event()
        self._learnt = asyncio.Event()
        self.channel = store.channel

    def hurry(self) -> None:
        """There are new revocations, or messages about them may have been lost."""
        self._told.set()

    async def run(self) -> None:
        """End connections that have to end, until cancelled, without waiting for Redis."""
        while True:
            now, again = time.time(), self._learnt.is_set()
            self._learnt.clear()
            first = self._presence.look(self._revoked, now, again=again)
            try:
                async with asyncio.timeout(max(0.01, min(_LOOK, first - now))):
                    await self._learnt.wait()
            except TimeoutError:
                continue

    async def follow(self) -> None:
        """Learn from Redis what was revoked, until cancelled."""
        while True:
            self._told.clear()
            await self._read()
            try:
                async with asyncio.timeout(self._interval if self._revoked.loaded else _LOOK):
                    await self._told.wait()
            except TimeoutError:
                continue

    async def _read(self) -> None:
        try:
            found = await self._store.all()
            now = int(time.time() * 1000)
            if self._revoked.learn(found, now):
                log.info("revocations=learnt number=%d", len(found))
                self._learnt.set()
            lost = self._revoked.lost(found, now)
            if lost:
                log.warning("revocations=restored number=%d: Redis had lost them", len(lost))
                await self._store.put(lost)
        except Unavailable as error:
            log.debug("revocations=unavailable error=%r", str(error))


def _cut(wire: Wire) -> None:
    if wire.paused and not wire.lost:
        wire.abort()

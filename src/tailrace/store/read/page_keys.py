"""The keys that the gateways of an app sign the pages of listings with.

    tailrace:movies:page-key:<day since 1970>    string, with an expiry    32 random bytes

The first gateway that needs the key of a day makes it, and all others take that one. A page names the day of its key:
so pages of the day before go on, and older ones end. Nothing is kept in a gateway. Where Redis was emptied, every
gateway signs with the new key from then on, and pages of before are as unknown as made-up ones.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

from tailrace.store.connection.servers import AsyncServers

# For how many seconds a key signs; it is believed for as long after that.
PERIOD = 86_400
_LENGTH = 32


@dataclass(frozen=True)
class PageKey:
    """A key; `number` is the day that it is of."""

    number: int
    secret: bytes = field(repr=False)


class PageKeys:
    """Every method raises Unavailable when it fails. `clock` gives the time in seconds since 1970."""

    def __init__(self, servers: AsyncServers, prefix: str, clock: Callable[[], float] = time.time) -> None:
        self._servers = servers
        self._prefix = prefix
        self._clock = clock

    async def current(self) -> PageKey:
        """The key to sign with; made where there is none yet."""
        number = self._today()
        name = self._name(number)
        made = secrets.token_bytes(_LENGTH)
        async with self._servers.at(name) as redis:
            secret = await cast(Any, redis.get(name))
            if secret is None:
                is_ours = await cast(Any, redis.set(name, made, nx=True, ex=3 * PERIOD))
                secret = made if is_ours else await cast(Any, redis.get(name))
        # One that is no key is not signed with: the page will be unknown.
        return PageKey(number, secret if secret is not None and len(secret) == _LENGTH else made)

    async def named(self, number: int) -> PageKey | None:
        """The key of a day, to check a page with; None where that day is over, or the key is not there."""
        # The clocks of two gateways may be on both sides of midnight.
        if abs(number - self._today()) > 1:
            return None
        name = self._name(number)
        async with self._servers.at(name) as redis:
            secret = await cast(Any, redis.get(name))
        return PageKey(number, secret) if secret is not None and len(secret) == _LENGTH else None

    def _today(self) -> int:
        return int(self._clock() // PERIOD)

    def _name(self, number: int) -> bytes:
        return f"{self._prefix}:page-key:{number}".encode()

"""The keys that the gateways of an app sign the pages of listings with.

    tailrace:movies:page-key:<day since 1970>    string, with an expiry    32 random bytes

The first gateway that needs the key of a day makes it, and all others use that one. A page names the day of
its key, so pages of the day before stay valid, and older ones end. A gateway keeps no key. After Redis was
emptied, all gateways sign with a new key, and older pages are as unknown as forged ones.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

from tailrace.store.connection.servers import AsyncServers

# A key signs for so many seconds, and its pages are accepted for as long after that.
PERIOD = 86_400
_LENGTH = 32


@dataclass(frozen=True)
class PageKey:
    """The key of the day `number`."""

    number: int
    secret: bytes = field(repr=False)


class PageKeys:
    """Every method raises Unavailable when it fails. `clock` gives the time in seconds since 1970."""

    def __init__(self, servers: AsyncServers, prefix: str, clock: Callable[[], float] = time.time) -> None:
        self._servers = servers
        self._prefix = prefix
        self._clock = clock

    async def current(self) -> PageKey:
        """The key to sign with; made if there is none yet."""
        number = self._today()
        name = self._name(number)
        made = secrets.token_bytes(_LENGTH)
        async with self._servers.at(name) as redis:
            secret = await cast(Any, redis.get(name))
            if secret is None:
                is_ours = await cast(Any, redis.set(name, made, nx=True, ex=3 * PERIOD))
                secret = made if is_ours else await cast(Any, redis.get(name))
        # Never sign with something that is no key: the page will be unknown instead.
        return PageKey(number, secret if secret is not None and len(secret) == _LENGTH else made)

    async def named(self, number: int) -> PageKey | None:
        """The key of a day, to check a page with; None if that day is over, or the key is missing."""
        # At midnight, the clocks of two gateways may name different days.
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

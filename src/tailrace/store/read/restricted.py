"""Users who were shown a part of a view: having a position does not mean that they have seen everything before it.

    tailrace:movies:restricted:<digest of user and view>    string, with an expiry

A user who was never restricted leaves nothing here.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Any, cast

from tailrace.store.connection.servers import AsyncServers

# For so many seconds after the last time.
KEPT = 7 * 86_400


class RestrictedUsers:
    """Every method raises Unavailable when it fails."""

    def __init__(self, servers: AsyncServers, prefix: str) -> None:
        self._prefix = prefix
        self._servers = servers.apart()

    async def add(self, user: str, view: str) -> None:
        """Note that a user is shown a part of a view."""
        name = self._name(user, view)
        async with self._servers.at(name) as redis:
            await cast(Any, redis.set(name, b"", ex=KEPT))

    async def includes(self, user: str, view: str) -> bool:
        """Whether a user was shown a part of a view lately."""
        name = self._name(user, view)
        async with self._servers.at(name) as redis:
            return bool(await cast(Any, redis.exists(name)))

    def _name(self, user: str, view: str) -> bytes:
        digest = sha256(f"{user}\0{view}".encode()).hexdigest()
        return f"{self._prefix}:restricted:{digest}".encode()

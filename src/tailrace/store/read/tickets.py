"""Tickets: each lets a client in once, within some seconds, at any gateway.

    tailrace:movies:ticket:<digest>    string, with an expiry    the claims of the token that the ticket stands for

Redis knows only the digest of a ticket, so that nobody who reads Redis can use one.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Any, cast

from tailrace.store.connection.scripts import AsyncScript, script_text
from tailrace.store.connection.servers import AsyncServers


class Tickets:
    """Every method raises Unavailable when it fails."""

    def __init__(self, servers: AsyncServers, prefix: str) -> None:
        self._prefix = prefix
        self._servers = servers.apart()
        self._take = AsyncScript(self._servers, script_text("taken"))

    async def put(self, ticket: str, held: bytes, seconds: float) -> None:
        """Keep what a ticket stands for."""
        name = self._name(ticket)
        async with self._servers.at(name) as redis:
            await cast(Any, redis.set(name, held, px=round(seconds * 1000), nx=True))

    async def take(self, ticket: str) -> bytes | None:
        """End a ticket and return what it stands for; None if it was taken before, is over or never was.

        A cancelled call has taken the ticket or not.
        """
        return cast(bytes | None, await self._take(keys=[self._name(ticket)], args=[]))

    def _name(self, ticket: str) -> bytes:
        return f"{self._prefix}:ticket:{sha256(ticket.encode()).hexdigest()}".encode()

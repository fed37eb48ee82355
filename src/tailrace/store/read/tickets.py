"""Tickets: what a client may have once, within some seconds, from any gateway.

    tailrace:movies:ticket:<digest>    string, with an expiry    the claims of the token that the ticket stands for

A ticket is named by its digest, so that who reads Redis can't use one.
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
        """What a ticket stands for, and its end; None where it was taken, is over or never was.

        Cancelling leaves it taken or not taken.
        """
        return cast(bytes | None, await self._take(keys=[self._name(ticket)], args=[]))

    def _name(self, ticket: str) -> bytes:
        return f"{self._prefix}:ticket:{sha256(ticket.encode()).hexdigest()}".encode()

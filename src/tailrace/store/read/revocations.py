"""Revoked tokens, and subjects of whom all tokens were revoked.

    tailrace:movies:revoked    hash, with an expiry    jti:<id> or sub:<subject> → when, and until when that is kept
                               channel                 one message when there are new ones

Both times are in ms since 1970. Tokens of a subject that were issued after its revocation are valid.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from typing import Any, cast

from tailrace.store.connection.scripts import AsyncScript, Script, script_text
from tailrace.store.connection.servers import AsyncServers, Servers

Times = tuple[int, int]
_TIMES = re.compile(rb"(\d{1,16}) (\d{1,16})", re.ASCII)


def revoked_key(prefix: str) -> bytes:
    """The hash of revocations, and the channel that announces new ones."""
    return f"{prefix}:revoked".encode()


class Revocations:
    """Revocations as a gateway reads them. Every method raises Unavailable when it fails."""

    def __init__(self, servers: AsyncServers, prefix: str) -> None:
        self._servers = servers.apart()
        self._revoke = AsyncScript(self._servers, script_text("revoke"))
        self.channel = revoked_key(prefix)

    async def all(self) -> dict[str, Times]:
        """Every revocation that Redis holds; some may be over."""
        async with self._servers.at(self.channel) as redis:
            found = await cast(Any, redis.hgetall(cast(str, self.channel)))
        read = ((name.decode(errors="replace"), _TIMES.fullmatch(value)) for name, value in found.items())
        return {name: (int(times[1]), int(times[2])) for name, times in read if times is not None}

    async def put(self, revoked: Mapping[str, Times]) -> None:
        """Write revocations that Redis has lost."""
        await self._revoke(keys=[self.channel], args=_arguments(revoked))


def revoke(url: str, prefix: str, name: str, seconds: float) -> None:
    """Revoke a token or a subject now, and keep that for so many seconds; raises Unavailable."""
    servers = Servers(url)
    now = int(time.time() * 1000)
    try:
        Script(servers, script_text("revoke"))(
            keys=[revoked_key(prefix)], args=_arguments({name: (now, now + round(seconds * 1000))})
        )
    finally:
        servers.close()


def _arguments(revoked: Mapping[str, Times]) -> list[Any]:
    times: list[Any] = [int(time.time() * 1000)]
    for name, (at, until) in revoked.items():
        times += [name, at, until]
    return times

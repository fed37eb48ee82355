"""Clients' streams: what each one follows, for any gateway.

A stream is a hash that expires when nobody uses it. The name of the hash is also the channel that announces
changes. If Redis has lost streams, they are still on the commands topic: `search` lets one gateway at a time
look for them there.
"""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Any, cast

from tailrace.store.connection.scripts import AsyncScript, script_text
from tailrace.store.connection.servers import AsyncServers
from tailrace.store.layout.keys import search_key, stream_key

SEARCHING, SEARCHED = b"searching", b"searched"


@dataclass(frozen=True, slots=True)
class Kept:
    """A stream as it was last written: its JSON, None if it has ended; and for how many ms it is kept."""

    revision: int
    text: bytes | None
    left: int


class Streams:
    """Every method raises Unavailable when it fails."""

    def __init__(self, servers: AsyncServers, prefix: str) -> None:
        self._servers = servers
        self._prefix = prefix
        self._write = AsyncScript(servers, script_text("stream"))

    def channel(self, stream: str) -> bytes:
        """The channel that announces changes of a stream; also the name of its key."""
        return stream_key(self._prefix, stream)

    async def get(self, stream: str, *, keep: int | None = None) -> Kept | None:
        """A stream. With `keep`, it is kept for so many ms from now on, unless it has ended."""
        name = cast(str, self.channel(stream))
        async with self._servers.at(self.channel(stream)) as redis:
            pipeline = redis.pipeline(transaction=False)
            pipeline.hmget(name, ["revision", "stream"])
            pipeline.pttl(name)
            (revision, text), left = await pipeline.execute()
            if revision is None:
                return None
            if keep is not None and text:
                await redis.pexpire(name, keep)
                left = keep
        return Kept(int(revision), text or None, max(0, left))

    async def keep(self, stream: str, keep: int) -> None:
        """Keep a stream for so many ms from now on."""
        name = cast(str, self.channel(stream))
        async with self._servers.at(self.channel(stream)) as redis:
            await redis.pexpire(name, keep)

    async def put(self, stream: str, seen: int | None, text: bytes | None, keep: int) -> bool:
        """Write a stream, or that it has ended; False if its revision is not the one that was seen."""
        arguments: list[Any] = ["" if seen is None else seen, text or b"", keep]
        return bool(await self._write([self.channel(stream)], arguments))

    async def search(self, wait: int) -> bool:
        """Begin to look for lost streams; False if another gateway does, or did less than `wait` ms ago."""
        name = cast(str, search_key(self._prefix))
        async with self._servers.at(search_key(self._prefix)) as redis:
            return bool(await redis.set(name, SEARCHING, nx=True, px=wait))

    async def searched(self, wait: int) -> None:
        """End the search; the next one begins after `wait` ms at the earliest."""
        name = cast(str, search_key(self._prefix))
        async with self._servers.at(search_key(self._prefix)) as redis:
            await redis.set(name, SEARCHED, px=wait)

    async def is_searching(self) -> bool:
        """Whether a gateway is looking for lost streams."""
        name = cast(str, search_key(self._prefix))
        async with self._servers.at(search_key(self._prefix)) as redis:
            return bool(await cast(Awaitable[Any], redis.get(name)) == SEARCHING)

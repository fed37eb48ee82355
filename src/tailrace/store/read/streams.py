"""Streams of clients in the store: what each one follows, for whichever gateway is asked.

A stream is a hash that expires when nobody uses it; its name is also the channel that says it was changed. What Redis
has lost is on the commands topic: `searching` lets one gateway at a time look for it there.
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
    """A stream as it was last written: its JSON, None where it has ended; and for how many ms it is kept."""

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
        """The channel that says that a stream was changed; also the name of its key."""
        return stream_key(self._prefix, stream)

    async def get(self, stream: str, *, keep: int | None = None) -> Kept | None:
        """A stream; kept for so many ms from now on where told. One that has ended is not kept longer."""
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
        """Write a stream, or that it has ended, where it is as it was seen; False where it was changed meanwhile."""
        arguments: list[Any] = ["" if seen is None else seen, text or b"", keep]
        return bool(await self._write([self.channel(stream)], arguments))

    async def search(self, wait: int) -> bool:
        """Begin to look for lost streams; False where another gateway does, or has done so less than `wait` ms ago."""
        name = cast(str, search_key(self._prefix))
        async with self._servers.at(search_key(self._prefix)) as redis:
            return bool(await redis.set(name, SEARCHING, nx=True, px=wait))

    async def searched(self, wait: int) -> None:
        """The search is over; the next one is made after `wait` ms at the earliest."""
        name = cast(str, search_key(self._prefix))
        async with self._servers.at(search_key(self._prefix)) as redis:
            await redis.set(name, SEARCHED, px=wait)

    async def is_searching(self) -> bool:
        """Whether a gateway looks for lost streams now."""
        name = cast(str, search_key(self._prefix))
        async with self._servers.at(search_key(self._prefix)) as redis:
            return bool(await cast(Awaitable[Any], redis.get(name)) == SEARCHING)

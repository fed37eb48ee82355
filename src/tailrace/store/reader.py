"""The gateway's side of the store: rows, positions and the catalog."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import redis.asyncio
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from tailrace.store.keys import catalog_key, partition_keys
from tailrace.store.row import Row, unpack
from tailrace.store.stored import FIELDS, Stored
from tailrace.store.stored import stored as stored_of

# What a reader gets while Redis is away, is loading its data or refuses to answer.
Unavailable = (redis.RedisError, OSError)

# Redis answers in well under a millisecond: one that needs seconds is as good as away.
TIMEOUT = 5.0
CONNECT_TIMEOUT = 3.0


@dataclass(frozen=True, slots=True)
class Held:
    """What one read found: the row or tombstone of a key, and how far its partition is (see `Stored`)."""

    row: Row | None
    offset: int | None
    whole: bool
    target: int | None = None
    generation: int | None = None
    pruned: int = -1


class Reader:
    """Reads Redis. Every method raises one of `Unavailable` when it fails."""

    def __init__(self, url: str, prefix: str) -> None:
        self._prefix = prefix
        # One retry, for a pooled connection that has died since its last use; a timeout is not repeated.
        self._redis = redis.asyncio.Redis.from_url(
            url,
            retry=Retry(NoBackoff(), 1, supported_errors=(redis.ConnectionError,)),
            socket_timeout=TIMEOUT,
            socket_connect_timeout=CONNECT_TIMEOUT,
        )

    async def held(self, view: str, partition: int, lineage: str, keys: Sequence[bytes]) -> list[Held]:
        """What keys of one partition hold, all read at one moment."""
        names = partition_keys(self._prefix, view, partition)
        pipeline = self._redis.pipeline(transaction=True)
        pipeline.hmget(cast(str, names.position), FIELDS)
        pipeline.hmget(cast(str, names.rows), cast(list[str], keys))
        pipeline.hmget(cast(str, names.gone), cast(list[str], keys))
        position, rows, gone = await pipeline.execute()
        stored = stored_of(position, lineage)
        if stored.offset is None:
            return [Held(None, None, False)] * len(keys)
        return [
            Held(
                unpack(row) if row is not None else unpack(tomb) if tomb is not None else None,
                stored.offset,
                stored.whole,
                stored.target,
                stored.generation,
                stored.pruned,
            )
            for row, tomb in zip(rows, gone, strict=True)
        ]

    async def stored(self, partitions: Sequence[tuple[str, int, str]]) -> list[Stored]:
        """How far each (view, partition, lineage) is."""
        pipeline = self._redis.pipeline(transaction=False)
        for view, partition, _ in partitions:
            names = partition_keys(self._prefix, view, partition)
            pipeline.hmget(cast(str, names.position), FIELDS)
        found = await pipeline.execute()
        return [stored_of(position, lineage) for (_, _, lineage), position in zip(partitions, found, strict=True)]

    async def catalog(self) -> dict[str, bytes]:
        """The records of the catalog topic, by record key."""
        found = await cast(Awaitable[dict[bytes, bytes]], self._redis.hgetall(catalog_key(self._prefix)))
        return {key.decode(): value for key, value in found.items()}

    def channel(self, view: str, partition: int, lineage: str, key: bytes) -> bytes:
        """The channel that the changes of one key are published on."""
        return partition_keys(self._prefix, view, partition).channel(lineage, key)

    def catalog_channel(self) -> bytes:
        """The channel that says the catalog has changed."""
        return catalog_key(self._prefix).encode()

    async def ping(self) -> None:
        """Ask whether Redis answers."""
        await cast(Awaitable[Any], self._redis.ping())

    async def close(self) -> None:
        """Close the connections."""
        await self._redis.aclose()

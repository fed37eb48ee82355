"""The gateway's side of the store: rows, positions, the catalog, and the channels of rows."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import redis.asyncio
from redis.asyncio.client import PubSub
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from tailrace.store.keys import catalog_key, partition_keys
from tailrace.store.row import Row, unpack

# What a reader gets while Redis is away or loading its data.
Unavailable = (redis.ConnectionError, redis.TimeoutError, redis.exceptions.BusyLoadingError, OSError)


@dataclass(frozen=True, slots=True)
class Held:
    """What one read found: the row or tombstone of a key, and how far its partition is.

    `offset` is None where the store has no position of the view's lineage: nothing is known of the partition.
    `whole` is False while the partition is still being restored from the changelog.
    """

    row: Row | None
    offset: int | None
    whole: bool


class Reader:
    """Reads Redis. Every method raises one of `Unavailable` when it fails."""

    def __init__(self, url: str, prefix: str) -> None:
        self._prefix = prefix
        self._redis = redis.asyncio.Redis.from_url(
            url, retry=Retry(NoBackoff(), 1), socket_timeout=10, socket_connect_timeout=5
        )

    async def held(self, view: str, partition: int, lineage: str, keys: Sequence[bytes]) -> list[Held]:
        """What keys of one partition hold, all read at one moment."""
        names = partition_keys(self._prefix, view, partition)
        pipeline = self._redis.pipeline(transaction=True)
        pipeline.hmget(cast(str, names.position), ["lineage", "offset", "target"])
        pipeline.hmget(cast(str, names.rows), cast(list[str], keys))
        pipeline.hmget(cast(str, names.gone), cast(list[str], keys))
        (stored, offset, target), rows, gone = await pipeline.execute()
        if stored != lineage.encode():
            return [Held(None, None, False)] * len(keys)
        whole = int(offset) >= int(target)
        return [
            Held(
                unpack(row) if row is not None else unpack(tomb) if tomb is not None else None,
                int(offset),
                whole,
            )
            for row, tomb in zip(rows, gone, strict=True)
        ]

    async def catalog(self) -> dict[str, bytes]:
        """The records of the catalog topic, by record key."""
        found = await cast(Awaitable[dict[bytes, bytes]], self._redis.hgetall(catalog_key(self._prefix)))
        return {key.decode(): value for key, value in found.items()}

    def channel(self, view: str, partition: int, key: bytes) -> bytes:
        """The channel that the changes of one key are published on."""
        return partition_keys(self._prefix, view, partition).channel(key)

    def catalog_channel(self) -> bytes:
        """The channel that says the catalog has changed."""
        return catalog_key(self._prefix).encode()

    def pubsub(self) -> PubSub:
        """A new pub/sub connection."""
        return self._redis.pubsub(ignore_subscribe_messages=False)

    async def ping(self) -> None:
        """Ask whether Redis answers."""
        await cast(Awaitable[Any], self._redis.ping())

    async def close(self) -> None:
        """Close the connections."""
        await self._redis.aclose()

"""What the gateway reads of views: rows, positions, the catalog and reports."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from typing import Any, cast

from tailrace.contracts.freshness import Report
from tailrace.store.connection.servers import AsyncServers
from tailrace.store.layout.keys import catalog_key, freshness_key, partition_keys
from tailrace.store.layout.reports import read_reports
from tailrace.store.layout.row import StoredRow, unpack
from tailrace.store.layout.stored_position import FIELDS, StoredPosition, read_position


@dataclass(frozen=True, slots=True)
class KeyRead:
    """One read of a key: its row or tombstone, and how far its partition has come (see `StoredPosition`)."""

    row: StoredRow | None
    offset: int | None
    whole: bool
    target: int | None = None
    generation: int | None = None
    pruned: int = -1


class Reader:
    """Reads Redis. Every method raises Unavailable when it fails."""

    def __init__(self, servers: AsyncServers, prefix: str) -> None:
        self._prefix = prefix
        self._servers = servers

    async def held(self, view: str, partition: int, lineage: str, keys: Sequence[bytes]) -> list[KeyRead]:
        """Read keys of one partition, all at one moment."""
        names = partition_keys(self._prefix, view, partition)
        async with self._servers.at(names.position) as redis:
            pipeline = redis.pipeline(transaction=True)
            pipeline.hmget(cast(str, names.position), FIELDS)
            pipeline.hmget(cast(str, names.rows), cast(list[str], keys))
            pipeline.hmget(cast(str, names.gone), cast(list[str], keys))
            position, rows, gone = await pipeline.execute()
        stored = read_position(position, lineage)
        if stored.offset is None:
            return [KeyRead(None, None, False)] * len(keys)
        return [
            KeyRead(
                unpack(row) if row is not None else unpack(tomb) if tomb is not None else None,
                stored.offset,
                stored.whole,
                stored.target,
                stored.generation,
                stored.pruned,
            )
            for row, tomb in zip(rows, gone, strict=True)
        ]

    async def stored(self, partitions: Sequence[tuple[str, int, str]]) -> list[StoredPosition]:
        """How far each (view, partition, lineage) has come."""
        names = [partition_keys(self._prefix, view, partition).position for view, partition, _ in partitions]
        found: dict[int, Any] = {}
        for numbers in await self._servers.together(names):
            async with self._servers.at(names[numbers[0]]) as redis:
                pipeline = redis.pipeline(transaction=False)
                for n in numbers:
                    pipeline.hmget(cast(str, names[n]), FIELDS)
                found.update(zip(numbers, await pipeline.execute(), strict=True))
        return [read_position(found[n], lineage) for n, (_, _, lineage) in enumerate(partitions)]

    async def catalog(self) -> dict[str, bytes]:
        """The records of the catalog topic, by record key."""
        name = catalog_key(self._prefix)
        async with self._servers.at(name.encode()) as redis:
            found = await cast(Awaitable[dict[bytes, bytes]], redis.hgetall(name))
        return {key.decode(): value for key, value in found.items()}

    async def reports(self) -> dict[str, list[Report]]:
        """What materializers report of each view and feed."""
        name = freshness_key(self._prefix)
        async with self._servers.at(name.encode()) as redis:
            return read_reports(await cast(Awaitable[dict[bytes, bytes]], redis.hgetall(name)))

    def channel(self, view: str, partition: int, lineage: str, key: bytes) -> bytes:
        """The channel of one key's changes."""
        return partition_keys(self._prefix, view, partition).channel(lineage, key)

    def catalog_channel(self) -> bytes:
        """The channel that announces changes of the catalog."""
        return catalog_key(self._prefix).encode()

    async def ping(self) -> None:
        """Raise Unavailable unless Redis answers."""
        async with self._servers.at(catalog_key(self._prefix).encode()) as redis:
            await cast(Awaitable[Any], redis.ping())

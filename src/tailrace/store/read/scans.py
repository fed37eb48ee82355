"""Scans of a partition: its rows, or its tombstones, some at a time.

A scan that runs to its end returns everything that was there from its beginning to its end, perhaps some of
it twice. What comes or goes meanwhile may be in it or not. Each batch says how far the partition was at that
moment: a generation other than before means that the scan has left the rows that it began with.

A cursor is valid for the server process that gave it. Another one, after a restart or a failover, has the
same rows in another order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from redis.exceptions import NoPermissionError

from tailrace.store.connection.servers import AsyncServers
from tailrace.store.layout.keys import partition_keys
from tailrace.store.layout.row import StoredRow, unpack
from tailrace.store.layout.stored_position import FIELDS, StoredPosition, read_position


@dataclass(frozen=True, slots=True)
class ScanBatch:
    """Rows or tombstones by key, and how far the partition was. `cursor` leads to the next batch; 0 after the last."""

    rows: dict[bytes, StoredRow]
    cursor: int
    stored: StoredPosition


class Scans:
    """Scans partitions. Every method raises Unavailable when it fails."""

    def __init__(self, servers: AsyncServers, prefix: str) -> None:
        self._servers = servers
        self._prefix = prefix

    async def batch(
        self, view: str, partition: int, lineage: str, *, gone: bool = False, cursor: int = 0, count: int = 100
    ) -> ScanBatch:
        """About `count` rows, or tombstones, from a cursor on; a small hash comes whole."""
        names = partition_keys(self._prefix, view, partition)
        async with self._servers.at(names.position) as redis:
            pipeline = redis.pipeline(transaction=True)
            pipeline.hmget(cast(str, names.position), FIELDS)
            pipeline.hscan(cast(str, names.gone if gone else names.rows), cursor, count=count)
            position, (following, found) = await pipeline.execute()
        return ScanBatch(
            {key: unpack(row) for key, row in found.items()}, int(following), read_position(position, lineage)
        )

    async def server(self, view: str, partition: int) -> str:
        """The server process that holds a partition; empty if this user may not ask Redis for that."""
        name = partition_keys(self._prefix, view, partition).position
        async with self._servers.at(name) as redis:
            try:
                found = await redis.info("server")
            except NoPermissionError:
                return ""
        return str(found.get("run_id", ""))[:8]

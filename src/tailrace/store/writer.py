"""The materializer's side of the store: atomic batches and positions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import redis
from redis.backoff import NoBackoff
from redis.commands.core import Script
from redis.retry import Retry

from tailrace.catalog import APP_RECORD, Catalog
from tailrace.record import Change
from tailrace.store.keys import PartitionKeys, catalog_key, partition_keys
from tailrace.store.row import unpack
from tailrace.store.scripts import script_text
from tailrace.store.stored import FIELDS, Stored, stored

# What Redis answers while it can't take writes: wait and try again, never skip.
Unavailable = (
    redis.ConnectionError,
    redis.TimeoutError,
    redis.exceptions.ReadOnlyError,
    redis.exceptions.BusyLoadingError,
    redis.exceptions.OutOfMemoryError,
)


@dataclass(frozen=True, slots=True)
class Applied:
    """The batch is in the store; `accepted` of its changes were newer than what the store held.

    `old` of them were of an earlier generation than the one served, and of keys that the store does not know.
    """

    accepted: int
    old: int = 0


@dataclass(frozen=True, slots=True)
class Moved:
    """Nothing was written: the store holds another offset than believed, or None where it holds no position."""

    offset: int | None


@dataclass(frozen=True, slots=True)
class Begun:
    """What the store holds of a partition that was begun: up to which offset, and of which generation."""

    offset: int
    generation: int


class Writer:
    """Writes changes to Redis. Every method is one round trip and raises one of `Unavailable` when it fails."""

    def __init__(self, url: str, prefix: str) -> None:
        self.prefix = prefix
        self.redis = redis.Redis.from_url(
            url,
            retry=Retry(NoBackoff(), 0),
            socket_timeout=10,
            socket_connect_timeout=5,
            health_check_interval=0,
        )
        self._apply = self.script("apply")
        self._begin = self.script("begin")

    def script(self, name: str) -> Script:
        """The script in the file of this name; it is loaded when Redis does not know it."""
        return self.redis.register_script(script_text(name))

    def keys(self, view: str, partition: int) -> PartitionKeys:
        """The keys of one partition."""
        return partition_keys(self.prefix, view, partition)

    def begin(
        self, view: str, partition: int, lineage: str, target: int, *, generation: int, anew: bool = False
    ) -> Begun:
        """What the store holds of a partition, after emptying one of another lineage, or any if `anew`.

        `generation` is what an emptied partition is restored to.
        """
        args: list[Any] = [lineage, target, int(anew), generation]
        offset, held = cast(list[bytes], self._begin(keys=self.keys(view, partition).all, args=args))
        return Begun(int(offset), int(held))

    def apply(
        self, view: str, partition: int, lineage: str, expected: int, reached: int, changes: Sequence[Change]
    ) -> Applied | Moved:
        """Apply changes, at most one per key and generation, that lead from the offset `expected` to `reached`."""
        keys, args = self.batch(view, partition, lineage, expected, reached, changes)
        return applied(cast(list[Any], self._apply(keys=keys, args=args)))

    def batch(
        self, view: str, partition: int, lineage: str, expected: int, reached: int, changes: Sequence[Change]
    ) -> tuple[list[bytes], list[Any]]:
        """The keys and arguments of `apply.lua`."""
        keys = self.keys(view, partition)
        args: list[Any] = [lineage, expected, reached, keys.channel(lineage, b"")]
        for c in changes:
            meta = b"%d %d %d %d" % (c.generation, c.version, c.offset, c.timestamp)
            args += (c.key, meta, c.value or b"", b"" if c.expires is None else c.expires)
        return keys.all, args

    def offsets(self, partitions: Sequence[tuple[str, int, str]]) -> list[int | None]:
        """The stored offset of each (view, partition, lineage); None where the store has no position of the lineage."""
        return [found.offset for found in self.stored(partitions)]

    def stored(self, partitions: Sequence[tuple[str, int, str]]) -> list[Stored]:
        """How far each (view, partition, lineage) is."""
        pipeline = self.redis.pipeline(transaction=False)
        for view, partition, _ in partitions:
            pipeline.hmget(cast(str, self.keys(view, partition).position), FIELDS)
        found = pipeline.execute()
        return [stored(fields, lineage) for (_, _, lineage), fields in zip(partitions, found, strict=True)]

    def newest(self, view: str, partition: int, keys: Sequence[bytes]) -> list[Change | None]:
        """The change of highest rank that the store holds of each key, kept back or not; None where it has no row."""
        names = self.keys(view, partition)
        pipeline = self.redis.pipeline(transaction=True)
        for rows in (names.next_rows, names.rows):
            pipeline.hmget(cast(str, rows), cast(list[str], keys))
        for expiries in (names.next_expiries, names.expiries):
            for key in keys:
                pipeline.zscore(cast(str, expiries), cast(str, key))
        kept, served, *expires = pipeline.execute()
        found: list[Change | None] = []
        for n, key in enumerate(keys):
            data = kept[n] or served[n]
            if data is None:
                found.append(None)
                continue
            row, score = unpack(data), expires[n if kept[n] else len(keys) + n]
            expiry = None if score is None else int(score)
            found.append(Change(key, row.value, row.generation, row.version, row.timestamp, row.offset, expiry))
        return found

    def put_catalog(self, record: str, value: bytes | None) -> None:
        """Copy one record of the catalog topic, and tell the gateways."""
        key = catalog_key(self.prefix)
        pipeline = self.redis.pipeline(transaction=True)
        if value is None:
            pipeline.hdel(key, record)
        else:
            pipeline.hset(key, record, cast(str, value))
        pipeline.publish(key, record)
        pipeline.execute()

    def some_key(self, view: str, partition: int) -> str | None:
        """The key of some row in a partition; None where it has no row."""
        found = cast(bytes | None, self.redis.hrandfield(cast(str, self.keys(view, partition).rows)))
        return found.decode() if found is not None else None

    def partitions(self, view: str) -> int:
        """The partitions of a view, as in the copy of the catalog; 0 where it has no such view."""
        found = cast(bytes | None, self.redis.hget(catalog_key(self.prefix), APP_RECORD))
        views = Catalog.decode(found).views if found is not None else {}
        return views[view].partitions if view in views else 0

    def ping(self) -> None:
        """Ask whether Redis answers."""
        self.redis.ping()

    def close(self) -> None:
        """Close the connections."""
        self.redis.close()


def applied(result: Sequence[Any]) -> Applied | Moved:
    """What `apply.lua` says."""
    return Applied(int(result[1]), int(result[2])) if result[0] == b"applied" else moved(result[1])


def moved(offset: bytes) -> Moved:
    """What a script says with `moved`."""
    return Moved(int(offset) if offset != b"" else None)

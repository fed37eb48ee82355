"""The materializer's side of the store: atomic batches and positions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, cast

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from tailrace.catalog import APP_RECORD, Catalog
from tailrace.record import Change
from tailrace.store.keys import catalog_key, partition_keys

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
    """The batch is in the store; `accepted` of its changes were newer than what the store held."""

    accepted: int


@dataclass(frozen=True, slots=True)
class Moved:
    """Nothing was written: the store holds another offset than believed, or None where it holds no position."""

    offset: int | None


class Writer:
    """Writes changes to Redis. Every method is one round trip and raises one of `Unavailable` when it fails."""

    def __init__(self, url: str, prefix: str) -> None:
        self._prefix = prefix
        self._redis = redis.Redis.from_url(
            url,
            retry=Retry(NoBackoff(), 0),
            socket_timeout=10,
            socket_connect_timeout=5,
            health_check_interval=0,
        )
        scripts = files("tailrace.store")
        self._apply = self._redis.register_script((scripts / "apply.lua").read_text())
        self._begin = self._redis.register_script((scripts / "begin.lua").read_text())

    def begin(self, view: str, partition: int, lineage: str, target: int, *, anew: bool = False) -> int:
        """The offset that the store holds for a partition, after emptying one of another lineage, or any if `anew`."""
        keys = partition_keys(self._prefix, view, partition)
        return int(
            cast(bytes, self._begin(keys=[keys.rows, keys.gone, keys.position], args=[lineage, target, int(anew)]))
        )

    def apply(
        self, view: str, partition: int, lineage: str, expected: int, reached: int, changes: Sequence[Change]
    ) -> Applied | Moved:
        """Apply changes, at most one per key, that lead from the offset `expected` to the offset `reached`."""
        keys = partition_keys(self._prefix, view, partition)
        args: list[Any] = [lineage, expected, reached, keys.channel(lineage, b"")]
        for c in changes:
            args += (c.key, b"%d %d %d %d" % (c.generation, c.version, c.offset, c.timestamp), c.value or b"")
        result = cast(list[Any], self._apply(keys=[keys.rows, keys.gone, keys.position], args=args))
        if result[0] == b"applied":
            return Applied(int(result[1]))
        return Moved(int(result[1]) if result[1] != b"" else None)

    def offsets(self, partitions: Sequence[tuple[str, int, str]]) -> list[int | None]:
        """The stored offset of each (view, partition, lineage); None where the store has no position of the lineage."""
        pipeline = self._redis.pipeline(transaction=False)
        for view, partition, _ in partitions:
            pipeline.hmget(cast(str, partition_keys(self._prefix, view, partition).position), ["lineage", "offset"])
        found = pipeline.execute()
        return [
            int(offset) if stored == lineage.encode() else None
            for (_, _, lineage), (stored, offset) in zip(partitions, found, strict=True)
        ]

    def put_catalog(self, record: str, value: bytes | None) -> None:
        """Copy one record of the catalog topic, and tell the gateways."""
        key = catalog_key(self._prefix)
        pipeline = self._redis.pipeline(transaction=True)
        if value is None:
            pipeline.hdel(key, record)
        else:
            pipeline.hset(key, record, cast(str, value))
        pipeline.publish(key, record)
        pipeline.execute()

    def some_key(self, view: str, partition: int) -> str | None:
        """The key of some row in a partition; None where it has no row."""
        keys = partition_keys(self._prefix, view, partition)
        found = cast(bytes | None, self._redis.hrandfield(cast(str, keys.rows)))
        return found.decode() if found is not None else None

    def partitions(self, view: str) -> int:
        """The partitions of a view, as in the copy of the catalog; 0 where it has no such view."""
        found = cast(bytes | None, self._redis.hget(catalog_key(self._prefix), APP_RECORD))
        views = Catalog.decode(found).views if found is not None else {}
        return views[view].partitions if view in views else 0

    def ping(self) -> None:
        """Ask whether Redis answers."""
        self._redis.ping()

    def close(self) -> None:
        """Close the connections."""
        self._redis.close()

"""Views in the store, as the materializer writes them: atomic batches, positions, and the copy of the catalog."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, cast

import redis

from tailrace.contracts.catalog import APP_RECORD, Catalog
from tailrace.contracts.record import Change
from tailrace.store.connection.outages import Unavailable
from tailrace.store.connection.scripts import Script, script_text
from tailrace.store.connection.servers import Servers
from tailrace.store.layout.keys import PartitionKeys, catalog_key, partition_keys
from tailrace.store.layout.packed import Packed, pack
from tailrace.store.layout.row import unpack
from tailrace.store.layout.stored_position import FIELDS, StoredPosition, read_position


@dataclass(frozen=True, slots=True)
class Applied:
    """The batch is in the store: `accepted` of its changes were newer than what the store held.

    `old` of them were of an earlier generation than the one served, and of keys that the store does not know.
    """

    accepted: int
    old: int = 0


@dataclass(frozen=True, slots=True)
class PositionMoved:
    """Nothing was written: the store holds this offset, and not the believed one; None if it holds no position."""

    offset: int | None


@dataclass(frozen=True, slots=True)
class Rejected:
    """Nothing was written: Redis answered with this error, and may do so again."""

    reason: str


@dataclass(frozen=True, slots=True)
class Parcel:
    """A batch of one partition that leads from the offset `expected` to `reached`."""

    view: str
    partition: int
    lineage: str
    expected: int
    reached: int
    packed: Packed


@dataclass(frozen=True, slots=True)
class Begun:
    """What the store holds of a partition that was begun: its offset and its generation."""

    offset: int
    generation: int


class StoreWriter:
    """Writes changes to Redis. Each method is one round trip, and raises Unavailable if it fails."""

    def __init__(self, url: str, prefix: str) -> None:
        self.prefix = prefix
        self._servers = Servers(url)
        self._apply = self.script("apply")
        self._begin = self.script("begin")
        self._as_of = self.script("as_of")

    def script(self, *names: str) -> Script:
        """The script in the files of these names; see `script_text`."""
        return self.script_of(script_text(*names))

    def script_of(self, text: str) -> Script:
        """A script of this text."""
        return Script(self._servers, text)

    def at(self, key: bytes) -> AbstractContextManager[redis.Redis]:
        """The client of the server that holds a key, for the time of a `with`; see `Servers.at`."""
        return self._servers.at(key)

    def keys(self, view: str, partition: int) -> PartitionKeys:
        """The keys of one partition."""
        return partition_keys(self.prefix, view, partition)

    def together(self, keys: Sequence[bytes]) -> list[list[int]]:
        """See `Servers.together`."""
        return self._servers.together(keys)

    def begin(
        self, view: str, partition: int, lineage: str, target: int, *, generation: int, anew: bool = False
    ) -> Begun:
        """Empty a partition of another lineage, or any if `anew`; returns what the store holds of it then.

        An emptied partition is restored to `generation`.
        """
        args: list[Any] = [lineage, target, int(anew), generation, int(time.time() * 1000)]
        offset, held = cast(list[bytes], self._begin(keys=self.keys(view, partition).all, args=args))
        return Begun(int(offset), int(held))

    def apply(
        self, view: str, partition: int, lineage: str, expected: int, reached: int, changes: Sequence[Change]
    ) -> Applied | PositionMoved:
        """Apply changes, at most one per key and generation, that lead from the offset `expected` to `reached`."""
        parcel = Parcel(view, partition, lineage, expected, reached, pack(changes))
        keys, args = self.script_input(parcel)
        return applied(self._apply(keys=keys, args=args))

    def apply_all(self, parcels: Sequence[Parcel]) -> list[Applied | PositionMoved | Rejected]:
        """Apply batches in their order, in one round trip per server. Each is a step of its own, whatever others do.

        Raises Unavailable if the answer to any is not known, or is that Redis can't take it now.
        """
        found = self._apply.all([self.script_input(parcel) for parcel in parcels])
        return [Rejected(str(one)) if isinstance(one, redis.ResponseError) else applied(one) for one in found]

    def script_input(self, parcel: Parcel) -> tuple[list[bytes], list[Any]]:
        """The keys and arguments of `apply.lua`."""
        keys, packed = self.keys(parcel.view, parcel.partition), parcel.packed
        about = [parcel.lineage, parcel.expected, parcel.reached, keys.channel(parcel.lineage, b""), len(packed)]
        return keys.all, [*about, *packed.fields, *packed.expiries]

    def complete(self, view: str, partition: int, lineage: str, offset: int, as_of: int) -> PositionMoved | None:
        """Note that records from before `as_of`, in ms, end with this offset. PositionMoved if it is not stored."""
        keys, args = [self.keys(view, partition).position], [lineage, offset, as_of]
        result = cast(list[bytes], self._as_of(keys=keys, args=args))
        return moved(result[1]) if result[0] == b"moved" else None

    def offsets(self, partitions: Sequence[tuple[str, int, str]]) -> list[int | None]:
        """The stored offset of each (view, partition, lineage); None if the store has no position of the lineage."""
        return [found.offset for found in self.stored(partitions)]

    def stored(self, partitions: Sequence[tuple[str, int, str]]) -> list[StoredPosition]:
        """How far each (view, partition, lineage) is."""
        names = [self.keys(view, partition).position for view, partition, _ in partitions]
        found: dict[int, Any] = {}
        for numbers in self.together(names):
            with self.at(names[numbers[0]]) as redis:
                pipeline = redis.pipeline(transaction=False)
                for n in numbers:
                    pipeline.hmget(cast(str, names[n]), FIELDS)
                found.update(zip(numbers, pipeline.execute(), strict=True))
        return [read_position(found[n], lineage) for n, (_, _, lineage) in enumerate(partitions)]

    def newest(self, view: str, partition: int, keys: Sequence[bytes]) -> list[Change | None]:
        """The change of highest rank that the store holds of each key, kept back or not; None if it has no row."""
        names = self.keys(view, partition)
        with self.at(names.position) as redis:
            pipeline = redis.pipeline(transaction=True)
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
        with self.at(key.encode()) as redis:
            pipeline = redis.pipeline(transaction=True)
            if value is None:
                pipeline.hdel(key, record)
            else:
                pipeline.hset(key, record, cast(str, value))
            pipeline.publish(key, record)
            pipeline.execute()

    def some_key(self, view: str, partition: int) -> str | None:
        """The key of some row in a partition; None if it has no row."""
        name = self.keys(view, partition).rows
        with self.at(name) as redis:
            found = cast(bytes | None, redis.hrandfield(cast(str, name)))
        return found.decode() if found is not None else None

    def partitions(self, view: str) -> int:
        """How many partitions a view has, by the copy of the catalog; 0 if there is no such view."""
        key = catalog_key(self.prefix)
        with self.at(key.encode()) as redis:
            found = cast(bytes | None, redis.hget(key, APP_RECORD))
        views = Catalog.decode(found).views if found is not None else {}
        return views[view].partitions if view in views else 0

    def ping(self) -> None:
        """Ask whether Redis answers."""
        with self.at(catalog_key(self.prefix).encode()) as redis:
            redis.ping()

    def close(self) -> None:
        """Close the connections."""
        self._servers.close()


def hung_up(error: Unavailable) -> bool:
    """Whether Redis can't be reached or has closed the connection, as it does if it can't take what a client sends."""
    return error.code == "AWAY"


def applied(result: Sequence[Any]) -> Applied | PositionMoved:
    """The answer of `apply.lua`."""
    return Applied(int(result[1]), int(result[2])) if result[0] == b"applied" else moved(result[1])


def moved(offset: bytes) -> PositionMoved:
    """The answer `moved` of a script, with the offset that the store holds."""
    return PositionMoved(int(offset) if offset != b"" else None)

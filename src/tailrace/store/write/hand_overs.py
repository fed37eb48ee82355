"""Hand-overs in the store: switch a partition to the next build, and forget keys that only earlier builds had."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

from tailrace.store.layout.stored_position import FIELDS, read_position
from tailrace.store.write.writer import PositionMoved, StoreWriter, moved


@dataclass(frozen=True, slots=True)
class Served:
    """The partition serves the generation that was asked for, or a later one."""


@dataclass(frozen=True, slots=True)
class NotYetServed:
    """Nothing was changed: the partition is not as far, or keys of an earlier hand-over are still to be forgotten."""


@dataclass(frozen=True, slots=True)
class OldKeys:
    """Some keys of earlier builds: all of them, and those that the served build does not have."""

    keys: list[bytes]
    vanished: list[bytes]
    cursor: int


class HandOvers:
    """Each method is safe to repeat, and raises Unavailable if it fails."""

    def __init__(self, writer: StoreWriter) -> None:
        self._writer = writer
        self._serve = writer.script("serve")
        self._abandon = writer.script("abandon")

    def serve(
        self, view: str, partition: int, lineage: str, generation: int, since: int
    ) -> Served | NotYetServed | PositionMoved:
        """Let a partition that has stored the offset `since` serve a generation from now on."""
        args: list[Any] = [lineage, generation, since]
        result = cast(list[bytes], self._serve(keys=self._writer.keys(view, partition).all, args=args))
        if result[0] == b"served":
            return Served()
        return NotYetServed() if result[0] == b"waiting" else moved(result[1])

    def abandon(self, view: str, partition: int, lineage: str, generation: int, given_up: int) -> bool | PositionMoved:
        """Give up the rows kept back for a build. False if none are; PositionMoved if another generation is served."""
        keys = self._writer.keys(view, partition)
        names = [keys.position, keys.next_rows, keys.next_gone, keys.next_expiries]
        result = cast(list[bytes], self._abandon(keys=names, args=[lineage, generation, given_up]))
        return moved(result[1]) if result[0] == b"moved" else result[0] == b"abandoned"

    def old_keys(
        self, view: str, partition: int, lineage: str, generation: int, cursor: int, count: int
    ) -> OldKeys | PositionMoved:
        """About `count` keys of earlier builds, from a cursor on. The cursor is 0 again after the last.

        PositionMoved if the store does not serve this generation at that moment. No keys if the partition is not
        whole: a row that is missing then says nothing.
        """
        names = self._writer.keys(view, partition)
        with self._writer.at(names.position) as redis:
            scanned = redis.hscan(cast(str, names.old_rows), cursor, count=count)
            cursor, keys = scanned[0], cast(list[bytes], list(scanned[1]))
            pipeline = redis.pipeline(transaction=True)
            pipeline.hmget(cast(str, names.position), FIELDS)
            for held in (names.rows, names.gone) if keys else ():
                pipeline.hmget(cast(str, held), cast(list[str], keys))
            position, *held_rows = cast(list[list[Any]], pipeline.execute())
        found = read_position(position, lineage)
        if found.generation != generation:
            return PositionMoved(found.offset)
        if not keys:
            return OldKeys([], [], cursor)
        if not found.whole:
            return OldKeys([], [], 0)
        rows, gone = held_rows
        vanished = [key for key, row, tomb in zip(keys, rows, gone, strict=True) if row is None and tomb is None]
        return OldKeys(keys, vanished, cursor)

    def forget(self, view: str, partition: int, keys: Sequence[bytes]) -> None:
        """Drop keys of earlier builds."""
        name = self._writer.keys(view, partition).old_rows
        with self._writer.at(name) as redis:
            redis.hdel(cast(str, name), *cast(list[str], keys))

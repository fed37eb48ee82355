"""Rows in the store that have expired."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

from tailrace.store.write.writer import PositionMoved, StoreWriter, moved


@dataclass(frozen=True, slots=True)
class Due:
    """A row that has expired, as it was when it was found."""

    key: bytes
    generation: int
    version: int


class Expiries:
    """Finds expired rows. Methods raise Unavailable if Redis can't be asked."""

    def __init__(self, writer: StoreWriter) -> None:
        self._writer = writer
        self._due = writer.script("due")

    def due(self, view: str, partition: int, lineage: str, now: int, most: int) -> list[Due] | PositionMoved:
        """At most `most` rows that have expired by the time `now`, in ms since 1970, the earliest first.

        PositionMoved if the store has no position of the lineage.
        """
        keys = self._writer.keys(view, partition)
        args: list[Any] = [lineage, now, most]
        found = cast(list[bytes], self._due(keys=[keys.position, keys.rows, keys.expiries], args=args))
        if found[0] == b"moved":
            return moved(found[1])
        return [Due(key, *map(int, rank.split())) for key, rank in zip(found[1::2], found[2::2], strict=True)]

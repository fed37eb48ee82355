"""Expiries in the store: which rows are past their time."""

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
    """Raises Unavailable when Redis can't be asked."""

    def __init__(self, writer: StoreWriter) -> None:
        self._writer = writer
        self._due = writer.script("due")

    def due(self, view: str, partition: int, lineage: str, now: int, most: int) -> list[Due] | PositionMoved:
        """Rows whose time, in ms since 1970, has come: those that expired first, `most` of them.

        PositionMoved if the store has no position of the lineage.
        """
        keys = self._writer.keys(view, partition)
        args: list[Any] = [lineage, now, most]
        found = cast(list[bytes], self._due(keys=[keys.position, keys.rows, keys.expiries], args=args))
        if found[0] == b"moved":
            return moved(found[1])
        return [Due(key, *map(int, rank.split())) for key, rank in zip(found[1::2], found[2::2], strict=True)]

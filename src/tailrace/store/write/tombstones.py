"""Tombstones in the store. They are kept for a while, so that clients that come back learn which keys are gone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

from tailrace.store.layout.row import unpack
from tailrace.store.write.writer import PositionMoved, StoreWriter, moved


@dataclass(frozen=True, slots=True)
class Pruned:
    """Tombstones up to the offset `horizon` may be forgotten, none if it is -1. `dropped` is how many just were.

    The horizon may move again at `moves`, in ms since 1970.
    """

    horizon: int
    moves: int
    dropped: int


class StoredTombstones:
    """Forgets tombstones. Each method is safe to repeat, and raises Unavailable if it fails."""

    def __init__(self, writer: StoreWriter) -> None:
        self._writer = writer
        self._prune = writer.script("prune")

    def prune(
        self,
        view: str,
        partition: int,
        lineage: str,
        *,
        generation: int,
        now: int,
        keep: int,
        batch: int | None,
        keys: Sequence[bytes] = (),
    ) -> Pruned | PositionMoved | None:
        """Move the horizon if it may move, and forget the tombstones of `keys` that stand before the old horizon.

        `now` is in ms since 1970, `keep` in ms, and `batch` is the last batch that the pipeline has finished.
        PositionMoved if the partition does not serve this generation, and None if it is not whole.
        """
        names = self._writer.keys(view, partition)
        args: list[Any] = [lineage, generation, now, keep, "" if batch is None else batch, *keys]
        found = cast(list[bytes], self._prune(keys=[names.position, names.gone], args=args))
        if found[0] == b"moved":
            return moved(found[1])
        return Pruned(*map(int, found[1:])) if found[0] == b"pruned" else None

    def before(self, view: str, partition: int, horizon: int, cursor: int, count: int) -> tuple[list[bytes], int]:
        """Of about `count` tombstones from a cursor on, the keys up to the horizon; and the next cursor, or 0."""
        gone = self._writer.keys(view, partition).gone
        with self._writer.at(gone) as client:
            scanned = client.hscan(cast(str, gone), cursor, count=count)
        found = cast(dict[bytes, bytes], scanned[1])
        return [key for key, row in found.items() if unpack(row).offset <= horizon], scanned[0]

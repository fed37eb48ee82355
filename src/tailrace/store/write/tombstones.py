"""StoredTombstones in the store: kept for a while, so that who comes back learns what is gone, and then forgotten."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

from tailrace.store.layout.row import unpack
from tailrace.store.write.writer import PositionMoved, StoreWriter, moved


@dataclass(frozen=True, slots=True)
class Pruned:
    """StoredTombstones up to the offset `horizon` may be forgotten, -1 where none are; `dropped` were forgotten just now.

    The horizon may move again at `moves`, in ms since 1970.
    """

    horizon: int
    moves: int
    dropped: int


class StoredTombstones:
    """Each method is safe to repeat and raises Unavailable when it fails."""

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
        """Move the horizon where it may, and forget those of some keys that stand before where it was.

        `now` is in ms since 1970, `keep` in ms, and `batch` the last that the pipeline has finished. PositionMoved if
        the partition does not serve this generation, and None if it is not whole.
        """
        names = self._writer.keys(view, partition)
        args: list[Any] = [lineage, generation, now, keep, "" if batch is None else batch, *keys]
        found = cast(list[bytes], self._prune(keys=[names.position, names.gone], args=args))
        if found[0] == b"moved":
            return moved(found[1])
        return Pruned(*map(int, found[1:])) if found[0] == b"pruned" else None

    def before(self, view: str, partition: int, horizon: int, cursor: int, count: int) -> tuple[list[bytes], int]:
        """Of about `count` keys that are gone, from a cursor on, those up to the horizon; and the next cursor, or 0."""
        gone = self._writer.keys(view, partition).gone
        with self._writer.at(gone) as client:
            scanned = client.hscan(cast(str, gone), cursor, count=count)
        found = cast(dict[bytes, bytes], scanned[1])
        return [key for key, row in found.items() if unpack(row).offset <= horizon], scanned[0]

"""How far a partition of the store has come: its position, as both sides of the store read it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

FIELDS = ["lineage", "offset", "target", "generation", "next", "pruned", "as-of"]


@dataclass(frozen=True, slots=True)
class StoredPosition:
    """How far a partition has come.

    `offset` is None if the store has no position of the view's lineage: then nothing is known of the
    partition. `target` is the offset that a restore must reach before the partition is whole. `generation` is
    the build of its rows, None if they are older than that note; `next` is the build whose rows are kept
    back. Tombstones up to the offset `pruned` may be forgotten. `as_of` is a time, in ms since 1970: the
    store has read every record that was written before it.
    """

    offset: int | None
    target: int | None
    generation: int | None = None
    next: int | None = None
    pruned: int = -1
    as_of: int | None = None

    @property
    def whole(self) -> bool:
        """False while the partition is still being restored from the changelog."""
        return self.offset is not None and self.target is not None and self.offset >= self.target


def read_position(fields: Sequence[bytes | None], lineage: str) -> StoredPosition:
    """The position in the values of `FIELDS`; the position of another lineage counts as none."""
    found, offset, target, generation, following, pruned, as_of = fields
    if found != lineage.encode() or offset is None or target is None:
        return StoredPosition(None, None)
    return StoredPosition(
        int(offset),
        int(target),
        int(generation) if generation is not None else None,
        int(following) if following is not None else None,
        int(pruned) if pruned is not None else -1,
        int(as_of) if as_of is not None else None,
    )

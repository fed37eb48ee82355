"""How far one partition of the store is: its position, as both sides of the store read it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

FIELDS = ["lineage", "offset", "target", "generation", "next", "pruned", "as-of"]


@dataclass(frozen=True, slots=True)
class Stored:
    """How far one partition is.

    `offset` is None where the store has no position of the view's lineage: nothing is known of the partition.
    `target` is the offset that a restore must reach before the partition is whole. `generation` is the build that its
    rows are of, None where it was written before that was noted; `next` is the build whose rows are kept back.
    Tombstones up to the offset `pruned` may be forgotten.
    `as_of` is the time, in ms since 1970, before which every record was written that the store has not read.
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


def stored(fields: Sequence[bytes | None], lineage: str) -> Stored:
    """What the `FIELDS` of a position say to who asks for this lineage."""
    found, offset, target, generation, following, pruned, as_of = fields
    if found != lineage.encode() or offset is None or target is None:
        return Stored(None, None)
    return Stored(
        int(offset),
        int(target),
        int(generation) if generation is not None else None,
        int(following) if following is not None else None,
        int(pruned) if pruned is not None else -1,
        int(as_of) if as_of is not None else None,
    )

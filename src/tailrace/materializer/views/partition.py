"""An open partition of a view."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tailrace.contracts.catalog import CatalogView
from tailrace.materializer.partition import OpenPartition
from tailrace.store.layout.stored_position import StoredPosition


@dataclass
class ViewPartition(OpenPartition[CatalogView]):
    """An open partition of a view.

    `old` is False once Redis is known to hold no keys that only earlier builds had. `as_of` is when, in ms, Redis was
    known to be complete, and `tombstones_kept` for how many seconds the changelog keeps its tombstones: see `as_of`.
    """

    old: bool = True
    as_of: int = 0
    tombstones_kept: float = 0.0

    @property
    def since(self) -> int:
        """The offset from which on the store may serve the build that the catalog names."""
        return self.entry.since.get(str(self.number), -1)

    def agrees(self, stored: StoredPosition) -> bool:
        """Whether Redis holds the offset that is believed, and serves the generation that is believed."""
        return super().agrees(stored) and stored.generation == self.generation


# Has a partition opened again: Redis holds this offset of it, or None, and not the believed one.
Lose = Callable[[ViewPartition, int | None], None]

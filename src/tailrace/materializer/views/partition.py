"""A partition that is being read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from tailrace.contracts.catalog import CatalogView
from tailrace.kafka.changelogs import Partition


@dataclass
class OpenPartition:
    """A partition that is being read: its view, its lineage, and what Redis holds of it.

    `stored` is the offset up to which Redis is known to hold it; up to `read`, records are on their way there.
    `generation` is the build that Redis serves. `old` is False where Redis is known to hold no keys that only
    earlier builds had. `lettered` is the offset up to which dead letters are known to be kept, None where that was not
    asked yet. `as_of` is when, in ms, Redis was known to be complete, and `tombstones_kept` for how many seconds the
    changelog keeps its tombstones: see `as_of`.
    """

    entry: CatalogView
    number: int
    lineage: str
    stored: int
    target: int
    generation: int
    old: bool = True
    read: int = field(init=False)
    lettered: int | None = None
    as_of: int = 0
    tombstones_kept: float = 0.0

    def __post_init__(self) -> None:
        self.read = self.stored

    @property
    def view(self) -> str:
        """The name of the view."""
        return self.entry.name

    @property
    def partition(self) -> Partition:
        """The partition of the changelog."""
        return (self.entry.changelog, self.number)

    @property
    def place(self) -> tuple[str, int, str]:
        """What the store finds it by: view, partition, lineage."""
        return (self.entry.name, self.number, self.lineage)

    @property
    def whole(self) -> bool:
        """Whether everything that the changelog held when the partition was opened is in the store."""
        return self.stored >= self.target

    @property
    def since(self) -> int:
        """The offset from which on the store may serve the build that the catalog names."""
        return self.entry.since.get(str(self.number), -1)


# Has a partition opened again, because Redis holds another offset of it than believed, or None.
Lose = Callable[[OpenPartition, int | None], None]

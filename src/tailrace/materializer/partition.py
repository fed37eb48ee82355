"""One partition of a changelog while it is open: what Redis holds of it, and how far it was read."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Generic, TypeVar

from tailrace.contracts.catalog import CatalogFeed, CatalogView
from tailrace.kafka.changelogs import Partition
from tailrace.store.layout.stored_position import StoredPosition

Entry = TypeVar("Entry", CatalogView, CatalogFeed)


@dataclass
class OpenPartition(Generic[Entry]):
    """An open partition of a view or of a feed; `entry` is what the catalog says of it.

    Redis holds it up to the offset `stored`. Records up to `read` are on their way there. `target` was the last offset
    when the partition was opened. `generation` is the build that Redis serves. `letters_kept` is the offset up to which
    its dead letters are known to be kept; None until somebody asks.
    """

    entry: Entry
    number: int
    lineage: str
    stored: int
    target: int
    generation: int
    read: int = field(init=False)
    letters_kept: int | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.read = self.stored

    @property
    def view(self) -> str:
        """The name of the view or feed."""
        return self.entry.name

    @property
    def partition(self) -> Partition:
        """The topic and number that Kafka knows it by."""
        return (self.entry.changelog, self.number)

    @property
    def place(self) -> tuple[str, int, str]:
        """The view or feed, number and lineage that the store knows it by."""
        return (self.entry.name, self.number, self.lineage)

    @property
    def whole(self) -> bool:
        """Whether the store has everything that the changelog held when the partition was opened."""
        return self.stored >= self.target

    def take(self, entry: Entry) -> None:
        """Go on with another entry of the catalog, of the same lineage."""
        self.entry = entry

    def agrees(self, stored: StoredPosition) -> bool:
        """Whether the position that Redis holds is the one believed."""
        return stored.offset == self.stored

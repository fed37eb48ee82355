"""What a connection of several keys was sent: per partition, the offset up to which it lacks nothing of any key.

A vector claims more than a row's own position does, so each step that moves it says why nothing is missing below.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping

from tailrace.contracts.position import Position
from tailrace.gateway.catalog import ServedView
from tailrace.gateway.live.keys.progress import PartitionProgress


class Vector:
    """The claims of one subscription to one build of a view; `sure` says whether nothing of a partition was missed."""

    __slots__ = ("_adding", "_claims", "_progress", "_sure", "_view")

    def __init__(self, view: ServedView, sure: Callable[[PartitionProgress], bool]) -> None:
        self._view = view
        self._sure = sure
        self._claims: dict[int, int] = {}
        self._progress: dict[int, PartitionProgress] = {}
        self._adding: Counter[int] = Counter()

    @property
    def position(self) -> Position:
        """The claims as a position. A partition that gets new keys has none, so that a resume asks for all of it."""
        claimed = {p: o for p, o in self._claims.items() if o >= 0 and p not in self._adding}
        return Position(self._view.lineage, self._view.generation, claimed)

    def expect(self, partitions: Iterable[int]) -> None:
        """Keys of these partitions are being added, and their rows are not sent yet."""
        self._adding.update(set(partitions))

    def expect_no_more(self, partitions: Iterable[int]) -> None:
        """The keys of these partitions are not added after all."""
        for partition in set(partitions):
            self._arrived(partition)

    def add(self, read: Mapping[int, int], progress: Mapping[int, PartitionProgress]) -> None:
        """Rows of keys were sent, at least as new as reads up to these offsets have found them."""
        for partition, offset in read.items():
            self._claims[partition] = min(self._claims.get(partition, offset), offset)
            self._arrived(partition)
        self._progress.update(progress)

    def keep(self, partitions: set[int]) -> None:
        """Only these partitions have keys left."""
        for gone in set(self._claims) - partitions:
            del self._claims[gone]
            self._progress.pop(gone, None)

    def _arrived(self, partition: int) -> None:
        self._adding[partition] -= 1
        if self._adding[partition] <= 0:
            del self._adding[partition]

    def advance(self) -> None:
        """Move up to what was heard, all of which is sent, if nothing can have been missed.

        A read of new keys is at least as new as what was heard before it, so what was heard counts for them, too.
        """
        for partition, one in self._progress.items():
            if one.heard > self._claims.get(partition, one.heard) and self._sure(one):
                self._claims[partition] = one.heard

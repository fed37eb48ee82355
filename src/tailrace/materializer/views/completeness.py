"""Completing: notes in the store as of when a partition is complete; see `as_of`."""

from __future__ import annotations

import time

from tailrace.kafka.changelogs import Changelogs
from tailrace.materializer.views.as_of import Marks
from tailrace.materializer.views.open_partition import OpenPartition
from tailrace.store.write.writer import Moved, Writer


class Completing:
    """For all partitions of one materializer."""

    def __init__(self, changelogs: Changelogs, writer: Writer) -> None:
        self._changelogs = changelogs
        self._writer = writer
        self._marks = Marks()

    def opened(self, held: OpenPartition, end: int, now: int) -> None:
        """A partition is read on, and its changelog had this end at a time in ms, or later."""
        self._marks.set(held.partition, end, now)

    def tend(self, held: OpenPartition) -> Moved | None:
        """Note what has been reached, and now and then read the end that is to be reached next.

        Moved if the partition must be opened again.
        """
        if (reached := self._marks.reached(held.partition, held.stored, held.as_of)) is not None:
            if (moved := self._writer.complete(*held.place, *reached)) is not None:
                return moved
            held.as_of = reached[1]
        now = milliseconds()
        if self._marks.due(held.partition, now):
            self._marks.set(held.partition, self._changelogs.end(held.partition), now)
            kept = self._changelogs.tombstones_kept(held.partition[0])
            held.tombstones_kept = held.tombstones_kept if kept is None else kept
        return None


def milliseconds() -> int:
    """The time in ms since 1970."""
    return int(time.time() * 1000)

"""As of when a partition of the store is complete, and whether it can go on from where it is. Does no I/O.

Compaction removes a tombstone when it has stood in the changelog for the topic's `delete.retention.ms`, together with
every record of its key. A store that has a row of the key, and reads on after that, never learns that the key is gone.
So the end of the changelog is read now and then. Once the store has come that far, the time of that reading is noted in
it. A store that was complete longer ago than half of the time for which tombstones are kept is restored anew; the other
half is for reading on. A restore, too, must be through within that time.
"""

from __future__ import annotations

from tailrace.kafka.changelogs import Partition
from tailrace.store.layout.stored_position import StoredPosition

# How often the end of a changelog is read for this, in seconds.
EVERY = 60.0
# An open partition is not opened again before it is this many seconds behind, however briefly tombstones are kept:
# otherwise nobody could read fast enough.
LIVE = 600.0


class Marks:
    """Ends of changelogs that were read, each with the time in ms, until the store has come that far."""

    def __init__(self) -> None:
        self._ends: dict[Partition, tuple[int, int]] = {}
        self._quiet_until = 0

    def due(self, partition: Partition, now: int) -> bool:
        """Whether to read an end: none was read for a while, and Kafka answered the last time."""
        found = self._ends.get(partition)
        return now >= self._quiet_until and (found is None or now - found[1] >= EVERY * 1000)

    def set(self, partition: Partition, end: int | None, now: int) -> None:
        """Note an end that was read at a time, or later; None if Kafka did not answer."""
        if end is None:
            self._quiet_until = now + int(EVERY * 1000)
        else:
            self._ends[partition] = (end, now)

    def reached(self, partition: Partition, stored: int, as_of: int) -> tuple[int, int] | None:
        """The last offset before an end that the store has reached, and the time to note: later than the noted one."""
        found = self._ends.get(partition)
        if found is None or stored < found[0] - 1 or found[1] <= as_of:
            return None
        return found[0] - 1, found[1]


def outdated(as_of: int | None, kept: float, now: int, *, floor: float = 0.0) -> bool:
    """Whether a store that was complete at the time `as_of`, in ms, may lack tombstones. It may if that is unknown.

    The changelog keeps tombstones for `kept` seconds.
    """
    return as_of is None or now - as_of > max(kept / 2, floor) * 1000


def unusable(stored: StoredPosition, first: int, end: int, kept: float, now: int) -> str:
    """Why reading can't go on from what is stored; empty if it can. `first` and `end` are those of the changelog."""
    if stored.offset is None or stored.offset == end - 1:
        return ""
    if stored.offset >= end:
        return f"Redis holds offset {stored.offset}, and the changelog ends at {end - 1}"
    if stored.offset + 1 < first:
        return f"Redis holds offset {stored.offset}, and the changelog begins at {first}"
    if outdated(stored.as_of, kept, now):
        return f"tombstones are kept for {kept:.0f} s, and Redis may have been incomplete for more than half of that"
    return ""

"""Expiring: rows whose time has come get a tombstone in the changelog.

It comes back as any other record, with an offset: so Redis, clients, other readers of the changelog and compaction all
lose the row the same way. Its version is one above that of the row that was found expired. A row that was written
meanwhile has that version or a higher one, and stays: of one version, a row stands above a tombstone.
"""

from __future__ import annotations

import time
from collections.abc import Iterable

from tailrace.contracts.record import Change
from tailrace.kafka.changelogs import Partition
from tailrace.materializer.views.additions import Adding, tombstone
from tailrace.materializer.views.open_partition import Lose, OpenPartition
from tailrace.store.write.expiries import Expiries
from tailrace.store.write.writer import Moved

_BATCH = 500
# By then a tombstone has come back, or is asked for again.
_UNDER_WAY = 10.0

_Mark = tuple[Partition, bytes, int, int]


class Expiring:
    """Adds tombstones for expired rows, each once while it is under way."""

    def __init__(self, expiries: Expiries, adding: Adding) -> None:
        self._expiries = expiries
        self._adding = adding
        self._under_way: dict[_Mark, float] = {}

    def tend(self, partitions: Iterable[OpenPartition], lose: Lose) -> int:
        """Look for expired rows in partitions that are whole; returns how many tombstones were added.

        `lose` is called for a partition that must be opened again.
        """
        if not self._adding.possible:
            return 0
        now = time.monotonic()
        self._under_way = {mark: until for mark, until in self._under_way.items() if until > now}
        gone: list[tuple[Partition, Change]] = []
        marks: list[_Mark] = []
        for held in partitions:
            # A partition that is being restored may hold a row whose later expiry it has yet to read.
            if not held.whole:
                continue
            found = self._expiries.due(*held.place, int(time.time() * 1000), _BATCH)
            if isinstance(found, Moved):
                lose(held, found.offset)
                continue
            for due in found:
                mark = (held.partition, due.key, due.generation, due.version)
                if mark not in self._under_way:
                    marks.append(mark)
                    gone.append((held.partition, tombstone(due.key, due.generation, due.version + 1)))
        if not gone or not self._adding.add(gone):
            return 0
        self._under_way.update(dict.fromkeys(marks, now + _UNDER_WAY))
        return len(gone)

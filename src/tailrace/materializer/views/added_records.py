"""Records that a materializer adds to changelogs. It reads them as any other record, with an offset.

A key's last record in the changelog must be the one of highest rank, or compaction keeps a wrong one. The pipeline and
a materializer write to a changelog without asking each other. So an added record may come to stand behind one of
higher rank that was written at the same moment. Redis and clients go by rank and see nothing of it. In the changelog,
the row of higher rank is added once more behind it. That one, too, may be overtaken: it is looked at the same way when
it is read. Compaction comes an hour later at the earliest.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence

from tailrace.contracts.record import Change
from tailrace.errors import Unreachable
from tailrace.kafka.additions import Additions
from tailrace.kafka.changelogs import Partition
from tailrace.materializer.views.batch import ViewBatch
from tailrace.materializer.views.partition import ViewPartition
from tailrace.store.write.writer import StoreWriter

log = logging.getLogger(__name__)

_RETRY_AFTER = 5.0


class AddedRecords:
    """Adds changes to changelogs. After Kafka has refused some, it leaves Kafka alone for a while."""

    def __init__(self, additions: Additions) -> None:
        self._additions = additions
        self._retry_at = 0.0
        self.problem: str | None = None

    @property
    def possible(self) -> bool:
        """False for a while after a failure."""
        return time.monotonic() >= self._retry_at

    def add(self, changes: Sequence[tuple[Partition, Change]]) -> bool:
        """Add changes to their changelogs. False if any may be missing: try again when it is possible."""
        if not self.possible:
            return False
        try:
            self._additions.write(changes)
        except Unreachable as error:
            self._retry_at = time.monotonic() + _RETRY_AFTER
            if self.problem is None:
                log.error("%s", error)
            self.problem = str(error)
            return False
        self.problem = None
        return True


class CompactionGuard:
    """Finds rows that an added record stands behind, and adds them again."""

    def __init__(self, writer: StoreWriter, added: AddedRecords) -> None:
        self._writer = writer
        self._added = added
        self._failed: set[Partition] = set()

    def blocks(self, partition: Partition) -> bool:
        """Whether a partition must not be read now: rows of it are to be added, and Kafka does not take them."""
        return partition in self._failed and not self._added.possible

    def guard(self, held: ViewPartition, batch: ViewBatch) -> bool:
        """Call this before a batch is applied. False if Kafka did not take the rows: read the batch again."""
        self._failed.discard(held.partition)
        if not batch.added:
            return True
        last = {change.key: change for change in batch.added}
        known = self._writer.newest(held.view, held.number, list(last))
        hidden = covered(last, [*batch.changes, *(change for change in known if change is not None)])
        if not hidden:
            return True
        if self._added.add([(held.partition, again(change)) for change in hidden]):
            return True
        self._failed.add(held.partition)
        return False


def covered(last: dict[bytes, Change], changes: list[Change]) -> list[Change]:
    """Of these changes the rows that have a higher rank than the last addition of their key and stand before it."""
    highest: dict[bytes, Change] = {}
    for change in changes:
        found = highest.get(change.key)
        if change.key in last and (found is None or change.rank > found.rank):
            highest[change.key] = change
    return [
        change
        for key, change in highest.items()
        if change.value is not None and change.rank > last[key].rank and change.offset < last[key].offset
    ]


def again(change: Change) -> Change:
    """The change as it is added once more."""
    return Change(
        change.key,
        change.value,
        change.generation,
        change.version,
        change.timestamp,
        -1,
        change.expires,
        added=True,
    )


def tombstone(key: bytes, generation: int, version: int) -> Change:
    """A change, made now, that says a key is gone."""
    return Change(key, None, generation, version, int(time.time() * 1000), -1, added=True)

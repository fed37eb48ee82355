"""Mending: a key's last record in the changelog must be the one of highest rank, or compaction keeps a wrong one.

The pipeline and a materializer write to a changelog without asking each other. So an added record may come to stand
behind one of higher rank that was written at the same moment. Redis and clients go by rank and see nothing of it. In
the changelog, the row of higher rank is added once more behind it. That one, too, may be overtaken: it is looked at the
same way when it is read. Compaction comes an hour later at the earliest.
"""

from __future__ import annotations

from tailrace.contracts.record import Change
from tailrace.kafka.changelogs import Partition
from tailrace.materializer.views.additions import Adding
from tailrace.materializer.views.batch import Batch
from tailrace.materializer.views.open_partition import OpenPartition
from tailrace.store.write.writer import Writer


class Mending:
    """Finds rows that an added record stands behind, and adds them again."""

    def __init__(self, writer: Writer, adding: Adding) -> None:
        self._writer = writer
        self._adding = adding
        self._failed: set[Partition] = set()

    def blocks(self, partition: Partition) -> bool:
        """Whether a partition must not be read now: rows of it are to be added, and Kafka does not take them."""
        return partition in self._failed and not self._adding.possible

    def mend(self, held: OpenPartition, batch: Batch) -> bool:
        """To be called before a batch is applied; where it is False, Kafka did not take the rows: read it again."""
        self._failed.discard(held.partition)
        if not batch.added:
            return True
        last = {change.key: change for change in batch.added}
        known = self._writer.newest(held.view, held.number, list(last))
        hidden = covered(last, [*batch.changes, *(change for change in known if change is not None)])
        if not hidden:
            return True
        if self._adding.add([(held.partition, again(change)) for change in hidden]):
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

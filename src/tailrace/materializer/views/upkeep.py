"""Upkeep: what a materializer does for open partitions beside applying their records."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable

from tailrace.kafka.additions import Additions
from tailrace.kafka.changelogs import Partition
from tailrace.materializer.counters import Counters
from tailrace.materializer.views.additions import Adding
from tailrace.materializer.views.batch import Batch
from tailrace.materializer.views.compaction import Mending
from tailrace.materializer.views.expiry import Expiring
from tailrace.materializer.views.hand_over import HandingOver
from tailrace.materializer.views.open_partition import Lose, OpenPartition
from tailrace.materializer.views.pruning import Finished, Pruning
from tailrace.store.write.eviction import evicts
from tailrace.store.write.expiries import Expiries
from tailrace.store.write.hand_overs import HandOvers
from tailrace.store.write.tombstones import Tombstones
from tailrace.store.write.writer import Moved, Writer

log = logging.getLogger(__name__)

_LOOK_EVERY = 30.0


class Upkeep:
    """Hand-overs, expiry, pruning, and mending over one writer to changelogs.

    `patience` is how long, in seconds, a build has that the catalog does not name; `tombstones` how long they are kept.
    """

    def __init__(
        self,
        writer: Writer,
        additions: Additions,
        counters: Counters,
        *,
        finished: Finished,
        patience: float = 30.0,
        tombstones: float = 86_400.0,
    ) -> None:
        self._writer = writer
        self._look_at = 0.0
        self._evicts: str | None = None
        self._adding = Adding(additions)
        self._counters = counters
        self._handing_over = HandingOver(HandOvers(writer), self._adding, patience=patience)
        self._expiring = Expiring(Expiries(writer), self._adding)
        self._mending = Mending(writer, self._adding)
        self._pruning = Pruning(Tombstones(writer), tombstones, finished)

    def mend(self, held: OpenPartition, batch: Batch) -> bool:
        """See `Mending.mend`."""
        return self._mending.mend(held, batch)

    def blocks(self, partition: Partition) -> bool:
        """See `Mending.blocks`."""
        return self._mending.blocks(partition)

    def tend(self, held: OpenPartition) -> Moved | None:
        """See `HandingOver.tend`."""
        before = held.generation
        moved = self._handing_over.tend(held)
        if held.generation != before:
            self._counters.handed_over.labels(held.view).inc()
        return moved

    def give_up(self, held: OpenPartition, kept_back: int | None) -> Moved | None:
        """See `HandingOver.give_up`."""
        return self._handing_over.give_up(held, kept_back)

    def look_for_eviction(self, partitions: Iterable[OpenPartition]) -> None:
        """Now and then, see whether Redis may drop rows."""
        rows = [self._writer.keys(held.view, held.number).rows for held in partitions]
        if rows and time.monotonic() >= self._look_at:
            self._look_at = time.monotonic() + _LOOK_EVERY
            found = evicts(self._writer, rows)
            if found is not None and self._evicts is None:
                log.error("%s", found)
            self._evicts = found

    def expire(self, partitions: Iterable[OpenPartition], lose: Lose) -> None:
        """See `Expiring.tend`."""
        self._counters.expired.inc(self._expiring.tend(partitions, lose))

    def prune(self, partitions: Iterable[OpenPartition], lose: Lose) -> None:
        """See `Pruning.tend`; `lose` is called for a partition that must be opened again."""
        for held in partitions:
            found = self._pruning.tend(held)
            if isinstance(found, Moved):
                lose(held, found.offset)
            else:
                self._counters.pruned.labels(held.view).inc(found)

    def problems(self) -> list[str]:
        """Why something of this can't be done now."""
        return [problem for problem in (self._adding.problem, self._evicts) if problem is not None]

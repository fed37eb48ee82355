"""Handing over: a partition of the store goes from one build of a view to the next.

1. The pipeline makes the next build; `apply.lua` keeps its rows back, and readers see the build before.
2. The catalog names the new build, and per partition the offset from which on its rows are complete. When the store
   has come that far, `serve` switches the partition in one step. A crash before or after it changes nothing.
3. Keys that only earlier builds had get a tombstone in the changelog, so that its other readers and compaction lose
   them, too. A key is forgotten when its tombstone is written: who opens the partition after a crash goes on there.

A build that the catalog names no longer is given up, after a while: its records may be read before the catalog is.
"""

from __future__ import annotations

import logging
import time

from tailrace.kafka.changelogs import Partition
from tailrace.materializer.views.additions import Adding, tombstone
from tailrace.materializer.views.open_partition import OpenPartition
from tailrace.store.write.hand_overs import HandOvers, Served
from tailrace.store.write.writer import Moved

log = logging.getLogger(__name__)

_PATIENCE = 30.0
_BATCH = 500


class HandingOver:
    """Brings partitions to the build that the catalog names. `patience` is how long, in seconds, an unnamed one has."""

    def __init__(self, hand_overs: HandOvers, adding: Adding, *, patience: float = _PATIENCE) -> None:
        self._hand_overs = hand_overs
        self._adding = adding
        self._patience = patience
        self._cursors: dict[Partition, int] = {}
        self._unnamed: dict[Partition, tuple[int, float]] = {}

    def tend(self, held: OpenPartition) -> Moved | None:
        """Do what is due for a partition; Moved where it must be opened again."""
        if held.old and held.whole and (moved := self._forget_old(held)) is not None:
            return moved
        if held.generation >= held.entry.generation or held.stored < held.since:
            return None
        result = self._hand_overs.serve(*held.place, held.entry.generation, held.since)
        if isinstance(result, Moved):
            return result
        if isinstance(result, Served):
            log.info("%s[%d] serves generation %d", *held.partition, held.entry.generation)
            held.generation, held.old = held.entry.generation, True
        return None

    def give_up(self, held: OpenPartition, kept_back: int | None) -> Moved | None:
        """Free the rows that are kept back for a build which the catalog has not named for a while.

        Moved if the partition must be opened again.
        """
        entry = held.entry
        named = kept_back is None or entry.next is not None or held.generation != entry.generation
        if named or kept_back is None:
            self._unnamed.pop(held.partition, None)
            return None
        now = time.monotonic()
        found, since = self._unnamed.setdefault(held.partition, (kept_back, now))
        if found != kept_back:
            self._unnamed[held.partition] = (kept_back, now)
        elif now - since >= self._patience:
            result = self._hand_overs.abandon(*held.place, held.generation, kept_back)
            if isinstance(result, Moved):
                return result
            if result:
                log.warning("%s[%d]: generation %d was given up", *held.partition, kept_back)
            del self._unnamed[held.partition]
        return None

    def _forget_old(self, held: OpenPartition) -> Moved | None:
        if not self._adding.possible:
            return None
        view, number, _ = held.place
        cursor = self._cursors.pop(held.partition, 0)
        found = self._hand_overs.old_keys(*held.place, held.generation, cursor, _BATCH)
        if isinstance(found, Moved):
            return found
        if found.vanished:
            # Version 0: any row of this build stands above it, also one that is on its way.
            gone = [(held.partition, tombstone(key, held.generation, 0)) for key in found.vanished]
            if not self._adding.add(gone):
                return None
        if found.keys:
            self._hand_overs.forget(view, number, found.keys)
        if found.cursor:
            self._cursors[held.partition] = found.cursor
        elif cursor == 0 and not found.keys:
            # A pass from start to end that found nothing: what came during an earlier one is not missed.
            held.old = False
        return None

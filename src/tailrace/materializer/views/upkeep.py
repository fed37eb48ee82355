"""What a materializer does for open partitions of views beside applying their records.

Hand-over: a partition of the store goes from one build of a view to the next.

1. The pipeline makes the next build; `apply.lua` keeps its rows back, and readers see the build before.
2. The catalog names the new build, and per partition the offset from which on its rows are complete. When the store
   has come that far, `serve` switches the partition in one step. A crash before or after it changes nothing.
3. Keys that only earlier builds had get a tombstone in the changelog, so that its other readers and compaction lose
   them, too. A key is forgotten when its tombstone is written: whoever opens the partition after a crash goes on there.

A build that the catalog names no longer is given up after a while, and not at once: its records may be read before the
catalog is.

Expiry: rows whose time has come get a tombstone in the changelog. It comes back as any other record, so Redis, clients,
other readers of the changelog and compaction all lose the row the same way. Its version is one above that of the row
that was found expired. A row that was written meanwhile has that version or a higher one, and stays: of one version, a
row stands above a tombstone.

Pruning: tombstones in the store are forgotten when nobody needs them any more. A tombstone is there for clients that
come back after their key has gone. It also stands above older versions of its key that are replayed. So it goes when
both are over: it is older than the setting `tombstones`, and the pipeline has finished the batch that it is of
(`prune.lua` says how that is known). A client that comes back later than that, to a key that holds nothing, gets
`reset`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from tailrace.contracts.record import Change
from tailrace.kafka.additions import Additions
from tailrace.kafka.changelogs import Partition
from tailrace.materializer.counters import MaterializerCounters
from tailrace.materializer.views.added_records import AddedRecords, CompactionGuard, tombstone
from tailrace.materializer.views.batch import ViewBatch
from tailrace.materializer.views.partition import Lose, ViewPartition
from tailrace.store.write.eviction import evicts
from tailrace.store.write.expiries import Expiries
from tailrace.store.write.hand_overs import HandOvers, Served
from tailrace.store.write.tombstones import StoredTombstones
from tailrace.store.write.writer import PositionMoved, StoreWriter

log = logging.getLogger(__name__)

# How long, in seconds, a build is kept back that the catalog does not name.
_PATIENCE = 30.0
# A step looks at about this many keys of a partition: well under a millisecond of Redis.
_BATCH = 500
# After this many seconds, the tombstone of an expired row has come back or is added again.
_UNDER_WAY = 10.0
# The longest time, in ms, for which a horizon is left alone that is due but may not move yet.
_LONGEST_PAUSE = 10_000
# The most keys in one call; Lua takes a few thousand.
_MOST = 1000
# How often, in seconds, Redis is asked whether it may drop rows.
_LOOK_EVERY = 30.0

_Mark = tuple[Partition, bytes, int, int]

# The last batch of a view's generation that the pipeline has finished; None if that is not known.
Finished = Callable[[str, int], int | None]


class Upkeep:
    """Hand-over, expiry, pruning, and what guards changelogs against compaction.

    A build that the catalog does not name is given up after `patience` seconds. Tombstones are kept for
    `tombstones` seconds.
    """

    def __init__(
        self,
        writer: StoreWriter,
        additions: Additions,
        counters: MaterializerCounters,
        *,
        finished: Finished,
        patience: float = _PATIENCE,
        tombstones: float = 86_400.0,
    ) -> None:
        self._writer = writer
        self._look_at = 0.0
        self._evicts: str | None = None
        self._added = AddedRecords(additions)
        self._counters = counters
        self._hand_over = HandOver(HandOvers(writer), self._added, patience=patience)
        self._expiry = Expiry(Expiries(writer), self._added)
        self._guard = CompactionGuard(writer, self._added)
        self._pruner = Pruner(StoredTombstones(writer), tombstones, finished)

    def guard(self, held: ViewPartition, batch: ViewBatch) -> bool:
        """See `CompactionGuard.guard`."""
        return self._guard.guard(held, batch)

    def blocks(self, partition: Partition) -> bool:
        """See `CompactionGuard.blocks`."""
        return self._guard.blocks(partition)

    def hand_over(self, held: ViewPartition) -> PositionMoved | None:
        """See `HandOver.tend`."""
        before = held.generation
        moved = self._hand_over.tend(held)
        if held.generation != before:
            self._counters.handed_over.labels(held.view).inc()
        return moved

    def give_up(self, held: ViewPartition, kept_back: int | None) -> PositionMoved | None:
        """See `HandOver.give_up`."""
        return self._hand_over.give_up(held, kept_back)

    def look_for_eviction(self, partitions: Iterable[ViewPartition]) -> None:
        """Now and then, see whether Redis may drop rows."""
        rows = [self._writer.keys(held.view, held.number).rows for held in partitions]
        if rows and time.monotonic() >= self._look_at:
            self._look_at = time.monotonic() + _LOOK_EVERY
            found = evicts(self._writer, rows)
            if found is not None and self._evicts is None:
                log.error("%s", found)
            self._evicts = found

    def expire(self, partitions: Iterable[ViewPartition], lose: Lose) -> None:
        """See `Expiry.tend`."""
        self._counters.expired.inc(self._expiry.tend(partitions, lose))

    def prune(self, partitions: Iterable[ViewPartition], lose: Lose) -> None:
        """See `Pruner.tend`; `lose` is called for a partition that must be opened again."""
        for held in partitions:
            found = self._pruner.tend(held)
            if isinstance(found, PositionMoved):
                lose(held, found.offset)
            else:
                self._counters.pruned.labels(held.view).inc(found)

    def problems(self) -> list[str]:
        """Why something of this can't be done now."""
        return [problem for problem in (self._added.problem, self._evicts) if problem is not None]


class HandOver:
    """Brings partitions to the build that the catalog names; gives up one that it has not named for `patience` s."""

    def __init__(self, hand_overs: HandOvers, added: AddedRecords, *, patience: float = _PATIENCE) -> None:
        self._hand_overs = hand_overs
        self._added = added
        self._patience = patience
        self._cursors: dict[Partition, int] = {}
        self._unnamed: dict[Partition, tuple[int, float]] = {}

    def tend(self, held: ViewPartition) -> PositionMoved | None:
        """Do what is due for a partition. PositionMoved if it must be opened again."""
        if held.old and held.whole and (moved := self._forget_old(held)) is not None:
            return moved
        if held.generation >= held.entry.generation or held.stored < held.since:
            return None
        result = self._hand_overs.serve(*held.place, held.entry.generation, held.since)
        if isinstance(result, PositionMoved):
            return result
        if isinstance(result, Served):
            log.info("%s[%d] serves generation %d", *held.partition, held.entry.generation)
            held.generation, held.old = held.entry.generation, True
        return None

    def give_up(self, held: ViewPartition, kept_back: int | None) -> PositionMoved | None:
        """Free the rows of the generation `kept_back` if the catalog has not named it for a while.

        PositionMoved if the partition must be opened again.
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
            if isinstance(result, PositionMoved):
                return result
            if result:
                log.warning("%s[%d]: generation %d was given up", *held.partition, kept_back)
            del self._unnamed[held.partition]
        return None

    def _forget_old(self, held: ViewPartition) -> PositionMoved | None:
        if not self._added.possible:
            return None
        view, number, _ = held.place
        cursor = self._cursors.pop(held.partition, 0)
        found = self._hand_overs.old_keys(*held.place, held.generation, cursor, _BATCH)
        if isinstance(found, PositionMoved):
            return found
        if found.vanished:
            # Version 0: any row of this build stands above it, also one that is on its way.
            gone = [(held.partition, tombstone(key, held.generation, 0)) for key in found.vanished]
            if not self._added.add(gone):
                return None
        if found.keys:
            self._hand_overs.forget(view, number, found.keys)
        if found.cursor:
            self._cursors[held.partition] = found.cursor
        elif cursor == 0 and not found.keys:
            # A pass from start to end that found nothing: what came during an earlier one is not missed.
            held.old = False
        return None


class Expiry:
    """Adds tombstones for expired rows. While one is under way, it is not added again."""

    def __init__(self, expiries: Expiries, added: AddedRecords) -> None:
        self._expiries = expiries
        self._added = added
        self._under_way: dict[_Mark, float] = {}

    def tend(self, partitions: Iterable[ViewPartition], lose: Lose) -> int:
        """Look for expired rows in partitions that are whole; returns how many tombstones were added.

        `lose` is called for a partition that must be opened again.
        """
        if not self._added.possible:
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
            if isinstance(found, PositionMoved):
                lose(held, found.offset)
                continue
            for due in found:
                mark = (held.partition, due.key, due.generation, due.version)
                if mark not in self._under_way:
                    marks.append(mark)
                    gone.append((held.partition, tombstone(due.key, due.generation, due.version + 1)))
        if not gone or not self._added.add(gone):
            return 0
        self._under_way.update(dict.fromkeys(marks, now + _UNDER_WAY))
        return len(gone)


@dataclass
class _Pass:
    """One pass over the tombstones of a partition. `cursor` is None between two passes."""

    held: ViewPartition
    horizon: int = -1
    cursor: int | None = None
    due: int = 0


class Pruner:
    """Goes over the tombstones of each partition once, in small steps, whenever its horizon has moved."""

    def __init__(self, tombstones: StoredTombstones, keep: float, finished: Finished) -> None:
        self._tombstones = tombstones
        self._keep = int(keep * 1000)
        self._finished = finished
        self._passes: dict[Partition, _Pass] = {}

    def tend(self, held: ViewPartition) -> int | PositionMoved:
        """Do a step for a partition, if one is due. Returns how many tombstones it has forgotten.

        PositionMoved if the partition must be opened again.
        """
        if not held.whole:
            return 0
        going = self._passes.get(held.partition)
        if going is None or going.held is not held:
            going = self._passes[held.partition] = _Pass(held)
        keys: list[bytes] = []
        if going.cursor is not None:
            keys, cursor = self._tombstones.before(held.view, held.number, going.horizon, going.cursor, _BATCH)
            going.cursor = cursor or None
        now = int(time.time() * 1000)
        if not keys and now < going.due:
            return 0
        batch, dropped = self._finished(held.view, held.generation), 0
        for first in range(0, max(1, len(keys)), _MOST):
            found = self._tombstones.prune(
                *held.place,
                generation=held.generation,
                now=now,
                keep=self._keep,
                batch=batch,
                keys=keys[first : first + _MOST],
            )
            if isinstance(found, PositionMoved):
                return found
            if found is None:
                return dropped
            dropped += found.dropped
            going.due = max(found.moves, now + min(self._keep, _LONGEST_PAUSE))
            if found.horizon > going.horizon:
                going.horizon, going.cursor = found.horizon, 0
        return dropped

"""The partitions of views: how they begin, what their batches are, and what is done for them beside that.

Under a backlog, the batches of one poll are under way while the process reads and reduces the records of the next.
"""

from __future__ import annotations

import logging
import time
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from tailrace.contracts.catalog import Catalog, CatalogView
from tailrace.kafka.changelogs import Message, Partition
from tailrace.materializer.delays import times_of
from tailrace.materializer.partitions import Closed, Opening, Partitions, SentBatch, Services
from tailrace.materializer.poison_search import Trial
from tailrace.materializer.queries.matcher import Matcher
from tailrace.materializer.records import LARGEST_BATCH, cut, raw, with_reasons
from tailrace.materializer.views.as_of import LIVE, Marks, outdated, unusable
from tailrace.materializer.views.batch import ViewBatch, conflate
from tailrace.materializer.views.partition import ViewPartition
from tailrace.materializer.views.upkeep import Upkeep
from tailrace.store.layout.packed import Packed
from tailrace.store.layout.stored_position import StoredPosition
from tailrace.store.write.writer import Applied, Parcel, PositionMoved, Rejected

log = logging.getLogger(__name__)

# The most changes in one script call. To tell a string from the others that it holds, Lua looks at some of its bytes,
# and rows differ in few: with many rows, each new one is compared with many others.
_MOST_CHANGES = 500


@dataclass(frozen=True)
class SentChanges(SentBatch[ViewPartition]):
    """Changes of rows on their way to Redis."""

    batch: ViewBatch


class ViewPartitions(Partitions[CatalogView, ViewPartition, SentChanges, Applied]):
    """The partitions of views that the group has assigned to this instance.

    If a view has live queries, `matcher` applies its batches, so that the members of the queries change together with
    the rows.
    """

    def __init__(self, services: Services, upkeep: Upkeep, matcher: Matcher) -> None:
        super().__init__(services)
        self._upkeep = upkeep
        self._matcher = matcher
        self._marks = Marks()

    def _named(self, catalog: Catalog) -> Iterable[CatalogView]:
        return catalog.views.values()

    def _blocks(self, partition: Partition) -> bool:
        return self._upkeep.blocks(partition) or super()._blocks(partition)

    def _begin(self, opening: Opening[CatalogView]) -> ViewPartition | Closed:
        view, number, lineage, stored = opening.entry, opening.number, opening.lineage, opening.stored
        if (kept := self._changelogs.tombstones_kept(view.changelog)) is None:
            return Closed()
        anew = unusable(stored, opening.first, opening.end, kept, opening.now)
        if anew:
            log.warning("%s[%d] is restored anew: %s", *opening.partition, anew)
        last = opening.end - 1
        begun = self._writer.begin(view.name, number, lineage, last, generation=view.generation, anew=anew != "")
        held = ViewPartition(view, number, lineage, begun.offset, last, begun.generation)
        self._matcher.opened(held)
        held.tombstones_kept = kept
        held.as_of = stored.as_of if stored.as_of is not None and -1 < begun.offset < last else opening.now
        self._marks.set(held.partition, opening.end, opening.now)
        return held

    def _dropped(self, partition: Partition) -> None:
        self._matcher.closed(partition)

    def _complaint(self, held: ViewPartition) -> str | None:
        if held.generation == held.entry.generation:
            return None
        return f"holds generation {held.generation}, the catalog names {held.entry.generation}"

    def _batches(self, held: ViewPartition, messages: Sequence[Message]) -> Iterator[SentChanges]:
        if outdated(held.as_of, held.tombstones_kept, int(time.time() * 1000), floor=LIVE):
            self.close(held.partition)
            return
        for some in cut(messages, LARGEST_BATCH):
            batch = conflate(raw(some), held.read)
            self._counters.records.labels(held.view).inc(batch.records)
            if batch.reached > held.read:
                live = held.read >= held.target
                held.read = batch.reached
                yield from _pieces(held, batch, some, live=live)

    def _is_apart(self, one: SentChanges) -> bool:
        # What was added is compared with what stands before it, and queries are evaluated against that.
        return bool(one.refused or one.batch.added) or self._matcher.evaluates(one.held)

    def _prepare(self, one: SentChanges) -> bool:
        return super()._prepare(one) and self._upkeep.guard(one.held, one.batch)

    def _apply_apart(self, one: SentChanges) -> Applied | PositionMoved | Rejected | None:
        if not self._matcher.evaluates(one.held):
            return None
        with self._sender.doubting([one]):
            return self._matcher.apply(one.held, one.batch)

    def _write(self, batches: Sequence[SentChanges]) -> list[Applied | PositionMoved | Rejected]:
        return self._writer.apply_all(_parcels(batches))

    def _taken(self, one: SentChanges, answer: Applied) -> None:
        held, batch = one.held, one.batch
        held.old |= answer.old > 0
        self._counters.accepted.labels(held.view).inc(answer.accepted)
        # Nobody sees the rows of a build that is kept back: they have no delay.
        if batch.generation == held.generation:
            # A replay that brings nothing new has none, either.
            live = one.live and answer.accepted > 0
            place = (held.view, held.lineage, held.generation)
            self._reporter.delays.stored(place, times_of(batch.packed, batch.added, live=live), live=live)

    def _trial(self, held: ViewPartition, messages: Sequence[Message]) -> Trial | None:
        batch = conflate(raw(messages), held.stored)
        if batch.reached == held.stored:
            return None

        def write(packed: Packed, reached: int) -> object:
            return self._writer.apply_all([Parcel(*held.place, held.stored, reached, packed)])[0]

        def taken() -> None:
            held.stored = held.read = batch.reached

        return Trial(
            whole=lambda: write(batch.packed, batch.reached),
            without=lambda: write(Packed(), batch.reached),
            empty=lambda: write(Packed(), held.stored),
            taken=taken,
        )

    def _searched(self, held: ViewPartition) -> None:
        if self._matcher.evaluates(held):
            # Nobody has told the queries: opened again, all of them are looked at anew.
            self.close(held.partition)

    def _skip(self, held: ViewPartition, reached: int) -> object:
        return self._writer.apply(*held.place, held.stored, reached, [])

    def _tend_one(self, held: ViewPartition) -> None:
        moved = self._upkeep.hand_over(held)
        if moved is None:
            moved = self._matcher.tend(held)
        if moved is not None:
            self.lose(held, moved.offset)

    def _probed(self, held: ViewPartition, stored: StoredPosition) -> PositionMoved | None:
        return self._complete(held) or self._upkeep.give_up(held, stored.next)

    def _complete(self, held: ViewPartition) -> PositionMoved | None:
        """Note in Redis as of when it is complete, and now and then read the end to be reached next; see `as_of`."""
        if (reached := self._marks.reached(held.partition, held.stored, held.as_of)) is not None:
            if (moved := self._writer.complete(*held.place, *reached)) is not None:
                return moved
            held.as_of = reached[1]
        now = int(time.time() * 1000)
        if self._marks.due(held.partition, now):
            self._marks.set(held.partition, self._changelogs.end(held.partition), now)
            kept = self._changelogs.tombstones_kept(held.partition[0])
            held.tombstones_kept = held.tombstones_kept if kept is None else kept
        return None

    def _after_probe(self) -> None:
        self._upkeep.expire(list(self.open.values()), self.lose)
        self._upkeep.prune(list(self.open.values()), self.lose)
        self._upkeep.look_for_eviction(self.open.values())


def _pieces(held: ViewPartition, batch: ViewBatch, messages: Sequence[Message], *, live: bool) -> Iterator[SentChanges]:
    """A batch as it is sent, each piece with the records that it leads over."""
    refused = with_reasons(messages, {one.offset: one.reason for one in batch.refused})
    first = 0
    for piece in batch.pieces(_MOST_CHANGES):
        if piece.reached == batch.reached:
            yield SentChanges(held, piece.reached, messages[first:], refused, live, piece)
            return
        last = bisect_right(messages, piece.reached, first, key=lambda message: message.offset() or 0)
        yield SentChanges(held, piece.reached, messages[first:last], refused, live, piece)
        first = last


def _parcels(batches: Sequence[SentChanges]) -> list[Parcel]:
    """Batches as they are sent: of several of one partition, each begins where the last one ends."""
    reached: dict[Partition, int] = {}
    found = []
    for one in batches:
        held, batch = one.held, one.batch
        found.append(Parcel(*held.place, reached.get(held.partition, held.stored), batch.reached, batch.packed))
        reached[held.partition] = batch.reached
    return found

"""Applying: records become batches, and batches are on their way to Redis while the next records are read.

Under a backlog, the batches of one poll are under way while the process reads and reduces the records of the next: see
`sending`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Protocol

from tailrace.kafka.changelogs import Message, Partition
from tailrace.materializer.counters import Counters
from tailrace.materializer.dead_letters import Letters
from tailrace.materializer.delays import Delays, times_of
from tailrace.materializer.poison_search import Doubts, NotKept, Sifting, Trial, raw
from tailrace.materializer.queries.matcher import Matching
from tailrace.materializer.sender import Sending, doubted
from tailrace.materializer.views.as_of import LIVE, outdated
from tailrace.materializer.views.batch import Batch, conflate, cut
from tailrace.materializer.views.completeness import milliseconds
from tailrace.materializer.views.open_partition import OpenPartition
from tailrace.materializer.views.upkeep import Upkeep
from tailrace.store.layout.packed import Packed
from tailrace.store.write.writer import Applied, Moved, Parcel, Rejected, Writer

# Bytes of values in one script call: the others who use Redis wait for as long as it takes.
_LARGEST_BATCH = 4 * 1024 * 1024
# Changes in one script call. Lua looks at some bytes of a string to tell it from the others that it holds, and rows
# differ in few: of many rows, each new one is compared with many others.
_MOST_CHANGES = 500


@dataclass(frozen=True)
class Sent:
    """A batch, the records that it is of, and the partition as it was open then.

    `live` says that all its records were written after the partition was opened.
    """

    held: OpenPartition
    batch: Batch
    messages: Sequence[Message]
    live: bool


class Partitions(Protocol):
    """The partitions that are open."""

    @property
    def open(self) -> Mapping[Partition, OpenPartition]:
        """Those that are being read."""

    def close(self, partition: Partition) -> None:
        """Have a partition opened again."""

    def lose(self, held: OpenPartition, offset: int | None) -> None:
        """Have a partition opened again, because Redis holds another offset of it than believed."""


class Applying:
    """Hands batches to the store, those of one poll at a time. Methods raise Unavailable for an outage."""

    def __init__(
        self,
        writer: Writer,
        partitions: Partitions,
        upkeep: Upkeep,
        letters: Letters,
        matching: Matching,
        counters: Counters,
        delays: Delays,
        thread: Executor,
    ) -> None:
        self._writer = writer
        self._partitions = partitions
        self._upkeep = upkeep
        self._letters = letters
        self._matching = matching
        self._counters = counters
        self._delays = delays
        self._sifting = Sifting(letters, self._trial)
        self._doubts = Doubts()
        self._sending = Sending(thread, self._doubts, self._write, self._settle)

    @property
    def under_way(self) -> bool:
        """Whether batches were sent whose answers were not taken in."""
        return self._sending.under_way

    def reduce(self, records: Mapping[Partition, Sequence[Message]]) -> list[Sent]:
        """The batches of a poll, for partitions that are open."""
        found: list[Sent] = []
        for partition, messages in records.items():
            if (held := self._partitions.open.get(partition)) is None:
                continue
            if outdated(held.as_of, held.tombstones_kept, milliseconds(), floor=LIVE):
                self._partitions.close(partition)
                continue
            for some in cut(messages, _LARGEST_BATCH):
                batch = conflate(raw(some), held.read)
                self._counters.records.labels(held.view).inc(batch.records)
                if batch.reached > held.read:
                    live = held.read >= held.target
                    held.read = batch.reached
                    found.extend(_pieces(held, batch, some, live=live))
        return found

    def send(self, batches: Iterable[Sent], *, wait: bool) -> None:
        """Apply batches of partitions that are still open; without `wait` they may be under way afterwards."""
        ready: list[Sent] = []
        for one in batches:
            doubtful = self._doubts.about(one.held.partition)
            matched = self._matching.evaluates(one.held)
            if one.batch.added or one.batch.refused or doubtful or matched:
                # What was added is compared with what stands before it, queries are evaluated against it, and a
                # doubtful batch goes alone.
                self._send(ready, wait=True)
                ready = []
                if not self._is_open(one) or not self._prepared(one):
                    continue
                if doubtful:
                    self._sift(one)
                    continue
                if matched:
                    self._match(one)
                    continue
            ready.append(one)
        self._send(ready, wait=wait)

    def finish(self) -> None:
        """Take in what became of the batches that are under way."""
        self._sending.finish()

    def _send(self, batches: list[Sent], *, wait: bool) -> None:
        self._sending.send([one for one in batches if self._is_open(one)], wait=wait)

    def _write(self, batches: Sequence[Sent]) -> list[Applied | Moved | Rejected]:
        return self._writer.apply_all(_parcels(batches))

    def _settle(self, one: Sent, result: Applied | Moved | Rejected) -> None:
        held = one.held
        if not self._is_open(one):
            return
        if isinstance(result, Applied):
            held.stored = one.batch.reached
            held.old |= result.old > 0
            self._counters.accepted.labels(held.view).inc(result.accepted)
            self._measure(one, result.accepted)
            self._doubts.clear(held.partition)
        elif isinstance(result, Moved):
            self._partitions.lose(held, result.offset)
        else:
            self._doubts.raise_about(held.partition, held.stored, result.reason)
            self._partitions.close(held.partition)

    def _measure(self, one: Sent, accepted: int) -> None:
        """Note when the rows of a batch came; those of a build that is kept back have not come to anybody."""
        held, batch = one.held, one.batch
        if batch.generation == held.generation:
            # A replay, of which nothing is new, is no delay.
            live = one.live and accepted > 0
            place = (held.view, held.lineage, held.generation)
            self._delays.stored(place, times_of(batch.packed, batch.added, live=live), live=live)

    def _prepared(self, one: Sent) -> bool:
        """What comes before a batch is applied; where it can't be done now, the partition is opened again."""
        reasons = {refused.offset: refused.reason for refused in one.batch.refused}
        refused = [(m, reasons[m.offset() or 0]) for m in one.messages if reasons and (m.offset() or 0) in reasons]
        if (not refused or self._letters.keep(one.held, refused)) and self._upkeep.mend(one.held, one.batch):
            return True
        self._partitions.close(one.held.partition)
        return False

    def _match(self, one: Sent) -> None:
        with doubted(self._doubts, [one]):
            result = self._matching.apply(one.held, one.batch)
        self._settle(one, result)

    def _sift(self, one: Sent) -> None:
        try:
            moved = self._sifting.apply(one.held, one.messages)
        except NotKept:
            self._partitions.close(one.held.partition)
            return
        if moved is not None:
            self._partitions.lose(one.held, moved.offset)
        else:
            self._doubts.clear(one.held.partition)
            if self._matching.evaluates(one.held):
                # Nobody has told the queries: opened again, all of them are looked at anew.
                self._partitions.close(one.held.partition)

    def _trial(self, held: OpenPartition, messages: Sequence[Message]) -> Trial | None:
        """Records of a partition, to be sifted."""
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

    def _is_open(self, one: Sent) -> bool:
        return self._partitions.open.get(one.held.partition) is one.held


def _pieces(held: OpenPartition, batch: Batch, messages: Sequence[Message], *, live: bool) -> Iterator[Sent]:
    """A batch as it is sent, with the records that each piece leads over."""
    first = 0
    for piece in batch.pieces(_MOST_CHANGES):
        if piece.reached == batch.reached:
            yield Sent(held, piece, messages[first:], live)
            return
        last = bisect_right(messages, piece.reached, first, key=lambda message: message.offset() or 0)
        yield Sent(held, piece, messages[first:last], live)
        first = last


def _parcels(batches: Sequence[Sent]) -> list[Parcel]:
    """Batches as they are sent: of several of one partition, each begins where the last one ends."""
    reached: dict[Partition, int] = {}
    found = []
    for one in batches:
        held, batch = one.held, one.batch
        found.append(Parcel(*held.place, reached.get(held.partition, held.stored), batch.reached, batch.packed))
        reached[held.partition] = batch.reached
    return found

"""Taking: records of feeds become batches, and batches are on their way to Redis while the next records are read.

As `applying` does for views, by the same thread; see `sending`.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Protocol

from tailrace.kafka.changelogs import Message, Partition
from tailrace.materializer.counters import Counters
from tailrace.materializer.dead_letters import Letters
from tailrace.materializer.delays import Delays, times_of_events
from tailrace.materializer.feeds.batch import FeedBatch, gather
from tailrace.materializer.feeds.open_feed import OpenFeed
from tailrace.materializer.poison_search import Doubts, NotKept, Sifting, Trial, raw
from tailrace.materializer.sender import Sending
from tailrace.store.layout.packed_events import PackedEvents
from tailrace.store.write.feeds import FeedParcel, Feeds, Taken
from tailrace.store.write.writer import Moved, Rejected

# Records, and bytes of values, in one script call, for the reasons that `applying` gives.
_MOST_EVENTS = 500
_LARGEST_BATCH = 4 * 1024 * 1024


@dataclass(frozen=True)
class _Sent:
    """A batch, the partition as it was open then, what the store takes, and what it never will.

    `live` says that all its records were written after the partition was opened.
    """

    held: OpenFeed
    batch: FeedBatch
    parcel: FeedParcel
    refused: list[tuple[Message, str]]
    live: bool


class OpenFeeds(Protocol):
    """The partitions of feeds that are open."""

    @property
    def open(self) -> Mapping[Partition, OpenFeed]:
        """Those that are being read."""

    def close_partition(self, partition: Partition) -> None:
        """Have a partition opened again."""

    def lose(self, partition: Partition, offset: int | None) -> None:
        """Have a partition opened again, because Redis holds another offset of it than believed."""


class Taking:
    """Hands batches of events to the store, those of one poll at a time. Methods raise Unavailable for an outage."""

    def __init__(
        self,
        feeds: Feeds,
        partitions: OpenFeeds,
        letters: Letters,
        counters: Counters,
        delays: Delays,
        thread: Executor,
    ) -> None:
        self._feeds = feeds
        self._partitions = partitions
        self._letters = letters
        self._counters = counters
        self._delays = delays
        self._sifting = Sifting(letters, self._trial)
        self._doubts = Doubts()
        self._sending = Sending(thread, self._doubts, self._write, self._settle)
        self._ready: list[_Sent] = []
        self._doubtful: list[tuple[OpenFeed, Sequence[Message]]] = []

    @property
    def under_way(self) -> bool:
        """Whether batches were sent whose answers were not taken in."""
        return self._sending.under_way

    def reduce(self, records: Mapping[Partition, Sequence[Message]]) -> None:
        """Make the batches of a poll, for partitions that are open."""
        now = time.monotonic()
        for partition, messages in records.items():
            if (held := self._partitions.open.get(partition)) is None:
                continue
            if self._doubts.about(partition):
                self._doubtful.append((held, messages))
                continue
            feed = held.place.feed
            limits = {"most": _MOST_EVENTS, "largest": _LARGEST_BATCH}
            batches = gather(raw(messages), held.read, held.marks, ordered=feed.ordered, **limits)
            for batch in batches:
                tended = held.tended.due(batch.packed.clients.keys(), feed.age, now)
                parcel = FeedParcel(held.place, held.begun, held.read, batch.reached, batch.packed, tended)
                live = held.read >= held.target
                held.read = batch.reached
                self._ready.append(_Sent(held, batch, parcel, _of(messages, dict(batch.refused)), live))

    def send(self, *, wait: bool) -> None:
        """Send the batches of partitions that are still open; without `wait` they may be under way afterwards.

        Dead letters are kept before the position moves past them.
        """
        ready, self._ready = self._ready, []
        doubtful, self._doubtful = self._doubtful, []
        for held, messages in doubtful:
            if self._partitions.open.get(held.partition) is held:
                self._sift(held, messages)
        for one in ready:
            if self._is_open(one):
                self._keep(one.held, one.refused)
        self._sending.send([one for one in ready if self._is_open(one)], wait=wait)

    def finish(self) -> None:
        """Take in what became of the batches that are under way."""
        self._sending.finish()

    def drop(self) -> None:
        """Redis is away: forget what was to be sent, and wait until nothing is under way."""
        self._ready, self._doubtful = [], []
        self._sending.drop()

    def _write(self, batches: Sequence[_Sent]) -> list[Taken | Moved | Rejected]:
        return self._feeds.apply_all([one.parcel for one in batches])

    def _settle(self, one: _Sent, result: Taken | Moved | Rejected) -> None:
        held = one.held
        if not self._is_open(one):
            return
        if isinstance(result, Moved):
            self._partitions.lose(held.partition, result.offset)
        elif isinstance(result, Rejected):
            self._doubts.raise_about(held.partition, held.stored, result.reason)
            self._partitions.close_partition(held.partition)
        else:
            held.stored = one.batch.reached
            self._counters.records.labels(held.view).inc(one.batch.records)
            self._counters.accepted.labels(held.view).inc(result.new)
            self._counters.kept.labels(held.view).inc(result.kept)
            live = one.live and result.new > 0
            place = (held.view, held.lineage, held.generation)
            self._delays.stored(place, times_of_events(one.batch.packed, live=live), live=live)
            self._doubts.clear(held.partition)

    def _keep(self, held: OpenFeed, refused: list[tuple[Message, str]]) -> bool:
        """Keep records that are no events; where that can't be done now, the partition is opened again."""
        if not refused or self._letters.keep(held, refused):
            return True
        self._partitions.close_partition(held.partition)
        return False

    def _sift(self, held: OpenFeed, messages: Sequence[Message]) -> None:
        batch, _ = _as_one(held, messages)
        if not self._keep(held, _of(messages, dict(batch.refused) if batch is not None else {})):
            return
        try:
            moved = self._sifting.apply(held, messages)
        except NotKept:
            self._partitions.close_partition(held.partition)
            return
        if moved is not None:
            self._partitions.lose(held.partition, moved.offset)
        else:
            self._doubts.clear(held.partition)
            self._counters.records.labels(held.view).inc(len(messages))

    def _trial(self, held: OpenFeed, messages: Sequence[Message]) -> Trial | None:
        """Records of a partition, to be sifted; what is no event among them is passed over."""
        batch, marks = _as_one(held, messages)
        if batch is None:
            return None

        def write(packed: PackedEvents, reached: int) -> object:
            return self._feeds.apply(held.place, held.begun, held.stored, reached, packed)

        def taken() -> None:
            held.stored = held.read = batch.reached
            held.marks.update(marks)

        # A mark moves also without its event: repeated by the pipeline, it would be condemned once more.
        marked = PackedEvents(marks=batch.packed.marks)
        return Trial(
            whole=lambda: write(batch.packed, batch.reached),
            without=lambda: write(marked, batch.reached),
            empty=lambda: write(PackedEvents(), held.stored),
            taken=taken,
        )

    def _is_open(self, one: _Sent) -> bool:
        return self._partitions.open.get(one.held.partition) is one.held


def _as_one(held: OpenFeed, messages: Sequence[Message]) -> tuple[FeedBatch | None, dict[bytes, int]]:
    """All of some records as one batch, and the marks that it leads to; None where the store has them all."""
    marks = dict(held.marks)
    size = sum(len(message.value() or b"") for message in messages)
    limits = {"most": len(messages), "largest": size}
    found = gather(raw(messages), held.stored, marks, ordered=held.place.feed.ordered, **limits)
    return (found[0] if found else None), marks


def _of(messages: Sequence[Message], reasons: Mapping[int, str]) -> list[tuple[Message, str]]:
    if not reasons:
        return []
    return [(message, reasons[message.offset() or 0]) for message in messages if (message.offset() or 0) in reasons]

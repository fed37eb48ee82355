"""The life of a partition in a materializer. It is the same for views and feeds.

1. open: ask Redis for the position that it holds, empty a partition of an unknown lineage, and seek to the offset
   after the position. A crash here loses nothing: the next owner asks again.
2. make batches of the records of a poll.
3. send: one script call per batch compares the position, writes, moves the position and publishes. A crash before it
   repeats the batch; a crash after it is found in step 1. Repeated records change nothing.
4. tend: once a second, ask Redis whether it still holds what it was given.
5. close: whenever Redis holds another position than the believed one (it was emptied, rolled back or failed over, or
   another instance wrote), the script writes nothing, and the partition is opened again.

Before a batch moves the position past a record that is refused, the record is kept as a dead letter. A batch that
Redis does not take is searched for the record that is to blame. If one partition fails in a way nobody foresaw, that
one rests for a while and the others go on.
"""

from __future__ import annotations

import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from tailrace.contracts.catalog import Catalog
from tailrace.kafka.changelogs import Changelogs, Message, Partition
from tailrace.materializer.counters import MaterializerCounters
from tailrace.materializer.dead_letters import DeadLetterKeeper
from tailrace.materializer.partition import Entry, OpenPartition
from tailrace.materializer.poison_search import Doubts, NotKept, PoisonSearch, Trial, passed
from tailrace.materializer.reports import Reporter
from tailrace.materializer.sender import Sender
from tailrace.store.connection.outages import Unavailable
from tailrace.store.layout.stored_position import StoredPosition
from tailrace.store.write.writer import PositionMoved, Rejected, StoreWriter

log = logging.getLogger(__name__)

# How long, in seconds, a partition rests after it has failed in a way nobody foresaw.
_REST = 5.0

Open = TypeVar("Open", bound=OpenPartition[Any])
Subject = TypeVar("Subject")


@dataclass(frozen=True)
class Services:
    """What the partitions of views and those of feeds have in common; `lost` is called if Redis has lost a position."""

    changelogs: Changelogs
    writer: StoreWriter
    dead_letters: DeadLetterKeeper
    counters: MaterializerCounters
    reporter: Reporter
    doubts: Doubts
    sender: Sender
    lost: Callable[[], None]


@dataclass(frozen=True)
class Opening(Generic[Entry]):
    """A partition that is about to be opened, and what Redis and Kafka hold of it.

    `first` is the first offset of the changelog and `end` the offset that its next record will get; both were read at
    `now`, in ms, or later.
    """

    entry: Entry
    number: int
    lineage: str
    stored: StoredPosition
    first: int
    end: int
    now: int

    @property
    def partition(self) -> Partition:
        """The topic and number that Kafka knows it by."""
        return (self.entry.changelog, self.number)


@dataclass(frozen=True)
class Closed:
    """A partition is closed: it may be opened at the time `until`, and waits until then for the reason `why`."""

    until: float = 0.0
    why: str = "to be opened"


@dataclass(frozen=True)
class SentBatch(Generic[Open]):
    """A batch that leads to the offset `reached`, and the partition as it was open when the batch was made.

    `messages` are its records. `refused` are records that can't be applied, with the reasons; they may be of other
    batches, too. `live` says that all records were written after the partition was opened.
    """

    held: Open
    reached: int
    messages: Sequence[Message]
    refused: Sequence[tuple[Message, str]]
    live: bool


Batch = TypeVar("Batch", bound=SentBatch[Any])
Answer = TypeVar("Answer")


class Partitions(ABC, Generic[Entry, Open, Batch, Answer]):
    """The partitions of one kind that the group has assigned to this instance.

    Redis answers a batch with `Answer`, PositionMoved or Rejected. Methods raise Unavailable for an outage: call
    `close_all` then. A subclass says what is in the catalog, how a partition begins, and what its batches are.
    """

    def __init__(self, services: Services) -> None:
        self._changelogs = services.changelogs
        self._writer = services.writer
        self._dead_letters = services.dead_letters
        self._counters = services.counters
        self._reporter = services.reporter
        self._doubts = services.doubts
        self._sender = services.sender
        self._lost = services.lost
        self._search = PoisonSearch(services.dead_letters, self._trial)
        self._entries: dict[str, tuple[Entry, str]] = {}
        self.open: dict[Partition, Open] = {}
        self._closed: dict[Partition, Closed] = {}
        self._left: dict[Partition, Open] = {}
        self._resting: dict[Partition, float] = {}

    # What views and feeds differ in.

    @abstractmethod
    def _named(self, catalog: Catalog) -> Iterable[Entry]:
        """What the catalog has of this kind."""

    @abstractmethod
    def _begin(self, opening: Opening[Entry]) -> Open | Closed:
        """Have Redis begin with a partition, or say until when it stays closed."""

    @abstractmethod
    def _batches(self, held: Open, messages: Sequence[Message]) -> Iterable[Batch]:
        """Make batches of records, and move `read` with each."""

    @abstractmethod
    def _write(self, batches: Sequence[Batch]) -> list[Answer | PositionMoved | Rejected]:
        """Have Redis take batches, with one script call for each, in one round trip per server. On any thread."""

    @abstractmethod
    def _taken(self, one: Batch, answer: Answer) -> None:
        """Count and measure a batch that Redis has taken."""

    @abstractmethod
    def _trial(self, held: Open, messages: Sequence[Message]) -> Trial | None:
        """Records as one batch that may fail; see `PoisonSearch`."""

    @abstractmethod
    def _skip(self, held: Open, reached: int) -> object:
        """Have Redis move the position and write nothing else; returns its answer."""

    def _blocks(self, partition: Partition) -> bool:
        """Whether a partition must not be opened now."""
        return self._dead_letters.blocks(partition) or self._resting.get(partition, 0.0) > time.monotonic()

    def _is_doubtful(self, one: Batch) -> bool:
        """Whether a batch must be searched."""
        return self._doubts.about(one.held.partition)

    def _is_apart(self, one: Batch) -> bool:
        """Whether a batch must be looked at once Redis has those before it."""
        return bool(one.refused)

    def _prepare(self, one: Batch) -> bool:
        """Do what comes before a batch that is apart. False if that can't be done now."""
        return not one.refused or self._dead_letters.keep(one.held, one.refused)

    def _apply_apart(self, one: Batch) -> Answer | PositionMoved | Rejected | None:
        """Apply a batch that can't be sent with others; None if it can."""

    def _searched(self, held: Open) -> None:
        """The records of a partition were searched, and Redis holds what can be held."""

    def _tend_one(self, held: Open) -> None:
        """Do what is due for a partition at any time."""

    def _probed(self, held: Open, stored: StoredPosition) -> PositionMoved | None:
        """Do what is due now and then, if Redis holds what was believed. PositionMoved if it must be opened again."""

    def _after_probe(self) -> None:
        """Do what is due for all partitions now and then."""

    def _complaint(self, held: Open) -> str | None:
        """Why a whole partition is not current."""

    def _dropped(self, partition: Partition) -> None:
        """A partition is not open any more."""

    # Its partitions come and go.

    @property
    def topics(self) -> set[str]:
        """The changelogs that the catalog names."""
        return set(self._entries)

    def take_catalog(self, catalog: Catalog | None) -> None:
        """Follow what a catalog names."""
        named = [] if catalog is None else [(entry, catalog.lineage(entry)) for entry in self._named(catalog)]
        self._entries = {entry.changelog: (entry, lineage) for entry, lineage in named}
        for partition, held in list(self.open.items()):
            entry, lineage = self._entries.get(partition[0], (None, ""))
            if entry is None or lineage != held.lineage:
                self.close(partition)
            else:
                held.take(entry)

    def assign(self, partition: Partition) -> None:
        """The group has assigned a partition to this instance."""
        self._closed[partition] = Closed()

    def revoke(self, partition: Partition) -> None:
        """The group has taken a partition away."""
        for held in (self.open, self._closed, self._left):
            held.pop(partition, None)
        self._dropped(partition)

    def open_due(self) -> None:
        """Open the partitions that may be opened now."""
        now = time.monotonic()
        for partition, closed in list(self._closed.items()):
            if now >= closed.until and not self._blocks(partition):
                self._alone(partition, self._open, partition)

    def close(self, partition: Partition) -> None:
        """Have a partition opened again."""
        self._changelogs.pause(partition)
        self.open.pop(partition, None)
        self._closed[partition] = Closed()
        self._dropped(partition)

    def close_all(self) -> None:
        """Redis is away: have every partition opened again, from the position that Redis holds then."""
        self._left.update(self.open)
        for partition in list(self.open):
            self.close(partition)

    def lose(self, held: Open, offset: int | None) -> None:
        """Redis holds another position than believed, or none: have the partition opened again."""
        log.warning(
            "%s[%d]: Redis holds offset %s, not what was believed: offset %d of generation %d",
            *held.partition,
            offset,
            held.stored,
            held.generation,
        )
        self.close(held.partition)
        if offset is None:
            self._lost()

    def recovered(self) -> None:
        """Redis can be written again."""
        self._left.clear()

    def measure_left(self) -> bool:
        """Note how far Redis falls behind while it can't be written. False if Kafka does not answer."""
        for partition, held in self._left.items():
            # Nothing is fetched now, so the end must be asked for.
            if (end := self._changelogs.end(partition)) is None:
                return False
            self._counters.behind(held.view, held.number, end - 1 - held.stored)
        return True

    def positions(self) -> Iterator[tuple[Partition, int]]:
        """Each open partition with the offset that comes next."""
        return ((partition, held.stored + 1) for partition, held in self.open.items() if held.stored >= 0)

    def reasons(self) -> list[str]:
        """Why these partitions are not current; empty if they are."""
        now, found = time.monotonic(), []
        for (topic, number), closed in sorted(self._closed.items(), key=lambda item: item[0]):
            why = closed.why if closed.until > now else Closed().why
            found.append(f"{topic}[{number}] is waiting {why}")
        for (topic, number), held in sorted(self.open.items(), key=lambda item: item[0]):
            if not held.whole:
                found.append(f"{topic}[{number}] is being restored: {held.stored} of {held.target}")
            elif (complaint := self._complaint(held)) is not None:
                found.append(f"{topic}[{number}] {complaint}")
        return found

    def _open(self, partition: Partition) -> None:
        topic, number = partition
        if topic not in self._entries:
            return
        entry, lineage = self._entries[topic]
        if number >= entry.partitions:
            # Somebody has added it to the changelog; nothing is written there.
            del self._closed[partition]
            return
        # The stored offset is read before the end: a position past an end that is read later is from a longer
        # log than this one, such as before an unclean election, and can't be honoured.
        (stored,) = self._writer.stored([(entry.name, number, lineage)])
        now = int(time.time() * 1000)
        if (bounds := self._changelogs.bounds(partition)) is None:
            return
        held = self._begin(Opening(entry, number, lineage, stored, *bounds, now))
        if isinstance(held, Closed):
            self._closed[partition] = held
            return
        self._changelogs.open(partition, held.stored + 1)
        self.open[partition] = held
        del self._closed[partition]
        self._counters.reopened.labels(held.view).inc()
        log.info("opened %s[%d] at offset %d of %d", topic, number, held.stored + 1, bounds[1])

    def _alone(self, partition: Partition, step: Callable[[Subject], None], subject: Subject) -> None:
        """Do something for one partition. If it fails in a way nobody foresaw, the partition rests for a while."""
        try:
            step(subject)
        except Unavailable:
            raise
        except Exception:
            log.exception("%s[%d] failed, and is opened again in %.0f s", *partition, _REST)
            self._counters.set_aside.labels("partition").inc()
            self._resting[partition] = time.monotonic() + _REST
            self.close(partition)

    # Its records become batches, and these are sent.

    def reduce(self, records: Mapping[Partition, Sequence[Message]]) -> list[Batch]:
        """The batches of a poll, for partitions that are open."""
        found: list[Batch] = []
        for partition, messages in records.items():
            if (held := self.open.get(partition)) is not None:
                found.extend(self._batches(held, messages))
        return found

    def send(self, batches: Iterable[Batch], *, wait: bool) -> None:
        """Send batches of partitions that are still open. Without `wait` they may be under way afterwards."""
        ready: list[Batch] = []
        for one in batches:
            doubtful = self._is_doubtful(one)
            if doubtful or self._is_apart(one):
                self._send(ready, wait=True)
                ready = []
                if not self._is_open(one):
                    continue
                if not self._prepare(one):
                    self.close(one.held.partition)
                    continue
                if doubtful:
                    self._apply_doubtful(one)
                    continue
                if (answer := self._apply_apart(one)) is not None:
                    self._settle(one, answer)
                    continue
            ready.append(one)
        self._send(ready, wait=wait)

    def _send(self, batches: Sequence[Batch], *, wait: bool) -> None:
        self._sender.send([one for one in batches if self._is_open(one)], self._write, self._settle, wait=wait)

    def _settle(self, one: Batch, answer: Answer | PositionMoved | Rejected) -> None:
        held = one.held
        if not self._is_open(one):
            return
        if isinstance(answer, PositionMoved):
            self.lose(held, answer.offset)
        elif isinstance(answer, Rejected):
            self._doubts.raise_about(held.partition, held.stored, answer.reason)
            self.close(held.partition)
        else:
            held.stored = one.reached
            self._doubts.clear(held.partition)
            self._taken(one, answer)

    def _apply_doubtful(self, one: Batch) -> None:
        held = one.held
        try:
            moved = self._search.apply(held, one.messages)
        except NotKept:
            self.close(held.partition)
            return
        if moved is not None:
            self.lose(held, moved.offset)
        else:
            self._doubts.clear(held.partition)
            self._searched(held)

    def _is_open(self, one: Batch) -> bool:
        return self.open.get(one.held.partition) is one.held

    # What is done while nothing is under way.

    def tend(self, *, probing: bool) -> None:
        """Do what is due beside applying records; with `probing`, ask Redis what it holds."""
        for held in list(self.open.values()):
            self._alone(held.partition, self._tend_one, held)
        if probing:
            partitions = list(self.open.values())
            found = self._writer.stored([held.place for held in partitions])
            for held, stored in zip(partitions, found, strict=True):
                self._alone(held.partition, lambda pair: self._probe(*pair), (held, stored))
            self._after_probe()

    def _probe(self, held: Open, stored: StoredPosition) -> None:
        """See whether Redis still holds what it was given, and how far behind it is."""
        if not held.agrees(stored):
            self.lose(held, stored.offset)
            return
        # Redis may be another one by now. Each of these finds out, and then changes nothing.
        moved = self._probed(held, stored) or self._skip_gap(held)
        if moved is not None:
            self.lose(held, moved.offset)
            return
        self._counters.offset.labels(held.view, str(held.number)).set(held.stored)
        if (end := self._changelogs.end(held.partition, cached=True)) is not None:
            self._counters.behind(held.view, held.number, end - 1 - held.stored)
            self._reporter.seen(held.partition, held.stored, end)

    def _skip_gap(self, held: Open) -> PositionMoved | None:
        """Move past offsets at the end of a changelog that hold no record, such as transaction markers."""
        if held.whole:
            return None
        reached = (self._changelogs.next_offset(held.partition) or 0) - 1
        if reached <= held.stored:
            return None
        if (moved := passed(self._skip(held, reached))) is None:
            held.stored = held.read = reached
        return moved

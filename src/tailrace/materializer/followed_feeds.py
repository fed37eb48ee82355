"""The feeds of an app in a materializer: their partitions are opened, read and tended beside those of views.

For every partition of a feed that the group assigns:

1. open: ask Redis for the position it holds and seek to the offset after it. Where it holds none, `feed_beginning`
   says where to begin. A lost Redis has lost the registrations, too: the partition waits until gateways have
   registered their clients again, and then gives them the events of the hold time.
2. poll: records come in offset order; all of them count.
3. apply: one script compares the position, passes over replays, keeps and publishes what somebody listens to, and
   moves the position. A crash before it repeats the batch; a crash after it is found in step 1.
4. lapse: registrations that have expired take what was kept for them along.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from tailrace.catalog import Catalog, CatalogFeed
from tailrace.kafka.changelogs import Changelogs, Message, Partition, Polled
from tailrace.materializer.counters import Counters
from tailrace.materializer.feed_batch import FeedBatch, gather
from tailrace.materializer.feed_beginning import beginning
from tailrace.materializer.letters import Letters
from tailrace.materializer.sifting import raw
from tailrace.store.feeds import FeedPlace, Feeds, Taken
from tailrace.store.listening import REFRESH
from tailrace.store.writer import Moved, Writer

log = logging.getLogger(__name__)

# Gateways refresh registrations more often than this.
GRACE = REFRESH + 2.0
_PROBE_EVERY = 1.0
# Events in one script call, for the reason that `applying` gives.
_MOST_EVENTS = 500


@dataclass
class OpenFeed:
    """A partition that is being read, and what Redis holds of it."""

    place: FeedPlace
    begun: str
    stored: int
    target: int
    lettered: int | None = None

    @property
    def partition(self) -> Partition:
        """The partition of the changelog."""
        return (self.place.feed.changelog, self.place.partition)

    @property
    def view(self) -> str:
        """The name of the feed."""
        return self.place.feed.name

    @property
    def whole(self) -> bool:
        """Whether everything that the changelog held when the partition was opened is in the store."""
        return self.stored >= self.target


@dataclass(frozen=True)
class _Sent:
    """A batch that is on its way to Redis."""

    partition: Partition
    held: OpenFeed
    batch: FeedBatch
    answer: Callable[[], Taken | Moved]


class FollowedFeeds:
    """The partitions of feeds of one instance. `lost` is called when Redis turns out to be empty."""

    def __init__(
        self,
        changelogs: Changelogs,
        writer: Writer,
        letters: Letters,
        counters: Counters,
        lost: Callable[[], None] = lambda: None,
        *,
        grace: float = GRACE,
    ) -> None:
        self._changelogs = changelogs
        self._writer = writer
        self._letters = letters
        self._feeds = Feeds(writer)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="feeds")
        self._counters = counters
        self._lost = lost
        self._grace = grace
        self._entries: dict[str, tuple[CatalogFeed, str]] = {}
        self._open: dict[Partition, OpenFeed] = {}
        self._closed: dict[Partition, float] = {}
        self._records: dict[Partition, list[Message]] = {}
        self._alive: dict[Partition, float] = {}
        self._probe_at = 0.0

    @property
    def topics(self) -> set[str]:
        """The changelogs of all feeds."""
        return set(self._entries)

    def take_catalog(self, catalog: Catalog | None) -> None:
        """Follow the feeds of a catalog."""
        feeds = {} if catalog is None else catalog.feeds
        found = {} if catalog is None else {f.changelog: (f, catalog.lineage(f)) for f in feeds.values()}
        for partition, held in list(self._open.items()):
            known = found.get(partition[0])
            if known is None or known[1] != held.place.lineage:
                self._close(partition)
            else:
                held.place = FeedPlace(known[0], partition[1], known[1])
        self._entries = found

    def claim(self, polled: Polled) -> Polled:
        """Take what a poll has brought of feeds; returns the rest."""
        for partition in polled.revoked:
            self._forget(partition)
        self._closed.update({p: 0.0 for p in polled.assigned if p[0] in self._entries})
        for partition, messages in polled.records.items():
            if partition in self._open:
                self._records.setdefault(partition, []).extend(messages)
        return Polled(
            {partition: messages for partition, messages in polled.records.items() if partition not in self._open},
            [partition for partition in polled.assigned if partition not in self._closed],
            polled.revoked,
            polled.full,
        )

    def step(self) -> None:
        """Do what is due; raises Unavailable, and then `close` must be called."""
        now = time.monotonic()
        for partition, at in list(self._closed.items()):
            if now >= at and not self._letters.blocks(partition):
                self._open_partition(partition)
        records, self._records = self._records, {}
        self._apply(records)
        if now >= self._probe_at:
            self._probe_at = now + _PROBE_EVERY
            self._probe()
            for held in self._open.values():
                self._feeds.lapse(held.place, held.begun)

    def close(self) -> None:
        """Redis is away: drop what was polled, and open everything again from the position that Redis then holds."""
        self._records = {}
        for partition in list(self._open):
            self._close(partition)

    def positions(self) -> Iterator[tuple[Partition, int]]:
        """Per open partition the offset that comes next."""
        return ((partition, held.stored + 1) for partition, held in self._open.items() if held.stored >= 0)

    def reasons(self) -> list[str]:
        """Why these feeds are not current; empty where they are."""
        now = time.monotonic()
        found = []
        for (topic, number), at in sorted(self._closed.items()):
            what = "is waiting for its listeners to register again" if at > now else "is waiting to be opened"
            found.append(f"{topic}[{number}] {what}")
        for (topic, number), held in sorted(self._open.items()):
            if not held.whole:
                found.append(f"{topic}[{number}] is being restored: {held.stored} of {held.target}")
        return found

    def _open_partition(self, partition: Partition) -> None:
        topic, number = partition
        if topic not in self._entries:
            return
        place = FeedPlace(self._entries[topic][0], number, self._entries[topic][1])
        feed = place.feed
        # The stored offset is read before the end: a position past an end that is read later can't be honoured.
        (stored,) = self._writer.offsets([(feed.name, number, place.lineage)])
        bounds = self._changelogs.bounds(partition)
        alive = min(time.time(), self._alive.get(partition, time.time()))
        held = self._changelogs.at_time(partition, int((alive - feed.hold) * 1000))
        if bounds is None or held is None:
            return
        first, end = bounds
        anew = stored is not None and stored >= end
        if anew:
            log.error("%s[%d]: Redis holds offset %s, but the changelog ends with %d", topic, number, stored, end - 1)
        begun = self._feeds.begin(place, beginning(feed, first, end, held, self._grace), anew=anew)
        if begun.lost:
            self._counters.lost.labels(feed.name).inc(begun.lost)
            log.error(
                "%s[%d]: %d records were removed by retention before they were read; clients that miss events are told",
                *partition,
                begun.lost,
            )
        if begun.wait > 0:
            log.info("%s[%d] waits %.1f s for its listeners to register again", topic, number, begun.wait)
            self._closed[partition] = time.monotonic() + begun.wait
            return
        self._changelogs.open(partition, begun.offset + 1)
        self._open[partition] = OpenFeed(place, begun.begun, begun.offset, end - 1)
        del self._closed[partition]
        self._counters.reopened.labels(feed.name).inc()
        log.info("opened %s[%d] at offset %d of %d", topic, number, begun.offset + 1, end)

    def _apply(self, records: Mapping[Partition, Sequence[Message]]) -> None:
        """Have a thread send a batch while the next one is made. For a single one it would only add its own delay."""
        sent: _Sent | None = None
        single = sum(map(len, records.values())) <= _MOST_EVENTS
        for partition, found in records.items():
            for first in range(0, len(found), _MOST_EVENTS):
                messages = found[first : first + _MOST_EVENTS]
                if (held := self._open.get(partition)) is None:
                    break
                reached = sent.batch.reached if sent is not None and sent.held is held else held.stored
                batch = gather(raw(messages), reached)
                self._settle(sent)
                sent = self._send(partition, held, batch, messages, wait=single)
        self._settle(sent)

    def _send(
        self, partition: Partition, held: OpenFeed, batch: FeedBatch, messages: Sequence[Message], *, wait: bool
    ) -> _Sent | None:
        if self._open.get(partition) is not held or batch.reached == held.stored:
            return None
        if batch.refused and not self._letters.keep(held, _refused(messages, dict(batch.refused))):
            self._close(partition)
            return None
        args = (held.place, held.begun, held.stored, batch.reached, batch.events)
        if wait:
            return _Sent(partition, held, batch, lambda: self._feeds.apply(*args))
        return _Sent(partition, held, batch, self._thread.submit(self._feeds.apply, *args).result)

    def _settle(self, sent: _Sent | None) -> None:
        """Take in what became of a batch, before anything else is asked of Redis."""
        if sent is None:
            return
        name, batch, result = sent.held.place.feed.name, sent.batch, sent.answer()
        if isinstance(result, Moved):
            self._lose(sent.partition, result.offset)
            return
        sent.held.stored = batch.reached
        self._counters.records.labels(name).inc(batch.records)
        self._counters.accepted.labels(name).inc(result.new)
        self._counters.kept.labels(name).inc(result.kept)

    def _probe(self) -> None:
        """Find out whether Redis still holds what it was given, and how far behind it is."""
        partitions = list(self._open.items())
        places = [(held.place.feed.name, held.place.partition, held.place.lineage) for _, held in partitions]
        for (partition, held), stored in zip(partitions, self._writer.offsets(places), strict=True):
            if stored != held.stored:
                self._lose(partition, stored)
                continue
            self._alive[partition] = time.time()
            self._pass_gap(partition, held)
            labels = (held.place.feed.name, str(partition[1]))
            self._counters.offset.labels(*labels).set(held.stored)
            if (end := self._changelogs.end(partition, cached=True)) is not None:
                self._counters.lag.labels(*labels).set(max(0, end - 1 - held.stored))

    def _pass_gap(self, partition: Partition, held: OpenFeed) -> None:
        """Move past offsets at the end of a changelog that hold no record, such as transaction markers."""
        if held.whole:
            return
        reached = (self._changelogs.next_offset(partition) or 0) - 1
        if reached > held.stored:
            result = self._feeds.apply(held.place, held.begun, held.stored, reached, [])
            if isinstance(result, Moved):
                self._lose(partition, result.offset)
            else:
                held.stored = reached

    def _lose(self, partition: Partition, offset: int | None) -> None:
        """Redis holds another position than believed: ask it again."""
        believed = self._open[partition].stored
        log.warning("%s[%d]: Redis holds offset %s, not %d, as was believed", *partition, offset, believed)
        self._close(partition)
        if offset is None:
            self._lost()

    def _close(self, partition: Partition) -> None:
        self._changelogs.pause(partition)
        self._open.pop(partition, None)
        self._closed[partition] = 0.0

    def _forget(self, partition: Partition) -> None:
        for held in (self._open, self._closed, self._records, self._alive):
            held.pop(partition, None)


def _refused(messages: Sequence[Message], reasons: Mapping[int, str]) -> list[tuple[Message, str]]:
    return [(message, reasons[message.offset() or 0]) for message in messages if (message.offset() or 0) in reasons]

"""The feeds of an app in a materializer: their partitions are opened, read and tended beside those of views.

For every partition of a feed that the group assigns:

1. open: ask Redis for the position and the marks it holds and seek to the offset after it. Where it holds none,
   `feed_beginning` says where to begin. A lost Redis has lost the registrations, too: the partition waits until
   gateways have registered their clients again, and then gives them the events of the hold time.
2. poll: records come in offset order; all of them count but replays, which are not above the mark of their source.
3. take: one script per batch compares the position, keeps and publishes what somebody listens to, and moves marks and
   position. A crash before it repeats the batch; a crash after it is found in step 1.
4. lapse: registrations that have expired take what was kept for them along.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor

from tailrace.contracts.catalog import Catalog, CatalogFeed
from tailrace.kafka.changelogs import Changelogs, Message, Partition, Polled
from tailrace.materializer.counters import Counters
from tailrace.materializer.dead_letters import Letters
from tailrace.materializer.feeds.beginning import beginning
from tailrace.materializer.feeds.feed_writer import Taking
from tailrace.materializer.feeds.open_feed import OpenFeed
from tailrace.materializer.reports import Reporting
from tailrace.materializer.rest import Resting
from tailrace.store.layout.feed_keys import REFRESH, FeedPlace
from tailrace.store.layout.packed_events import PackedEvents
from tailrace.store.write.feeds import Feeds, Taken
from tailrace.store.write.writer import Moved, Writer

log = logging.getLogger(__name__)

# Gateways refresh registrations more often than this.
GRACE = REFRESH + 2.0


class FollowedFeeds:
    """The partitions of feeds of one instance. `lost` is called when Redis turns out to be empty."""

    def __init__(
        self,
        changelogs: Changelogs,
        writer: Writer,
        letters: Letters,
        counters: Counters,
        reporting: Reporting,
        thread: Executor,
        lost: Callable[[], None] = lambda: None,
        *,
        grace: float = GRACE,
    ) -> None:
        self._changelogs = changelogs
        self._writer = writer
        self._letters = letters
        self._feeds = Feeds(writer)
        self._taking = Taking(self._feeds, self, letters, counters, reporting.delays, thread)
        self._reporting = reporting
        self._counters = counters
        self._lost = lost
        self._grace = grace
        self._entries: dict[str, tuple[CatalogFeed, str]] = {}
        self.open: dict[Partition, OpenFeed] = {}
        self._closed: dict[Partition, float] = {}
        self._records: dict[Partition, list[Message]] = {}
        self._alive: dict[Partition, float] = {}
        self._resting = Resting(counters, self.close_partition)

    @property
    def topics(self) -> set[str]:
        """The changelogs of all feeds."""
        return set(self._entries)

    def take_catalog(self, catalog: Catalog | None) -> None:
        """Follow the feeds of a catalog."""
        feeds = {} if catalog is None else catalog.feeds
        found = {} if catalog is None else {f.changelog: (f, catalog.lineage(f)) for f in feeds.values()}
        for partition, held in list(self.open.items()):
            known = found.get(partition[0])
            if known is None or known[1] != held.place.lineage:
                self.close_partition(partition)
            else:
                held.place = FeedPlace(known[0], partition[1], known[1])
        self._entries = found

    def claim(self, polled: Polled) -> Polled:
        """Take what a poll has brought of feeds; returns the rest."""
        for partition in polled.revoked:
            self._forget(partition)
        self._closed.update({p: 0.0 for p in polled.assigned if p[0] in self._entries})
        for partition, messages in polled.records.items():
            if partition in self.open:
                self._records.setdefault(partition, []).extend(messages)
        return Polled(
            {partition: messages for partition, messages in polled.records.items() if partition not in self.open},
            [partition for partition in polled.assigned if partition not in self._closed],
            polled.revoked,
            polled.full,
        )

    @property
    def under_way(self) -> bool:
        """Whether events are on their way to Redis."""
        return self._taking.under_way

    def reduce(self) -> None:
        """Make batches of what was claimed."""
        records, self._records = self._records, {}
        self._taking.reduce(records)

    def finish(self) -> None:
        """Take in what became of the events that are under way; raises Unavailable, and then `close` must be called."""
        self._taking.finish()

    def open_due(self) -> None:
        """Open the partitions that wait for it, where they may be read; raises Unavailable as `finish` does."""
        now = time.monotonic()
        for partition, at in list(self._closed.items()):
            if now >= at and not self._letters.blocks(partition) and not self._resting.blocks(partition):
                self._resting.alone(partition, self._open_partition, partition)

    def send(self, *, wait: bool) -> None:
        """See `Taking.send`."""
        self._taking.send(wait=wait)

    def tend(self) -> None:
        """Look whether Redis is what it was, and drop what has lapsed; nothing is under way. Raises Unavailable."""
        self._probe()
        for partition, held in list(self.open.items()):
            self._resting.alone(partition, self._lapse, held)

    def _lapse(self, held: OpenFeed) -> None:
        self._feeds.lapse(held.place, held.begun)

    def close(self) -> None:
        """Redis is away: drop what was polled, and open everything again from the position that Redis then holds."""
        self._records = {}
        self._taking.drop()
        for partition in list(self.open):
            self.close_partition(partition)

    def positions(self) -> Iterator[tuple[Partition, int]]:
        """Per open partition the offset that comes next."""
        return ((partition, held.stored + 1) for partition, held in self.open.items() if held.stored >= 0)

    def reasons(self) -> list[str]:
        """Why these feeds are not current; empty where they are."""
        now = time.monotonic()
        found = []
        for (topic, number), at in sorted(self._closed.items()):
            what = "is waiting for its listeners to register again" if at > now else "is waiting to be opened"
            found.append(f"{topic}[{number}] {what}")
        for (topic, number), held in sorted(self.open.items()):
            if not held.whole:
                found.append(f"{topic}[{number}] is being restored: {held.stored} of {held.target}")
        return found

    def _open_partition(self, partition: Partition) -> None:
        topic, number = partition
        if topic not in self._entries:
            return
        place = FeedPlace(self._entries[topic][0], number, self._entries[topic][1])
        feed = place.feed
        if number >= feed.partitions:
            # Somebody has added it to the changelog; no event is written there.
            del self._closed[partition]
            return
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
        self.open[partition] = OpenFeed(place, begun.begun, begun.offset, end - 1, begun.marks)
        del self._closed[partition]
        self._counters.reopened.labels(feed.name).inc()
        log.info("opened %s[%d] at offset %d of %d", topic, number, begun.offset + 1, end)

    def _probe(self) -> None:
        """Find out whether Redis still holds what it was given, and how far behind it is."""
        partitions = list(self.open.items())
        places = [(held.place.feed.name, held.place.partition, held.place.lineage) for _, held in partitions]
        for (partition, held), stored in zip(partitions, self._writer.offsets(places), strict=True):
            if stored != held.stored:
                self.lose(partition, stored)
                continue
            self._alive[partition] = time.time()
            self._pass_gap(partition, held)
            labels = (held.place.feed.name, str(partition[1]))
            self._counters.offset.labels(*labels).set(held.stored)
            if (end := self._changelogs.end(partition, cached=True)) is not None:
                self._counters.lag.labels(*labels).set(max(0, end - 1 - held.stored))
                self._reporting.seen(partition, held.stored, end)

    def _pass_gap(self, partition: Partition, held: OpenFeed) -> None:
        """Move past offsets at the end of a changelog that hold no record, such as transaction markers."""
        if held.whole:
            return
        reached = (self._changelogs.next_offset(partition) or 0) - 1
        if reached > held.stored:
            result = self._feeds.apply(held.place, held.begun, held.stored, reached, PackedEvents())
            if isinstance(result, Moved):
                self.lose(partition, result.offset)
            elif isinstance(result, Taken):
                held.stored = held.read = reached

    def lose(self, partition: Partition, offset: int | None) -> None:
        """Redis holds another position than believed: ask it again."""
        believed = self.open[partition].stored
        log.warning("%s[%d]: Redis holds offset %s, not %d, as was believed", *partition, offset, believed)
        self.close_partition(partition)
        if offset is None:
            self._lost()

    def close_partition(self, partition: Partition) -> None:
        """Have a partition opened again."""
        self._changelogs.pause(partition)
        self.open.pop(partition, None)
        self._closed[partition] = 0.0

    def _forget(self, partition: Partition) -> None:
        for held in (self.open, self._closed, self._records, self._alive):
            held.pop(partition, None)

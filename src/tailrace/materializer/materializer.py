"""The materializer: keeps Redis in step with the changelogs of an app.

For every partition that the group assigns:

1. open: ask Redis for the position it holds (an unknown lineage is emptied first), seek to the offset after it.
   A crash here loses nothing: the next owner asks again.
2. poll: records come in offset order; `conflate` keeps the newest change per key.
3. apply: one script compares the position and every version, writes, moves the position and publishes.
   A crash before it repeats the batch; a crash after it is found in step 1. Duplicates are skipped by version.
   Under a backlog the next records are read meanwhile (see `applying`).
4. commit to the group, for lag tools only.

Partitions of feeds go their own way, beside those of views: see `followed_feeds`.
Where a view has live queries, `Matching` takes part in step 3, so that their members change together with the rows.
Beside that, `Upkeep` hands partitions over to the next build, expires rows and mends what it has added to changelogs.

Whenever the position in Redis is not the one believed (Redis was emptied, rolled back or failed over, or another
instance wrote), nothing was written: the partition is opened again. While Redis can't be written, partitions
stay paused and are opened with backoff; nothing is skipped.
What fails in a way nobody foresaw does not end the process: where it is one partition's, that one is left alone for a
while; otherwise all are opened again with backoff. It is logged and counted, and the instance is not ready meanwhile.
"""

from __future__ import annotations

import logging
import time
from concurrent.futures import ThreadPoolExecutor

from tailrace.contracts.catalog import Catalog, CatalogView
from tailrace.kafka.changelogs import Changelogs, Partition
from tailrace.materializer.catalog_copy import CatalogCopy
from tailrace.materializer.counters import Counters
from tailrace.materializer.dead_letters import Letters
from tailrace.materializer.feeds.feeds import GRACE, FollowedFeeds
from tailrace.materializer.queries.matcher import Matching
from tailrace.materializer.reports import Reporting
from tailrace.materializer.rest import Resting
from tailrace.materializer.views.as_of import unusable
from tailrace.materializer.views.completeness import Completing, milliseconds
from tailrace.materializer.views.open_partition import OpenPartition
from tailrace.materializer.views.upkeep import Upkeep
from tailrace.materializer.views.view_writer import Applying
from tailrace.store.write.writer import Moved, Unavailable, Writer

log = logging.getLogger(__name__)

_PROBE_EVERY = 1.0
_COMMIT_EVERY = 5.0
_LONGEST_BACKOFF = 2.0


class Materializer:
    """One instance; `step` is called in a loop by the process."""

    def __init__(
        self,
        changelogs: Changelogs,
        catalog: CatalogCopy,
        writer: Writer,
        upkeep: Upkeep,
        letters: Letters,
        matching: Matching,
        counters: Counters,
        *,
        grace: float = GRACE,
    ) -> None:
        self._changelogs = changelogs
        self._catalog = catalog
        self._writer = writer
        self._upkeep = upkeep
        self._letters = letters
        self._matching = matching
        # One thread for views and feeds: Redis is asked by one at a time.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="sending")
        self._reporting = Reporting(writer)
        counters.show(self._reporting.delays)
        delays = self._reporting.delays
        self._applying = Applying(writer, self, upkeep, letters, matching, counters, delays, self._thread)
        self._counters = counters
        again = catalog.copy_again
        self._feeds = FollowedFeeds(
            changelogs, writer, letters, counters, self._reporting, self._thread, again, grace=grace
        )
        self._views: dict[str, tuple[CatalogView, str]] = {}
        self.open: dict[Partition, OpenPartition] = {}
        self._closed: set[Partition] = set()
        self._retry_at = 0.0
        self._backoff = 0.05
        self._outage: Unavailable | None = None
        self._completing = Completing(changelogs, writer)
        self._left: dict[Partition, OpenPartition] = {}
        self._probe_at = 0.0
        self._commit_at = 0.0
        self._resting = Resting(counters, self.close)
        self._failure: str | None = None
        self._untaken = False

    def step(self, timeout: float = 0.1) -> None:
        """Take in the next records, or whatever else is due. Never raises."""
        try:
            self._step(timeout)
        except Exception as error:
            log.exception("a step failed; all partitions are opened again in %.2f s", self._backoff)
            self._counters.set_aside.labels("step").inc()
            self._failure = repr(error)[:200]
            time.sleep(self._backoff)
            self._close_all()

    def _step(self, timeout: float) -> None:
        self._untaken |= self._catalog.follow()
        if self._untaken:
            self._take_catalog(self._catalog.catalog)
            self._untaken = False
        self._matching.follow()
        wait = 0 if self._under_way else self._matching.due_in(timeout)
        polled = self._feeds.claim(self._changelogs.poll(wait))
        for partition in polled.revoked:
            self._forget(partition)
        self._closed.update(polled.assigned)
        now = time.monotonic()
        if now < self._retry_at:
            return
        try:
            batches = self._applying.reduce(polled.records)
            self._feeds.reduce()
            # Whatever else asks Redis does so when nothing is under way.
            self._applying.finish()
            self._feeds.finish()
            self._catalog.copy()
            for partition in list(self._closed):
                if not any(part.blocks(partition) for part in (self._upkeep, self._letters, self._resting)):
                    self._resting.alone(partition, self._open_partition, partition)
            self._feeds.open_due()
            probing = now >= self._probe_at
            self._applying.send(batches, wait=probing or not polled.full)
            self._feeds.send(wait=probing or not polled.full)
            if not self._under_way:
                self._tend(probing)
            self._backoff, self._outage, self._failure = 0.05, None, None
            self._left.clear()
        except Unavailable as error:
            self._wait(error)
        if now >= self._commit_at:
            self._commit_at = now + _COMMIT_EVERY
            views = ((p, held.stored + 1) for p, held in self.open.items() if held.stored >= 0)
            self._changelogs.commit([*views, *self._feeds.positions()])

    def stop(self) -> None:
        """Wait for what is under way."""
        self._thread.shutdown()

    def reasons(self) -> list[str]:
        """Why this instance is not ready; empty where it is."""
        if self._catalog.catalog is None:
            return ["no catalog was read from Kafka yet: see whether the broker answers, and start the pipeline"]
        found = []
        if (outage := self._outage) is not None:
            found.append(f"{outage}. {outage.remedy}")
        found += [f"a step failed: {self._failure}; see the log"] if self._failure is not None else []
        found += [self._catalog.problem] if self._catalog.problem is not None else []
        found += self._upkeep.problems()
        found += [self._letters.problem] if self._letters.problem is not None else []
        found += self._feeds.reasons()
        found += [f"{topic}[{number}] is waiting to be opened" for topic, number in sorted(self._closed)]
        for (topic, number), held in sorted(self.open.items()):
            if not held.whole:
                found.append(f"{topic}[{number}] is being restored: {held.stored} of {held.target}")
            elif held.generation != held.entry.generation:
                found.append(
                    f"{topic}[{number}] holds generation {held.generation}, the catalog names {held.entry.generation}"
                )
        return found

    def degraded(self) -> list[dict[str, str]]:
        """Which views may be stale though this instance is ready, and why."""
        return self._reporting.degraded()

    @property
    def _under_way(self) -> bool:
        return self._applying.under_way or self._feeds.under_way

    def _take_catalog(self, catalog: Catalog | None) -> None:
        views = {} if catalog is None else {v.changelog: (v, catalog.lineage(v)) for v in catalog.views.values()}
        before = self._views.keys() | self._feeds.topics
        self._feeds.take_catalog(catalog)
        if (topics := views.keys() | self._feeds.topics) != before:
            log.info("following %s", ", ".join(sorted(topics)) or "nothing")
            self._changelogs.subscribe(sorted(topics))
        for partition, held in list(self.open.items()):
            known = views.get(partition[0])
            if known is None or known[1] != held.lineage:
                self.close(partition)
            else:
                held.entry = known[0]
        self._views = views
        self._matching.take_catalog(catalog)

    def _open_partition(self, partition: Partition) -> None:
        topic, number = partition
        if topic not in self._views:
            return
        view, lineage = self._views[topic]
        if number >= view.partitions:
            # Somebody has added it to the changelog; no row is written there.
            self._closed.discard(partition)
            return
        # The stored offset is read before the end: a position past an end that is read later is from a longer
        # log than this one, such as before an unclean election, and can't be honoured.
        (stored,) = self._writer.stored([(view.name, number, lineage)])
        now = milliseconds()
        bounds, kept = self._changelogs.bounds(partition), self._changelogs.tombstones_kept(topic)
        if bounds is None or kept is None:
            return
        first, end = bounds
        anew = unusable(stored, first, end, kept, now)
        if anew:
            log.warning("%s[%d] is restored anew: %s", topic, number, anew)
        begun = self._writer.begin(view.name, number, lineage, end - 1, generation=view.generation, anew=anew != "")
        self._changelogs.open(partition, begun.offset + 1)
        held = OpenPartition(view, number, lineage, begun.offset, end - 1, begun.generation)
        self._matching.opened(held)
        held.tombstones_kept = kept
        held.as_of = stored.as_of if stored.as_of is not None and -1 < begun.offset < end - 1 else now
        self.open[partition] = held
        self._completing.opened(held, end, now)
        self._closed.discard(partition)
        self._counters.reopened.labels(view.name).inc()
        log.info("opened %s[%d] at offset %d of %d", topic, number, begun.offset + 1, end)

    def _tend_one(self, held: OpenPartition) -> None:
        moved = self._upkeep.tend(held)
        if moved is None:
            moved = self._matching.tend(held)
        if moved is not None:
            self.lose(held, moved.offset)

    def _tend(self, probing: bool) -> None:
        """Do what is due beside applying records; nothing is under way."""
        for held in list(self.open.values()):
            self._resting.alone(held.partition, self._tend_one, held)
        if probing:
            self._probe_at = time.monotonic() + _PROBE_EVERY
            self._probe()
            self._upkeep.expire(list(self.open.values()), self.lose)
            self._upkeep.prune(list(self.open.values()), self.lose)
            self._upkeep.look_for_eviction(self.open.values())
            self._feeds.tend()
            self._reporting.tend([*self.open.values(), *self._feeds.open.values()])

    def _probe(self) -> None:
        """Find out whether Redis still holds what it was given, and how far behind it is."""
        partitions = list(self.open.items())
        found = self._writer.stored([held.place for _, held in partitions])
        for (partition, held), stored in zip(partitions, found, strict=True):
            if stored.offset != held.stored or stored.generation != held.generation:
                self.lose(held, stored.offset)
                continue
            # Redis may be another one by now: each of these is told so, and has changed nothing.
            moved = (
                self._completing.tend(held)
                or self._upkeep.give_up(held, stored.next)
                or self._pass_gap(partition, held)
            )
            if moved is not None:
                self.lose(held, moved.offset)
                continue
            end = self._changelogs.end(partition, cached=True)
            self._counters.offset.labels(held.view, str(held.number)).set(held.stored)
            if end is not None:
                self._counters.behind(held.view, held.number, end - 1 - held.stored)
                self._reporting.seen(partition, held.stored, end)

    def _pass_gap(self, partition: Partition, held: OpenPartition) -> Moved | None:
        """Move past offsets at the end of a changelog that hold no record, such as transaction markers."""
        if held.whole:
            return None
        reached = (self._changelogs.next_offset(partition) or 0) - 1
        if reached <= held.stored:
            return None
        result = self._writer.apply(*held.place, held.stored, reached, [])
        if isinstance(result, Moved):
            return result
        held.stored = held.read = reached
        return None

    def lose(self, held: OpenPartition, offset: int | None) -> None:
        """Redis holds another position than believed: ask it again."""
        log.warning(
            "%s[%d]: Redis holds offset %s, not what was believed: offset %d of generation %d",
            *held.partition,
            offset,
            held.stored,
            held.generation,
        )
        self.close(held.partition)
        if offset is None:
            self._catalog.copy_again()

    def close(self, partition: Partition) -> None:
        """Have a partition opened again."""
        self._changelogs.pause(partition)
        self.open.pop(partition, None)
        self._matching.closed(partition)
        self._closed.add(partition)

    def _forget(self, partition: Partition) -> None:
        self.open.pop(partition, None)
        self._matching.closed(partition)
        self._left.pop(partition, None)
        self._closed.discard(partition)

    def _measure_left(self) -> None:
        """How far behind Redis falls while it can't be written; the ends must be asked for, as nothing is fetched."""
        for partition, held in self._left.items():
            if (end := self._changelogs.end(partition)) is None:
                return
            self._counters.behind(held.view, held.number, end - 1 - held.stored)

    def _wait(self, error: Unavailable) -> None:
        """Redis can't be written: drop what was polled, try again later from the position that Redis then holds."""
        self._counters.unavailable.inc()
        level = logging.DEBUG if self._outage is not None and self._outage.code == error.code else logging.WARNING
        log.log(level, "%s. Nothing is skipped, next try in %.2f s. %s", error, self._backoff, error.remedy)
        self._outage = error
        self._close_all()

    def _close_all(self) -> None:
        for partition, held in list(self.open.items()):
            self._left[partition] = held
            self.close(partition)
        self._measure_left()
        self._feeds.close()
        self._retry_at = time.monotonic() + self._backoff
        self._backoff = min(self._backoff * 2, _LONGEST_BACKOFF)

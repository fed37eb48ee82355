"""The materializer: keeps Redis in step with the changelogs of an app.

For every partition that the group assigns:

1. open: ask Redis for the position it holds (an unknown lineage is emptied first), seek to the offset after it.
   A crash here loses nothing: the next owner asks again.
2. poll: records come in offset order; `conflate` keeps the newest change per key.
3. apply: one script compares the position and every version, writes, moves the position and publishes.
   A crash before it repeats the batch; a crash after it is found in step 1. Duplicates are skipped by version.
4. commit to the group, for lag tools only.

Where a view has live queries, `Matching` takes part in step 3, so that their members change together with the rows.
Beside that, `Upkeep` hands partitions over to the next build, expires rows and mends what it has added to changelogs.

Whenever the position in Redis is not the one believed (Redis was emptied, rolled back or failed over, or another
instance wrote), nothing was written: the partition is opened again. While Redis can't be written, partitions
stay paused and are opened with backoff; nothing is skipped.
"""

from __future__ import annotations

import logging
import time

from tailrace.catalog import Catalog, CatalogView
from tailrace.kafka.changelogs import Changelogs, Partition
from tailrace.materializer.batch import RawRecord, conflate
from tailrace.materializer.catalog_copy import CatalogCopy
from tailrace.materializer.counters import Counters
from tailrace.materializer.matching import Matching
from tailrace.materializer.open_partition import OpenPartition
from tailrace.materializer.upkeep import Upkeep
from tailrace.store.writer import Moved, Unavailable, Writer

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
        matching: Matching,
        counters: Counters,
    ) -> None:
        self._changelogs = changelogs
        self._catalog = catalog
        self._writer = writer
        self._upkeep = upkeep
        self._matching = matching
        self._counters = counters
        self._views: dict[str, tuple[CatalogView, str]] = {}
        self._open: dict[Partition, OpenPartition] = {}
        self._closed: set[Partition] = set()
        self._retry_at = 0.0
        self._backoff = 0.05
        self._probe_at = 0.0
        self._commit_at = 0.0

    def step(self, timeout: float = 0.1) -> None:
        """Take in the next records, or whatever else is due. Never raises for Redis being away."""
        if self._catalog.follow():
            self._take_catalog(self._catalog.catalog)
        self._matching.follow()
        polled = self._changelogs.poll(self._matching.due_in(timeout))
        for partition in polled.revoked:
            self._forget(partition)
        self._closed.update(polled.assigned)
        now = time.monotonic()
        if now < self._retry_at:
            return
        try:
            self._catalog.copy()
            for partition in list(self._closed):
                if not self._upkeep.blocks(partition):
                    self._open_partition(partition)
            for partition, messages in polled.records.items():
                if partition in self._open:
                    self._apply(
                        partition,
                        [(m.key(), m.value(), m.headers(), m.offset()) for m in messages],  # type: ignore[misc]
                    )
            for partition, held in list(self._open.items()):
                moved = self._upkeep.tend(held)
                if moved is None:
                    moved = self._matching.tend(held)
                if moved is not None:
                    self._lose(partition, held, moved.offset)
            if now >= self._probe_at:
                self._probe_at = now + _PROBE_EVERY
                self._probe()
                self._upkeep.expire(self._open.values())
            self._backoff = 0.05
        except Unavailable as error:
            self._wait(error)
        if now >= self._commit_at:
            self._commit_at = now + _COMMIT_EVERY
            self._changelogs.commit((p, held.stored + 1) for p, held in self._open.items() if held.stored >= 0)

    def reasons(self) -> list[str]:
        """Why this instance is not ready; empty where it is."""
        if self._catalog.catalog is None:
            return ["no catalog was read from Kafka yet: see whether the broker answers, and start the pipeline"]
        found = []
        if time.monotonic() < self._retry_at:
            found.append("Redis can't be reached or written")
        found += self._upkeep.problems()
        found += [f"{topic}[{number}] is waiting to be opened" for topic, number in sorted(self._closed)]
        for (topic, number), held in sorted(self._open.items()):
            if not held.whole:
                found.append(f"{topic}[{number}] is being restored: {held.stored} of {held.target}")
            elif held.generation != held.entry.generation:
                found.append(
                    f"{topic}[{number}] holds generation {held.generation}, the catalog names {held.entry.generation}"
                )
        return found

    def _take_catalog(self, catalog: Catalog | None) -> None:
        views = {} if catalog is None else {v.changelog: (v, catalog.lineage(v)) for v in catalog.views.values()}
        if views.keys() != self._views.keys():
            log.info("following %s", ", ".join(sorted(views)) or "nothing")
            self._changelogs.subscribe(sorted(views))
        for partition, held in list(self._open.items()):
            known = views.get(partition[0])
            if known is None or known[1] != held.lineage:
                self._close(partition)
            else:
                held.entry = known[0]
        self._views = views
        self._matching.take_catalog(catalog)

    def _open_partition(self, partition: Partition) -> None:
        topic, number = partition
        if topic not in self._views:
            return
        view, lineage = self._views[topic]
        # The stored offset is read before the end: a position past an end that is read later is from a longer
        # log than this one, such as before an unclean election, and can't be honoured.
        (stored,) = self._writer.offsets([(view.name, number, lineage)])
        end = self._changelogs.end(partition)
        if end is None:
            return
        anew = stored is not None and stored >= end
        begun = self._writer.begin(view.name, number, lineage, end - 1, generation=view.generation, anew=anew)
        self._changelogs.open(partition, begun.offset + 1)
        held = OpenPartition(view, number, lineage, begun.offset, end - 1, begun.generation)
        self._matching.opened(held)
        self._open[partition] = held
        self._closed.discard(partition)
        self._counters.reopened.labels(view.name).inc()
        log.info("opened %s[%d] at offset %d of %d", topic, number, begun.offset + 1, end)

    def _apply(self, partition: Partition, records: list[RawRecord]) -> None:
        held = self._open[partition]
        batch = conflate(records, held.stored)
        for offset, reason in batch.refused:
            log.warning("%s[%d] offset %d is no change of a view and was passed over: %s", *partition, offset, reason)
        self._counters.refused.labels(held.view).inc(len(batch.refused))
        self._counters.records.labels(held.view).inc(batch.records)
        if batch.reached == held.stored:
            return
        if not self._upkeep.mend(held, batch):
            self._close(partition)
            return
        result = self._matching.apply(held, batch)
        if isinstance(result, Moved):
            self._lose(partition, held, result.offset)
            return
        held.stored = batch.reached
        held.old |= result.old > 0
        self._counters.accepted.labels(held.view).inc(result.accepted)

    def _probe(self) -> None:
        """Find out whether Redis still holds what it was given, and how far behind it is."""
        partitions = list(self._open.items())
        found = self._writer.stored([held.place for _, held in partitions])
        for (partition, held), stored in zip(partitions, found, strict=True):
            if stored.offset != held.stored or stored.generation != held.generation:
                self._lose(partition, held, stored.offset)
                continue
            self._upkeep.give_up(held, stored.next)
            self._pass_gap(partition, held)
            end = self._changelogs.end(partition, cached=True)
            labels = (held.view, str(partition[1]))
            self._counters.offset.labels(*labels).set(held.stored)
            if end is not None:
                self._counters.lag.labels(*labels).set(max(0, end - 1 - held.stored))

    def _pass_gap(self, partition: Partition, held: OpenPartition) -> None:
        """Move past offsets at the end of a changelog that hold no record, such as transaction markers."""
        if held.whole:
            return
        next_offset = self._changelogs.next_offset(partition)
        if next_offset is not None and next_offset - 1 > held.stored:
            self._writer.apply(*held.place, held.stored, next_offset - 1, [])
            held.stored = next_offset - 1

    def _lose(self, partition: Partition, held: OpenPartition, offset: int | None) -> None:
        """Redis holds another position than believed: ask it again."""
        log.warning(
            "%s[%d]: Redis holds offset %s, not what was believed: offset %d of generation %d",
            *partition,
            offset,
            held.stored,
            held.generation,
        )
        self._close(partition)
        if offset is None:
            self._catalog.copy_again()

    def _close(self, partition: Partition) -> None:
        self._changelogs.pause(partition)
        self._open.pop(partition, None)
        self._matching.closed(partition)
        self._closed.add(partition)

    def _forget(self, partition: Partition) -> None:
        self._open.pop(partition, None)
        self._matching.closed(partition)
        self._closed.discard(partition)

    def _wait(self, error: Exception) -> None:
        """Redis can't be written: drop what was polled, try again later from the position that Redis then holds."""
        self._counters.unavailable.inc()
        log.warning("Redis can't be written, next try in %.2f s: %s", self._backoff, error)
        for partition in list(self._open):
            self._close(partition)
        self._retry_at = time.monotonic() + self._backoff
        self._backoff = min(self._backoff * 2, _LONGEST_BACKOFF)

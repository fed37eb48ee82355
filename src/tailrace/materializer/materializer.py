"""The materializer: keeps Redis in step with the changelogs of an app.

One instance follows the catalog, polls the changelogs, and hands their records to the partitions that the group has
assigned to it: those of views and those of feeds. `Partitions` says what the life of a partition is.

While Redis can't be written, partitions stay paused and are opened with backoff; nothing is skipped. What fails in a
way nobody foresaw does not end the process: all partitions are opened again with backoff. It is logged and counted, and
the instance is not ready meanwhile.

Offsets are committed to the group for lag tools only.
"""

from __future__ import annotations

import logging
import time
from typing import Any

from tailrace.contracts.catalog import Catalog
from tailrace.kafka.changelogs import Changelogs, Partition
from tailrace.materializer.catalog_copy import CatalogCopy
from tailrace.materializer.counters import MaterializerCounters
from tailrace.materializer.dead_letters import DeadLetterKeeper
from tailrace.materializer.feeds.partitions import GRACE, FeedPartitions
from tailrace.materializer.partitions import Partitions, Services
from tailrace.materializer.poison_search import Doubts
from tailrace.materializer.queries.matcher import Matcher
from tailrace.materializer.reports import Reporter
from tailrace.materializer.sender import Sender
from tailrace.materializer.views.partitions import ViewPartitions
from tailrace.materializer.views.upkeep import Upkeep
from tailrace.store.connection.outages import Unavailable
from tailrace.store.write.writer import StoreWriter

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
        writer: StoreWriter,
        upkeep: Upkeep,
        dead_letters: DeadLetterKeeper,
        matcher: Matcher,
        counters: MaterializerCounters,
        *,
        grace: float = GRACE,
    ) -> None:
        self._changelogs = changelogs
        self._catalog = catalog
        self._upkeep = upkeep
        self._dead_letters = dead_letters
        self._matcher = matcher
        self._counters = counters
        self._reporter = Reporter(writer)
        counters.show(self._reporter.delays)
        doubts = Doubts()
        self._sender = Sender(doubts)
        services = Services(
            changelogs, writer, dead_letters, counters, self._reporter, doubts, self._sender, catalog.copy_again
        )
        self.views = ViewPartitions(services, upkeep, matcher)
        self.feeds = FeedPartitions(services, grace=grace)
        self._kinds: tuple[Partitions[Any, Any, Any, Any], ...] = (self.views, self.feeds)
        self._retry_at = 0.0
        self._backoff = 0.05
        self._outage: Unavailable | None = None
        self._probe_at = 0.0
        self._commit_at = 0.0
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
        self._matcher.follow()
        polled = self._changelogs.poll(0 if self._sender.under_way else self._matcher.due_in(timeout))
        for partition in polled.revoked:
            for kind in self._kinds:
                kind.revoke(partition)
        for partition in polled.assigned:
            self._kind_of(partition).assign(partition)
        now = time.monotonic()
        if now < self._retry_at:
            return
        try:
            batches = [(kind, kind.reduce(polled.records)) for kind in self._kinds]
            # Whatever else asks Redis does so when nothing is under way.
            self._sender.finish()
            self._catalog.copy()
            for kind in self._kinds:
                kind.open_due()
            probing = now >= self._probe_at
            for kind, found in batches:
                kind.send(found, wait=probing or not polled.full)
            if not self._sender.under_way:
                self._tend(probing)
            self._backoff, self._outage, self._failure = 0.05, None, None
            for kind in self._kinds:
                kind.recovered()
        except Unavailable as error:
            self._wait(error)
        if now >= self._commit_at:
            self._commit_at = now + _COMMIT_EVERY
            self._changelogs.commit([position for kind in self._kinds for position in kind.positions()])

    def stop(self) -> None:
        """Wait for what is under way."""
        self._sender.close()

    def reasons(self) -> list[str]:
        """Why this instance is not ready; empty if it is."""
        refused = self._changelogs.brokers.problems()
        if self._catalog.catalog is None:
            unknown = "no catalog was read from Kafka yet: see whether the broker answers, and start the pipeline"
            return refused or [unknown]
        found = refused
        if (outage := self._outage) is not None:
            found.append(f"{outage}. {outage.remedy}")
        found += [f"a step failed: {self._failure}; see the log"] if self._failure is not None else []
        found += [self._catalog.problem] if self._catalog.problem is not None else []
        found += self._upkeep.problems()
        found += [self._dead_letters.problem] if self._dead_letters.problem is not None else []
        return [*found, *self.feeds.reasons(), *self.views.reasons()]

    def degraded(self) -> list[dict[str, str]]:
        """Which views may be stale though this instance is ready, and why."""
        return self._reporter.degraded()

    def _kind_of(self, partition: Partition) -> Partitions[Any, Any, Any, Any]:
        return self.feeds if partition[0] in self.feeds.topics else self.views

    def _take_catalog(self, catalog: Catalog | None) -> None:
        before = self.views.topics | self.feeds.topics
        for kind in self._kinds:
            kind.take_catalog(catalog)
        if (topics := self.views.topics | self.feeds.topics) != before:
            log.info("following %s", ", ".join(sorted(topics)) or "nothing")
            self._changelogs.subscribe(sorted(topics))
        self._matcher.take_catalog(catalog)

    def _tend(self, probing: bool) -> None:
        """Do what is due beside applying records; nothing is under way."""
        for kind in self._kinds:
            kind.tend(probing=probing)
        if probing:
            self._probe_at = time.monotonic() + _PROBE_EVERY
            self._reporter.tend([*self.views.open.values(), *self.feeds.open.values()])

    def _wait(self, error: Unavailable) -> None:
        """Redis can't be written: drop what was polled, try again later from the position that Redis then holds."""
        self._counters.unavailable.inc()
        level = logging.DEBUG if self._outage is not None and self._outage.code == error.code else logging.WARNING
        log.log(level, "%s. Nothing is skipped, next try in %.2f s. %s", error, self._backoff, error.remedy)
        self._outage = error
        self._close_all()

    def _close_all(self) -> None:
        self._sender.drop()
        for kind in self._kinds:
            kind.close_all()
        # If Kafka does not answer for one kind, it is not asked for the other.
        all(kind.measure_left() for kind in self._kinds)
        self._retry_at = time.monotonic() + self._backoff
        self._backoff = min(self._backoff * 2, _LONGEST_BACKOFF)

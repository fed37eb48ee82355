"""Every few seconds a materializer writes to Redis how fresh its views and feeds are.

The reports are only shown to people. A report that Redis does not take is left out.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping
from typing import Any
from uuid import uuid4

from tailrace.contracts.freshness import Report, freshness, why_stale
from tailrace.kafka.changelogs import Partition
from tailrace.materializer.delays import Delays
from tailrace.materializer.partition import OpenPartition
from tailrace.store.connection.outages import Unavailable
from tailrace.store.write.reports import Reports
from tailrace.store.write.writer import StoreWriter

log = logging.getLogger(__name__)

_EVERY = 2.0
_RETRY_AFTER = 15.0
# Ends of changelogs are looked at every second: a wait that is shorter than a few of these counts as none.
_PROMPT = 3.0


class WaitTimes:
    """How long records of changelogs have waited for the store. Does no I/O.

    The store has to reach the end that is seen at a time. Once it has, no record waits that is older than that time.
    """

    def __init__(self) -> None:
        self._ends: dict[Partition, tuple[int, float]] = {}
        self._since: dict[Partition, float] = {}

    def seen(self, partition: Partition, stored: int, end: int, now: float) -> None:
        """Note the end of a changelog at the time `now`, in seconds; the store has it up to the offset `stored`."""
        found = self._ends.get(partition)
        if stored >= end - 1:
            self._since[partition], self._ends[partition] = now, (end, now)
        elif found is None or stored >= found[0] - 1:
            if found is not None:
                self._since[partition] = found[1]
            self._ends[partition] = (end, now)

    def seconds(self, partition: Partition, now: float) -> float | None:
        """The greatest possible age of the oldest record that the store lacks; None if that is not known."""
        since = self._since.get(partition)
        if since is None:
            return None
        return round(now - since, 1) if now - since > _PROMPT else 0.0

    def keep(self, partitions: set[Partition]) -> None:
        """Forget all but these."""
        for held in (self._ends, self._since):
            for partition in held.keys() - partitions:
                del held[partition]


class Reporter:
    """Writes the reports of one instance."""

    def __init__(self, writer: StoreWriter) -> None:
        self.delays = Delays()
        self._reports = Reports(writer)
        self._waits = WaitTimes()
        self._instance = uuid4().hex[:12]
        self._due = 0.0
        self._said: Mapping[str, Report] = {}

    def seen(self, partition: Partition, stored: int, end: int) -> None:
        """See `WaitTimes.seen`."""
        self._waits.seen(partition, stored, end, time.monotonic())

    def tend(self, partitions: Iterable[OpenPartition[Any]]) -> None:
        """If it is time, report on the views and feeds of these open partitions. Never raises Unavailable."""
        now = time.monotonic()
        if now < self._due:
            return
        self._due = now + _EVERY
        behind: dict[str, float | None] = {}
        held = list(partitions)
        self._waits.keep({one.partition for one in held})
        for one in held:
            self.delays.know(one.view, one.lineage, one.generation)
            seconds, before = self._waits.seconds(one.partition, now), behind.get(one.view, 0.0)
            behind[one.view] = None if seconds is None or before is None else max(seconds, before)
        self._said = self.delays.reports(behind)
        try:
            self._reports.put(self._instance, self._said, int(time.time() * 1000))
        except Unavailable as error:
            # In a cluster, reports and rows may be on different servers: rows need not wait for reports.
            log.debug("freshness was not reported: %s", error)
            self._due = now + _RETRY_AFTER

    def degraded(self) -> list[dict[str, str]]:
        """Which views may be stale because of this instance, and why. Any thread may call it."""
        now = int(time.time() * 1000)
        return [
            {"view": view, "reason": reason}
            for view, one in self._said.items()
            for reason in why_stale("", (), freshness([one], one.lineage, one.generation, now))
        ]

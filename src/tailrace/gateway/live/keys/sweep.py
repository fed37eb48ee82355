"""The sweep: reads every followed row again, and so makes up for whatever pub/sub has lost.

A quiet pass is spread over its interval. After the pub/sub link was replaced, a pass runs at once and without
pauses. A pass that has read every followed key of a whole partition ends the doubts that the partition had
before the pass.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, defaultdict
from collections.abc import Iterable

from tailrace.gateway.live.keys.progress import PartitionProgress
from tailrace.gateway.live.keys.registry import KeyRegistry
from tailrace.gateway.live.keys.watched import WatchedKey
from tailrace.gateway.metrics import Metrics
from tailrace.store.connection.outages import Unavailable
from tailrace.store.read.reader import KeyRead, Reader

log = logging.getLogger(__name__)

_BATCH = 200


class Sweep:
    """Compares what followers were sent with what the store holds: all of it once per `interval` seconds."""

    def __init__(self, registry: KeyRegistry, reader: Reader, metrics: Metrics, interval: float) -> None:
        self._registry = registry
        self._reader = reader
        self._metrics = metrics
        self._interval = interval
        self._urgent = asyncio.Event()

    def hurry(self) -> None:
        """Messages may have been lost: read everything now."""
        self._urgent.set()

    async def run(self) -> None:
        """Sweep until cancelled."""
        while True:
            urgent = self._urgent.is_set()
            self._urgent.clear()
            passage = Passage(self._registry.followed())
            pause = 0.0 if urgent else self._interval / max(1, len(passage.batches))
            if not passage.batches:
                await self._wait(self._interval)
            for batch in passage.batches:
                try:
                    await self._read(passage, batch)
                except Unavailable as error:
                    log.debug("sweep=failed error=%r", str(error))
                    await self._wait(self._interval)
                    break
                if await self._wait(pause):
                    break

    async def _read(self, passage: Passage, batch: list[WatchedKey]) -> None:
        try:
            passage.read(batch, await self._repair(batch))
            return
        except Unavailable:
            raise
        except Exception:
            log.exception("sweep=failed view=%s partition=%d", batch[0].view.name, batch[0].partition)
            self._metrics.set_aside("row")
        if len(batch) > 1:
            # A key that can't be read does not stop the others.
            for one in batch:
                await self._read(passage, [one])

    async def _repair(self, batch: list[WatchedKey]) -> list[KeyRead]:
        view, partition = batch[0].view, batch[0].partition
        found = await self._reader.held(view.name, partition, view.lineage, [followed.key for followed in batch])
        for followed, held in zip(batch, found, strict=True):
            if followed.learn(held):
                self._metrics.repaired.inc()
        return found

    async def _wait(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                await self._urgent.wait()
        except TimeoutError:
            return False
        return True


class Passage:
    """One pass over followed keys, in batches: each of one partition of one build of a view."""

    def __init__(self, followed: Iterable[WatchedKey], size: int = _BATCH) -> None:
        self.batches = batched(followed, size)
        self._left: Counter[PartitionProgress] = Counter(batch[0].progress for batch in self.batches)
        self._notes = {progress: progress.note() for progress in self._left}

    def read(self, batch: list[WatchedKey], found: list[KeyRead]) -> None:
        """Note what a read found. A read does not check a partition that is being restored."""
        progress = batch[0].progress
        if all(held.whole and one.serves(held) for one, held in zip(batch, found, strict=True)):
            self._left[progress] -= 1
        if not self._left[progress]:
            progress.check(self._notes[progress])


def batched(followed: Iterable[WatchedKey], size: int = _BATCH) -> list[list[WatchedKey]]:
    """Followed keys in batches, each of one partition of one build of a view."""
    groups: defaultdict[tuple[object, int], list[WatchedKey]] = defaultdict(list)
    for one in followed:
        groups[one.view, one.partition].append(one)
    return [group[first : first + size] for group in groups.values() for first in range(0, len(group), size)]

"""Applying: batches are on their way to Redis while the next ones are read.

Under a backlog, a thread sends the batches of one poll and waits for the answers, and the process reads and reduces the
records of the next. One poll is under way at most, and its answers are taken in before the next is sent: what a
partition has stored is always known when a batch is sent, and when anything else is done to the partition.
A crash loses what is under way, and the position says which of it Redis has.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from tailrace.materializer.batch import Batch
from tailrace.materializer.open_partition import OpenPartition
from tailrace.store.writer import Applied, Moved, Parcel, Rejected, Writer

Result = Applied | Moved | Rejected
Sent = tuple[OpenPartition, Batch]


class Applying:
    """Hands batches to the store, those of one poll at a time."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="applying")
        self._sent: list[Sent] = []
        self._answers: Future[list[Result]] | None = None

    @property
    def under_way(self) -> bool:
        """Whether batches were sent whose answers were not taken in."""
        return self._answers is not None

    def send(self, batches: Sequence[Sent], *, wait: bool) -> list[tuple[OpenPartition, Batch, Result]]:
        """Send batches; with `wait`, return what became of them, and else nothing yet: see `finish`."""
        if not batches:
            return []
        parcels = [
            Parcel(*held.place, expected, batch.reached, batch.packed) for held, batch, expected in _chained(batches)
        ]
        if wait:
            # At low load the thread would only add its own delay.
            return _answered(batches, self._writer.apply_all(parcels))
        self._sent = list(batches)
        self._answers = self._thread.submit(self._writer.apply_all, parcels)
        return []

    def finish(self) -> list[tuple[OpenPartition, Batch, Result]]:
        """What became of the batches that are under way; raises one of `Unavailable`, and then it is not known."""
        if self._answers is None:
            return []
        sent, answers = self._sent, self._answers
        self._sent, self._answers = [], None
        return _answered(sent, answers.result())

    def close(self) -> None:
        """Wait for what is under way, and end the thread."""
        self._thread.shutdown()


def _chained(batches: Sequence[Sent]) -> list[tuple[OpenPartition, Batch, int]]:
    """Each batch with the offset before it: of several of one partition, each begins where the last one ends."""
    reached: dict[int, int] = {}
    found = []
    for held, batch in batches:
        found.append((held, batch, reached.get(id(held), held.stored)))
        reached[id(held)] = batch.reached
    return found


def _answered(sent: Sequence[Sent], results: Sequence[Result]) -> list[tuple[OpenPartition, Batch, Result]]:
    return [(held, batch, result) for (held, batch), result in zip(sent, results, strict=True)]

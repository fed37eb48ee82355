"""Sending: the batches of one poll go to Redis, at once or while the next records are read.

A thread sends them and waits for the answers. One poll is under way at most, and its answers are taken in before the
next is sent: what a partition has stored is always known when a batch is sent, and when anything else is done to the
partition. A crash loses what is under way, and the position says which of it Redis has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from typing import Generic, Protocol, TypeVar

from tailrace.kafka.changelogs import Partition
from tailrace.materializer.poison_search import Doubts
from tailrace.store.write.writer import Unavailable, hung_up


class Held(Protocol):
    """A partition that is being read, of a view or of a feed."""

    @property
    def partition(self) -> Partition:
        """The partition of the changelog."""

    @property
    def stored(self) -> int:
        """The offset up to which Redis is known to hold it."""


class Sendable(Protocol):
    """A batch of one partition."""

    @property
    def held(self) -> Held:
        """The partition, as it was open when the batch was made."""


Batch = TypeVar("Batch", bound=Sendable)
Answer = TypeVar("Answer")


class Sending(Generic[Batch, Answer]):
    """Writes batches by `write`, in their order, and gives each with its answer to `settle`.

    Methods raise Unavailable for an outage. Redis may be away then; or it hangs up on one of the batches, again and
    again: which partitions these are of is noted as a doubt.
    """

    def __init__(
        self,
        thread: Executor,
        doubts: Doubts,
        write: Callable[[Sequence[Batch]], list[Answer]],
        settle: Callable[[Batch, Answer], None],
    ) -> None:
        self._thread = thread
        self._doubts = doubts
        self._write = write
        self._settle = settle
        self._under_way: tuple[Sequence[Batch], Future[list[Answer]]] | None = None

    @property
    def under_way(self) -> bool:
        """Whether batches were sent whose answers were not taken in."""
        return self._under_way is not None

    def send(self, batches: Sequence[Batch], *, wait: bool) -> None:
        """Send batches; without `wait` they may be under way afterwards."""
        if not batches:
            return
        if wait:
            # At low load the thread would only add its own delay.
            self._take_in(batches, lambda: self._write(batches))
        else:
            self._under_way = (batches, self._thread.submit(self._write, batches))

    def finish(self) -> None:
        """Take in what became of the batches that are under way."""
        if self._under_way is not None:
            batches, answers = self._under_way
            self._under_way = None
            self._take_in(batches, answers.result)

    def drop(self) -> None:
        """Wait until nothing is under way, and forget what became of it."""
        if self._under_way is not None:
            self._under_way[1].exception()
            self._under_way = None

    def _take_in(self, batches: Sequence[Batch], answers: Callable[[], list[Answer]]) -> None:
        with doubted(self._doubts, batches):
            found = answers()
        for batch, answer in zip(batches, found, strict=True):
            self._settle(batch, answer)


@contextmanager
def doubted(doubts: Doubts, batches: Sequence[Sendable]) -> Iterator[None]:
    """Note a doubt about the partitions of batches where Redis hangs up meanwhile."""
    try:
        yield
    except Unavailable as error:
        if hung_up(error):
            for held in {batch.held.partition: batch.held for batch in batches}.values():
                doubts.note(held.partition, held.stored)
        raise

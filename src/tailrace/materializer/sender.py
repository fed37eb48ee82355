"""The batches of one poll go to Redis, at once or while the next records are read.

A thread sends them and waits for the answers. At most one poll is under way, and its answers are taken in before the
next is sent. So it is always known what Redis holds of a partition when a batch of it is sent, or when anything else is
done to it. A crash loses what is under way, and the position says which of it Redis has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar

from tailrace.kafka.changelogs import Partition
from tailrace.materializer.partition import OpenPartition
from tailrace.materializer.poison_search import Doubts
from tailrace.store.connection.outages import Unavailable
from tailrace.store.write.writer import hung_up


class Sendable(Protocol):
    """A batch of one partition."""

    @property
    def held(self) -> OpenPartition[Any]:
        """The partition, as it was open when the batch was made."""


Batch = TypeVar("Batch", bound=Sendable)
Answer = TypeVar("Answer")


class Sender:
    """Sends what `write` writes, and gives each batch with its answer to `settle`, in order.

    Views and feeds share one: only one thread talks to Redis at a time. Methods raise Unavailable for an outage. Redis
    may be away then. Or it hangs up on one of the batches, again and again: the partitions of these are noted as
    doubtful.
    """

    def __init__(self, doubts: Doubts) -> None:
        self._doubts = doubts
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="sending")
        self._under_way: list[tuple[Future[Any], Callable[[], None]]] = []

    @property
    def under_way(self) -> bool:
        """Whether batches were sent whose answers were not taken in."""
        return bool(self._under_way)

    def send(
        self,
        batches: Sequence[Batch],
        write: Callable[[Sequence[Batch]], list[Answer]],
        settle: Callable[[Batch, Answer], None],
        *,
        wait: bool,
    ) -> None:
        """Send batches. With `wait`, nothing is under way afterwards; without it, they may be."""
        if wait:
            # At low load the thread would only add its own delay.
            self.finish()
            self._take_in(batches, lambda: write(batches), settle)
        elif batches:
            answers = self._thread.submit(write, batches)
            self._under_way.append((answers, lambda: self._take_in(batches, answers.result, settle)))

    def finish(self) -> None:
        """Take in the answers to everything that is under way."""
        while self._under_way:
            _, take_in = self._under_way.pop(0)
            take_in()

    def drop(self) -> None:
        """Wait until nothing is under way, and ignore the answers."""
        while self._under_way:
            self._under_way.pop(0)[0].exception()

    def close(self) -> None:
        """Wait for what is under way, and end the thread."""
        self._thread.shutdown()

    @contextmanager
    def doubting(self, batches: Sequence[Sendable]) -> Iterator[None]:
        """If Redis hangs up meanwhile, note a doubt about the partitions of these batches."""
        try:
            yield
        except Unavailable as error:
            if hung_up(error):
                partitions: dict[Partition, OpenPartition[Any]] = {one.held.partition: one.held for one in batches}
                for partition, held in partitions.items():
                    self._doubts.note(partition, held.stored)
            raise

    def _take_in(
        self,
        batches: Sequence[Batch],
        answers: Callable[[], list[Answer]],
        settle: Callable[[Batch, Answer], None],
    ) -> None:
        if not batches:
            return
        with self.doubting(batches):
            found = answers()
        for batch, answer in zip(batches, found, strict=True):
            settle(batch, answer)

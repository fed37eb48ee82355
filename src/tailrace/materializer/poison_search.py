"""The search for a record that Redis never takes, in a batch that keeps failing.

The batch is split until one record is left that fails alone. That record becomes a dead letter only if Redis takes
another write to the same partition right after each of several tries: an outage fails that write as well, and so turns
no record into a dead letter. A batch that fails for a reason of Redis's own (read-only, loading, out of memory, silent)
is an outage from the start.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from tailrace.kafka.changelogs import Message, Partition
from tailrace.materializer.dead_letters import DeadLetterKeeper
from tailrace.materializer.partition import OpenPartition
from tailrace.store.connection.outages import Unavailable
from tailrace.store.write.writer import PositionMoved, Rejected, hung_up

log = logging.getLogger(__name__)

_TRIES = 3


class Doubts:
    """The partitions with a batch that Redis may never take: it has failed again and again at one offset."""

    def __init__(self) -> None:
        self._failures: dict[Partition, tuple[int, int]] = {}

    def note(self, partition: Partition, stored: int) -> None:
        """The batch after an offset has failed; it may be an outage."""
        offset, count = self._failures.get(partition, (stored, 0))
        self._failures[partition] = (stored, count + 1 if offset == stored else 1)

    def raise_about(self, partition: Partition, stored: int, reason: str) -> None:
        """Redis has refused the batch after an offset."""
        if not self.about(partition):
            log.warning("%s[%d]: Redis does not take a batch after offset %d: %s", *partition, stored, reason)
        self._failures[partition] = (stored, _TRIES)

    def clear(self, partition: Partition) -> None:
        """A batch of a partition was taken."""
        if self._failures:
            self._failures.pop(partition, None)

    def about(self, partition: Partition) -> bool:
        """Whether batches of a partition must be searched."""
        return bool(self._failures) and self._failures.get(partition, (0, 0))[1] >= _TRIES


class NotKept(Exception):
    """A record can't be skipped now, and is tried again later.

    Kafka did not take its dead letter, or Redis did not take the position after it.
    """


@dataclass(frozen=True)
class Trial:
    """Some records of a partition as one batch. Its writes return what Redis answers.

    `whole` writes all of it. `without` moves the position past it and writes nothing else. `empty` writes nothing and
    moves nothing. `taken` notes that the position has moved.
    """

    whole: Callable[[], object]
    without: Callable[[], object]
    empty: Callable[[], object]
    taken: Callable[[], None]


Open = TypeVar("Open", bound=OpenPartition[Any])


class PoisonSearch(Generic[Open]):
    """Applies records slowly, and skips those that can never be applied.

    `trial` makes a batch of records of an open partition, or None if Redis holds them all.
    """

    def __init__(
        self, dead_letters: DeadLetterKeeper, trial: Callable[[Open, Sequence[Message]], Trial | None]
    ) -> None:
        self._dead_letters = dead_letters
        self._trial = trial

    def apply(self, held: Open, messages: Sequence[Message]) -> PositionMoved | None:
        """Apply records of one partition in their order. PositionMoved if it must be opened again.

        Raises Unavailable for an outage, and NotKept. What was applied before that is in the store.
        """
        trial = self._trial(held, messages)
        if trial is None:
            return None
        result = _attempt(trial)
        if isinstance(result, Rejected) and len(messages) > 1:
            middle = len(messages) // 2
            return self.apply(held, messages[:middle]) or self.apply(held, messages[middle:])
        for _ in range(_TRIES - 1):
            if isinstance(result, Rejected):
                result = _attempt(trial)
        if isinstance(result, Rejected):
            if not self._dead_letters.keep(held, [(messages[0], f"Redis does not take it: {result.reason}")]):
                raise NotKept
            result = trial.without()
        if (moved := passed(result)) is not None:
            return moved
        trial.taken()
        return None


def _attempt(trial: Trial) -> object:
    """Write it all. Rejected only if Redis takes a write without these records right after."""
    try:
        result = trial.whole()
    except Unavailable as error:
        if not hung_up(error):
            raise
        result = Rejected(f"it closes the connection: {error}")
    if not isinstance(result, Rejected):
        return result
    empty = trial.empty()
    return empty if isinstance(empty, PositionMoved) else result


def passed(result: object) -> PositionMoved | None:
    """The answer of Redis to a write that moves past records; raises NotKept if Redis rejects that one, too."""
    if isinstance(result, Rejected):
        raise NotKept
    return result if isinstance(result, PositionMoved) else None

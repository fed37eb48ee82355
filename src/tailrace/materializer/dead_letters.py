"""Letters: records of changelogs that can't be applied, kept on dead-letter topics before they are passed over."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from typing import Protocol

from tailrace.errors import Unreachable
from tailrace.kafka.changelogs import Changelogs, Message, Partition
from tailrace.kafka.dead_letters import DeadLetter, DeadLetters
from tailrace.materializer.counters import Counters

log = logging.getLogger(__name__)

_RETRY_AFTER = 5.0


class Lettered(Protocol):
    """A partition that is being read, of a view or of a feed.

    `lettered` is the offset up to which its letters are known to be kept, None where that was not asked yet.
    """

    lettered: int | None

    @property
    def partition(self) -> Partition:
        """The partition of the changelog."""

    @property
    def view(self) -> str:
        """The name of the view or feed."""


class Letters:
    """Writes dead letters, and leaves Kafka alone for a while after it has not taken some.

    A partition that is read again, because Redis was lost, has its letters already: those up to what the group has
    committed are not written again. What was committed is in Redis, and comes after its letters.
    """

    def __init__(self, dead_letters: DeadLetters, changelogs: Changelogs, counters: Counters) -> None:
        self._dead_letters = dead_letters
        self._changelogs = changelogs
        self._counters = counters
        self._failed: set[Partition] = set()
        self._retry_at = 0.0
        self.problem: str | None = None

    def blocks(self, partition: Partition) -> bool:
        """Whether a partition must not be read now: letters of it are to be written, and Kafka does not take them."""
        return partition in self._failed and time.monotonic() < self._retry_at

    def keep(self, held: Lettered, found: Sequence[tuple[Message, str]]) -> bool:
        """Keep records, each with the reason; where it is False, Kafka did not take them: read them again."""
        if held.lettered is None:
            held.lettered = (self._changelogs.committed(held.partition) or 0) - 1
        known = held.lettered
        new = [(message, reason) for message, reason in found if (message.offset() or 0) > known]
        try:
            if new:
                self._dead_letters.write([_letter(held, message, reason) for message, reason in new])
        except Unreachable as error:
            self._failed.add(held.partition)
            self._retry_at = time.monotonic() + _RETRY_AFTER
            if self.problem is None:
                log.error("%s", error)
            self.problem = str(error)
            return False
        self._failed.discard(held.partition)
        self.problem = None
        for message, reason in new:
            log.warning("%s[%d] offset %s is a dead letter: %s", *held.partition, message.offset(), reason)
        self._counters.dead_letters.labels(held.view).inc(len(new))
        return True


def _letter(held: Lettered, message: Message, reason: str) -> DeadLetter:
    topic, number = held.partition
    return DeadLetter(
        topic=topic,
        partition=number,
        offset=message.offset() or 0,
        timestamp=message.timestamp()[1],
        key=message.key(),
        value=message.value(),
        headers=[*(message.headers() or [])],
        error=reason,
        views=held.view,
    )

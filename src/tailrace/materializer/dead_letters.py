"""Dead letters: records of changelogs that can't be applied are kept on dead-letter topics before they are skipped."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from typing import Any

from tailrace.errors import Unreachable
from tailrace.kafka.changelogs import Changelogs, Message, Partition
from tailrace.kafka.dead_letters import DeadLetter, DeadLetters
from tailrace.materializer.counters import MaterializerCounters
from tailrace.materializer.partition import OpenPartition

log = logging.getLogger(__name__)

_RETRY_AFTER = 5.0


class DeadLetterKeeper:
    """Writes dead letters. After Kafka has refused some, it leaves Kafka alone for a while.

    When a partition is read anew because Redis was lost, dead letters up to the offset that the group has committed are
    not written again: an offset is committed after Redis has it, and Redis gets it after its dead letters are kept.
    """

    def __init__(self, dead_letters: DeadLetters, changelogs: Changelogs, counters: MaterializerCounters) -> None:
        self._dead_letters = dead_letters
        self._changelogs = changelogs
        self._counters = counters
        self._failed: set[Partition] = set()
        self._retry_at = 0.0
        self.problem: str | None = None

    def blocks(self, partition: Partition) -> bool:
        """Whether a partition must not be read now: it has dead letters to write, and Kafka does not take them."""
        return partition in self._failed and time.monotonic() < self._retry_at

    def keep(self, held: OpenPartition[Any], found: Sequence[tuple[Message, str]]) -> bool:
        """Keep records, each with the reason. False if Kafka did not take them: read them again."""
        if held.letters_kept is None:
            held.letters_kept = (self._changelogs.committed(held.partition) or 0) - 1
        known = held.letters_kept
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


def _letter(held: OpenPartition[Any], message: Message, reason: str) -> DeadLetter:
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

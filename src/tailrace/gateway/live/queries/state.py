"""How far one partition of a query was followed here, decided without I/O.

Messages of a query are numbered per partition. A message with the next number is applied. A message that
leaves a gap, or comes from a store that does not know the position here, says that something was missed. Then
the store is read.

A read may take several pages, each of its own moment. The progress then goes on from the number of the first
page, and `known` says up to which number a page has told everything about a key: an older message about it
would go back.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from tailrace.store.layout.message import READY, Message


class Verdict(Enum):
    """What a message is: the next one, a known one, or a sign that something was missed."""

    NEXT = "next"
    OLD = "old"
    MISSED = "missed"


class QueryProgress:
    """Position and number of one partition.

    `live` says that every message since the last read was taken in. `offset` is None before the first read.
    `held` has the offset of each member's row, as far as clients were told; None if there are too many to
    keep. `leaps` counts how often it went on from a comparison. What was read before one, and not told yet,
    must not be told after it.
    """

    __slots__ = ("_known", "_until", "generation", "held", "leaps", "live", "number", "offset")

    def __init__(self, generation: int) -> None:
        self.generation = generation
        self.live = False
        self.offset: int | None = None
        self.number = -1
        self.held: dict[bytes, int] | None = {}
        self.leaps = 0
        self._known: Mapping[bytes, int] = {}
        self._until = -1

    def judge(self, message: Message) -> Verdict:
        """What a message is. If the store was rolled back, a `ready` may repeat a number."""
        event = message.event
        if not self.live or self.offset is None or event.generation != self.generation:
            return Verdict.MISSED
        if event.kind == READY:
            fits = message.number == self.number + 1 and self.offset <= event.version
            return Verdict.NEXT if fits else Verdict.MISSED
        if message.number <= self.number:
            return Verdict.OLD
        return Verdict.NEXT if message.number == self.number + 1 else Verdict.MISSED

    def advance(self, message: Message) -> bool:
        """Take in the next message; True if it says something that no read has told."""
        event = message.event
        self.number = message.number
        if message.settled:
            self.offset = event.offset if self.offset is None else max(self.offset, event.offset)
        told = self._known.get(event.key, -1) >= message.number
        if self.number >= self._until:
            self._known, self._until = {}, -1
        return event.kind != READY and not told

    def restart(self, offset: int, number: int, known: Mapping[bytes, int], until: int) -> None:
        """Go on from a read: the moment of its first page, what its pages have told, and the number of the last."""
        self.offset, self.number = offset, number
        self._known, self._until = (known, until) if until > number else ({}, -1)
        self.live = True

    def forget(self) -> None:
        """Forget what clients were told."""
        self.leaps += 1
        self.live, self.offset, self.number = False, None, -1
        self.held, self._known, self._until = {}, {}, -1

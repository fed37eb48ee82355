"""Records of changelogs as they are read from Kafka, and runs of them that are small enough for a script call."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Sized
from typing import TypeVar, cast

from tailrace.kafka.changelogs import Message

# Key, value, headers, offset.
RawRecord = tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]] | None, int]

# The most bytes of values in one script call: nobody else can use Redis for as long as it runs.
LARGEST_BATCH = 4 * 1024 * 1024

Record = TypeVar("Record", bound=Sized)


def raw(messages: Sequence[Message]) -> list[RawRecord]:
    """What records hold."""
    return cast(list[RawRecord], [(m.key(), m.value(), m.headers(), m.offset()) for m in messages])


def cut(messages: Sequence[Record], most: int) -> Iterator[Sequence[Record]]:
    """Records in their order, in runs of at most `most` bytes of values, or of one record."""
    if sum(map(len, messages)) <= most:
        yield messages
        return
    first, size = 0, 0
    for n, message in enumerate(messages):
        size += len(message)
        if size > most and n > first:
            yield messages[first:n]
            first, size = n, len(message)
    yield messages[first:]


def with_reasons(messages: Sequence[Message], reasons: Mapping[int, str]) -> list[tuple[Message, str]]:
    """The records at these offsets, each with the reason why it is refused."""
    if not reasons:
        return []
    return [(message, reasons[message.offset() or 0]) for message in messages if (message.offset() or 0) in reasons]

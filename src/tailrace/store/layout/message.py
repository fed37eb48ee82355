"""A message about a query, as the store publishes it on the query's channel.

    number settled kind generation version offset timestamp length key json

kind: `row` if a key has entered or changed, `gone` if it has left, `ready` if every member is known up to the
offset. The version of `ready` is the offset up to which the query was evaluated before without a break. A
client whose position is above it or of another generation, or that missed a number, reads what has changed
since its position.
number: rises by one with every message of a query in a partition. It jumps if the query was begun from
nothing again: a gap means that messages were missed, or that the store does not know what it knew before.
settled: `1` if a client that had every message has seen everything up to the offset. `0` while the store
looks at the members once more: the row is right, but rows with lower offsets may follow, so the position
stays.
length: bytes of the key. `json` is the row's; it is empty if the key has left.
"""

from __future__ import annotations

from dataclasses import dataclass

ROW, GONE, READY = b"row", b"gone", b"ready"


@dataclass(frozen=True, slots=True)
class QueryEvent:
    """What happened to a key in a query: the change behind it, with the row if the key is a member."""

    kind: bytes
    key: bytes
    generation: int
    version: int
    offset: int
    timestamp: int
    value: bytes | None

    def pack(self) -> bytes:
        """The bytes of the message without `number` and `settled`, which the store adds."""
        return b"%b %d %d %d %d %d %b%b" % (
            self.kind,
            self.generation,
            self.version,
            self.offset,
            self.timestamp,
            len(self.key),
            self.key,
            self.value or b"",
        )


@dataclass(frozen=True, slots=True)
class Message:
    """An event as the store published it."""

    number: int
    settled: bool
    event: QueryEvent


def unpack_message(data: bytes) -> Message:
    """Read the bytes that Redis published."""
    number, settled, kind, generation, version, offset, timestamp, length, rest = data.split(b" ", 8)
    end = int(length)
    event = QueryEvent(kind, rest[:end], int(generation), int(version), int(offset), int(timestamp), rest[end:] or None)
    return Message(int(number), settled == b"1", event)

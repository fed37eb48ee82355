"""A message about a query, as it is published on the query's channel.

    number settled kind generation version offset timestamp length key json

kind: `row`: a key has entered or changed; `gone`: it has left; `ready`: every member is known, up to the offset. The
version of `ready` is the offset up to which the query was evaluated before without a break: who has a position above
it, or of another generation, or has missed a number, reads what has changed since its position.
number: rises by one with every message of a query in a partition, and by more where the query was begun from nothing
again: a gap says that messages were missed, or that what was known before is not known to the store.
settled: `1` where who has had every message has seen everything up to the offset. `0` while the members are looked at
once more: the row is right, but others with lower offsets may follow, so the position stays where it was.
length: of the key, in bytes. `json` is the row's, and empty where the key has left.
"""

from __future__ import annotations

from dataclasses import dataclass

ROW, GONE, READY = b"row", b"gone", b"ready"


@dataclass(frozen=True, slots=True)
class Event:
    """What happened to a key in a query: the change that it is about, with its row where the key is in."""

    kind: bytes
    key: bytes
    generation: int
    version: int
    offset: int
    timestamp: int
    value: bytes | None

    def pack(self) -> bytes:
        """The message without `number` and `settled`, which the store adds."""
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
    """An event as it was published."""

    number: int
    settled: bool
    event: Event


def unpack_message(data: bytes) -> Message:
    """The message in what Redis published."""
    number, settled, kind, generation, version, offset, timestamp, length, rest = data.split(b" ", 8)
    end = int(length)
    event = Event(kind, rest[:end], int(generation), int(version), int(offset), int(timestamp), rest[end:] or None)
    return Message(int(number), settled == b"1", event)

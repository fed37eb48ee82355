"""A row as Redis holds and publishes it: `generation version offset timestamp json`, as bytes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Row:
    """What a key holds. `value` is the row's compact JSON, or None where the key is gone."""

    generation: int
    version: int
    offset: int
    timestamp: int
    value: bytes | None

    @property
    def rank(self) -> tuple[int, int, bool]:
        """What decides between two rows of one key: the later build, then the higher version, then that it is there."""
        return (self.generation, self.version, self.value is not None)

    def pack(self) -> bytes:
        """The bytes that `unpack` reads."""
        return b"%d %d %d %d %b" % (
            self.generation,
            self.version,
            self.offset,
            self.timestamp,
            self.value or b"",
        )


def unpack(data: bytes) -> Row:
    """The row in what Redis returned or published."""
    generation, version, offset, timestamp, value = data.split(b" ", 4)
    return Row(int(generation), int(version), int(offset), int(timestamp), value or None)

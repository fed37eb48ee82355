"""A row as Redis holds and publishes it: `generation version offset timestamp json`, as bytes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StoredRow:
    """The row of a key. `value` is its compact JSON, or None if the key is gone."""

    generation: int
    version: int
    offset: int
    timestamp: int
    value: bytes | None

    @property
    def rank(self) -> tuple[int, int, bool]:
        """Decides between two rows of a key: by build, then by version, then a row wins over a tombstone."""
        return (self.generation, self.version, self.value is not None)

    def pack(self) -> bytes:
        """The bytes in Redis; see `unpack`."""
        return b"%d %d %d %d %b" % (
            self.generation,
            self.version,
            self.offset,
            self.timestamp,
            self.value or b"",
        )


def unpack(data: bytes) -> StoredRow:
    """Read the bytes that Redis returned or published."""
    generation, version, offset, timestamp, value = data.split(b" ", 4)
    return StoredRow(int(generation), int(version), int(offset), int(timestamp), value or None)

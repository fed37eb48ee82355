"""Changes as the store takes them: packed once; the same bytes are sent, stored and published."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from tailrace.contracts.record import Change
from tailrace.store.layout.row import StoredRow, unpack


@dataclass(frozen=True, slots=True)
class Packed:
    """Changes, at most one per key and generation: `fields` is key, row, key, row, …

    A row is `generation version offset timestamp json`, without JSON if the key is gone. `expiries` holds two
    numbers for each change that expires: which one it is, counted from 1, and when it expires, in ms since
    1970.
    """

    fields: list[bytes] = field(default_factory=list)
    expiries: list[int] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.fields) // 2

    def piece(self, first: int, last: int) -> Packed:
        """The changes from one number, counted from 0, up to another."""
        pairs = zip(self.expiries[::2], self.expiries[1::2], strict=True)
        expiries = [held for number, when in pairs if first < number <= last for held in (number - first, when)]
        return Packed(self.fields[2 * first : 2 * last], expiries)

    def changes(self) -> list[Change]:
        """The changes that were packed. Whether a materializer has added them is lost."""
        expires = dict(zip(self.expiries[::2], self.expiries[1::2], strict=True))
        found = []
        for n in range(0, len(self.fields), 2):
            row = unpack(self.fields[n + 1])
            expiry = expires.get(n // 2 + 1)
            found.append(
                Change(self.fields[n], row.value, row.generation, row.version, row.timestamp, row.offset, expiry)
            )
        return found


def pack(changes: Iterable[Change]) -> Packed:
    """Pack changes, at most one per key and generation."""
    packed = Packed()
    for c in changes:
        packed.fields.extend((c.key, StoredRow(c.generation, c.version, c.offset, c.timestamp, c.value).pack()))
        if c.expires is not None:
            packed.expiries.extend((len(packed), c.expires))
    return packed

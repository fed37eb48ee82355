"""Batches of changes: the records of one partition of a view, from one poll, reduced to what the store must see."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from tailrace.contracts.record import Change, NotAChange, decode_change, too_long
from tailrace.materializer.records import RawRecord
from tailrace.store.layout.packed import Packed

# Version, whether it is a row, the change as the store holds it, when it expires, its offset.
_Newest = tuple[int, bool, bytes, int | None, int]

# Every number with this many digits is below 2^63.
_DIGITS = 18
_ZERO = ord("0")


@dataclass(frozen=True)
class RefusedRecord:
    """A record that is no change, or a change to a row that is too long, and the reason."""

    record: RawRecord
    reason: str

    @property
    def offset(self) -> int:
        """Its offset in the changelog."""
        return self.record[3]


@dataclass(frozen=True)
class ViewBatch:
    """At most one change per key and generation, the one of highest rank, and the offset that the batch leads to.

    Generations are kept apart, because one is served while the next is kept back. `added` are the changes that a
    materializer has added to the changelog. `offsets` are those of the changes if they rise, and empty otherwise.
    `generation` is that of all changes; None if they are of several, or if there are none.
    """

    packed: Packed
    reached: int
    records: int
    refused: list[RefusedRecord]
    added: list[Change]
    offsets: list[int] = field(default_factory=list)
    generation: int | None = None

    @property
    def changes(self) -> list[Change]:
        """The changes, each read from its bytes anew."""
        return self.packed.changes()

    def pieces(self, most: int) -> Iterator[ViewBatch]:
        """The batch in pieces of at most `most` changes, if it can be cut. Each leads on from the one before.

        A record that was left out because of a later one is in no piece before that one. So whoever has stored a piece
        and reads on gets it, or a newer one.
        """
        count = len(self.packed)
        if count <= most or self.refused or self.added or not self.offsets:
            yield self
            return
        for first in range(0, count, most):
            last = min(first + most, count)
            reached = self.reached if last == count else self.offsets[last - 1]
            packed, offsets = self.packed.piece(first, last), self.offsets[first:last]
            records = self.records if last == count else 0
            yield ViewBatch(packed, reached, records, [], [], offsets, self.generation)


def conflate(records: Iterable[RawRecord], stored: int) -> ViewBatch:
    """Reduce records that come in offset order. Records up to the offset `stored` are skipped.

    A record that is no change is refused, with the reason, and holds up no other. An empty value means that the key is
    gone. If it is gone because its row is too long, the record is also refused, unless a newer one is there. Of equal
    ranks the first stays: a replay brings nothing new.

    This is the hot loop of the process. It reads headers in place if they look as the pipeline writes them. Others go
    through `decode_change`, with the same result.
    """
    generations: dict[bytes, dict[bytes, _Newest]] = {}
    newest: dict[bytes, _Newest] = {}
    generation = b"none yet"
    added: list[Change] = []
    refused: list[RefusedRecord] = []
    oversize: dict[int, RefusedRecord] = {}
    reached = stored
    count = 0
    headers: Any
    for record in records:
        key, value, headers, offset = record
        if offset <= stored:
            continue
        count += 1
        reached = offset
        try:
            x = None
            if len(headers) == 3:
                (g_name, g), (v_name, v), (t_name, t) = headers
                plain = key is not None
            else:
                (g_name, g), (v_name, v), (t_name, t), (x_name, x) = headers
                plain = key is not None and x_name == "x" and x.isdigit() and len(x) <= _DIGITS
            plain = plain and g_name == "g" and v_name == "v" and t_name == "t" and v.isdigit() and t.isdigit()
            plain = plain and len(v) <= _DIGITS and len(t) <= _DIGITS
            if plain and g != generation:
                plain = g.isdigit() and len(g) <= _DIGITS and (g[0] != _ZERO or len(g) == 1)
        except (TypeError, ValueError, AttributeError):
            plain = False
        if plain:
            version, timestamp, expires = int(v), int(t), None if x is None else int(x)
        else:
            try:
                change = decode_change(key, value, headers, offset)
            except NotAChange as error:
                refused.append(RefusedRecord(record, str(error)))
                continue
            if change.added:
                added.append(change)
            if change.oversize is not None:
                oversize[offset] = RefusedRecord(record, too_long(change.oversize))
            g, version, timestamp, expires = b"%d" % change.generation, change.version, change.timestamp, change.expires
        if g != generation:
            generation, newest = g, generations.setdefault(g, {})
        held = newest.get(key)  # type: ignore[arg-type]
        if held is None or version > held[0] or (version == held[0] and value and not held[1]):
            if held is not None:
                # Changes stay in the order of their offsets.
                del newest[key]  # type: ignore[arg-type]
            row = b"%b %d %d %d %b" % (g, version, offset, timestamp, value or b"")
            newest[key] = (version, bool(value), row, expires, offset)  # type: ignore[index]
    packed, offsets = _pack(generations.values())
    if oversize:
        refused += [oversize[offset] for offset in oversize.keys() & set(offsets)]
        refused.sort(key=lambda one: one.offset)
    if len(generations) != 1:
        return ViewBatch(packed, reached, count, refused, added)
    return ViewBatch(packed, reached, count, refused, added, offsets, int(generation))


def _pack(generations: Iterable[dict[bytes, _Newest]]) -> tuple[Packed, list[int]]:
    packed = Packed()
    fields, offsets = packed.fields, list[int]()
    for newest in generations:
        for key, (_, _, row, expires, offset) in newest.items():
            offsets.append(offset)
            fields.append(key)
            fields.append(row)
            if expires is not None:
                packed.expiries.extend((len(offsets), expires))
    return packed, offsets

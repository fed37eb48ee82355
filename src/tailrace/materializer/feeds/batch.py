"""Batches of events: the records of one partition of a feed, from one poll. Nothing is conflated."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from tailrace.contracts.event import decode_event, identity
from tailrace.contracts.record import NotAChange
from tailrace.materializer.records import RawRecord
from tailrace.store.layout.packed_events import PackedEvents

# Every number with this many digits is below 2^63.
_DIGITS = 18
_ZERO = ord("0")


@dataclass(slots=True)
class FeedBatch:
    """Events that are above the marks, and the offset that the batch leads to.

    `refused` are records that are no events: the offset of each, and the reason.
    """

    packed: PackedEvents
    reached: int
    records: int = 0
    refused: list[tuple[int, str]] = field(default_factory=list)


def gather(
    records: Iterable[RawRecord], stored: int, marks: dict[bytes, int], *, ordered: bool, most: int, largest: int
) -> list[FeedBatch]:
    """Make batches of records that come in offset order. Records up to the offset `stored` are skipped.

    `marks` are those of the store before the first batch; they are moved to those after the last one. An event that is
    not above the mark of its source is a replay and left out. A batch has at most `most` records and `largest` bytes of
    values, or one record.

    This is the hot loop of the process. It reads headers in place if they look as the pipeline writes them. Others go
    through `decode_event`, with the same result.
    """
    batch = FeedBatch(PackedEvents(ordered), stored)
    batches = [batch]
    clients, moved, count, new, size = batch.packed.clients, batch.packed.marks, 0, 0, 0
    # Header s and header p → source, for pairs that `decode_event` has accepted.
    sources: dict[tuple[Any, Any], bytes] = {}
    generation: bytes | None = None
    headers: Any
    for key, value, headers, offset in records:
        if offset <= stored:
            continue
        length = 0 if value is None else len(value)
        if count == most or (count > 0 and size + length > largest):
            batch.records, batch.packed.count = count, new
            batch = FeedBatch(PackedEvents(ordered), offset)
            batches.append(batch)
            clients, moved, count, new, size = batch.packed.clients, batch.packed.marks, 0, 0, 0
        count += 1
        size += length
        batch.reached = offset
        try:
            (g_name, g), (v_name, v), (t_name, t), (p_name, p), (s_name, s) = headers
            source = sources[s, p]
            plain = g_name == "g" and v_name == "v" and t_name == "t" and p_name == "p" and s_name == "s"
            plain = plain and key is not None and value is not None and v.isdigit() and t.isdigit()
            plain = plain and len(v) <= _DIGITS and len(t) <= _DIGITS and v[0] != _ZERO and t[0] != _ZERO
            if plain and g != generation:
                plain = g.isdigit() and len(g) <= _DIGITS and g[0] != _ZERO
        except (TypeError, ValueError, AttributeError, KeyError):
            plain = False
        if plain:
            version, generation = int(v), g
        else:
            try:
                event = decode_event(key, value, headers, offset)
            except NotAChange as error:
                batch.refused.append((offset, str(error)))
                continue
            found = dict(headers)
            source = sources[found.get("s"), found["p"]] = event.source
            version = event.version
            g, v, t = b"%d" % event.generation, b"%d" % version, b"%d" % event.timestamp
        if version <= marks.get(source, -1):
            continue
        new += 1
        row = b"%b %b %d %b %b" % (g, v, offset, t, value)  # type: ignore[str-format]
        held = clients.get(key)  # type: ignore[arg-type]
        if held is None:
            held = clients[key] = []  # type: ignore[index]
        held.append(row)
        if ordered:
            marks[source] = moved[source] = version
        else:
            held.append(identity(key, value, source, version))  # type: ignore[arg-type]
    batch.records, batch.packed.count = count, new
    return batches if batches[0].records > 0 else []

"""Which changes of a stream's keys a client that comes back has missed, decided without I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tailrace.contracts.commands import Stream
from tailrace.contracts.position import Position
from tailrace.gateway.live.positions import Reset


@dataclass(frozen=True)
class StreamEntry:
    """How a client comes in: by `positions` for some keys, None for a new key, and by its own position for others.

    `departed` are keys whose rows it may hold though the stream no longer has them, or has them anew. `reset`, if
    there is one, is what it is told.
    """

    positions: Mapping[bytes, str | None] = field(default_factory=dict)
    departed: frozenset[bytes] = frozenset()
    reset: Reset | None = None


def stream_entry(stream: Stream, position: str | None, positions: Mapping[str, str]) -> StreamEntry:
    """How a client comes in with one position for all keys, or one for each key whose row it holds."""
    keys = stream.keys or ()
    if positions:
        departed = frozenset(key.encode() for key in positions.keys() - set(keys))
        return StreamEntry({key.encode(): positions.get(key) for key in keys}, departed)
    found = Position.parse(position) if position else None
    if found is None:
        return StreamEntry()
    missed = stream.changes.since(found.change)
    if missed is None:
        if found.change > stream.changes.number:
            return StreamEntry(reset=Reset("ahead", "the position is of later changes of the stream's keys than these"))
        return StreamEntry(reset=Reset("forgotten", "too many keys were added and removed since the position"))
    added, removed = missed
    return StreamEntry({key.encode(): None for key in added}, frozenset(key.encode() for key in removed))

"""Events as the store takes them: packed once, sent, kept and published as the same bytes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from tailrace.contracts.event import Event


@dataclass(slots=True)
class PackedEvents:
    """Events by client, each client's in the order of offsets: `generation version offset timestamp json`.

    `marks` is, per source, the highest version of these events. Where the feed is not ordered there are none, and each
    event is followed by its identity.
    """

    ordered: bool = True
    clients: dict[bytes, list[bytes]] = field(default_factory=dict)
    marks: dict[bytes, int] = field(default_factory=dict)
    count: int = 0


def pack_events(events: Iterable[Event], *, ordered: bool = True) -> PackedEvents:
    """Pack events, given in the order of offsets, of which none is a replay by its mark."""
    packed = PackedEvents(ordered)
    for e in events:
        held = packed.clients.setdefault(e.client, [])
        held.append(b"%d %d %d %d %b" % (e.generation, e.version, e.offset, e.timestamp, e.value))
        if ordered:
            packed.marks[e.source] = e.version
        else:
            held.append(e.identity)
        packed.count += 1
    return packed

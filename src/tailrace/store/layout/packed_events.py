"""Events as the store takes them: packed once; the same bytes are sent, kept and published."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from tailrace.contracts.event import FeedEvent


@dataclass(slots=True)
class PackedEvents:
    """Events by client, each as `generation version offset timestamp json`; those of a client are in order of offset.

    `marks` is the highest version of these events, per source. If the feed is not ordered there are no marks,
    and the identity of each event follows it.
    """

    ordered: bool = True
    clients: dict[bytes, list[bytes]] = field(default_factory=dict)
    marks: dict[bytes, int] = field(default_factory=dict)
    count: int = 0


def pack_events(events: Iterable[FeedEvent], *, ordered: bool = True) -> PackedEvents:
    """Pack events in order of offset; none may be a replay by its mark."""
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

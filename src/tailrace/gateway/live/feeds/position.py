"""How a client of a feed comes in: what its position is worth to the history, decided without I/O.

Generations do not count here. A feed that is declared anew goes on in the same changelog. A changed
definition must not make its clients get an event again, or tell them that they have missed any.
"""

from __future__ import annotations

from tailrace.gateway.catalog import ServedFeed
from tailrace.gateway.live.positions import After, Ahead, Fresh, Reset, readable
from tailrace.store.read.feed_histories import Registration


def feed_entry(
    text: str | None, feed: ServedFeed, partition: int, listener: Registration
) -> Fresh | After | Ahead | Reset:
    """How a client that sent this position comes in, if the store is whole and has answered with `listener`.

    A position without offsets is from before the first record: its client has seen nothing, and is owed
    everything.
    """
    if not text:
        return Fresh()
    position = readable(text, feed.lineage, "feed")
    if isinstance(position, Reset):
        return position
    if position.offsets and partition not in position.offsets:
        return Reset("missed", f"the position is from before the feed had {feed.entry.partitions} partitions")
    offset = position.offsets.get(partition, -1)
    if offset > (listener.offset if listener.offset is not None else -1):
        return Ahead(offset)
    start = listener.start if listener.start is not None else -1
    return After(offset) if offset >= start else missed(feed, offset, start, listener.offset)


def feed_ahead(ahead: Ahead, stored: int | None) -> Reset:
    """What a client is told if the store did not reach its position in time."""
    return Reset("ahead", f"the position is at offset {ahead.offset}, the store holds the feed up to {stored} only")


def feed_rebuilt(feed: ServedFeed) -> Reset:
    """What a client is told if its feed has another changelog now."""
    return Reset("rebuilt", f"the feed {feed.name} has a changelog that was made anew, or has other partitions")


def missed(feed: ServedFeed, offset: int, start: int, stored: int | None) -> Reset:
    """What a client that has seen everything up to an offset is told, if the history is complete only after `start`.

    If the history has nothing up to what the store holds, the client was not registered. Otherwise the oldest
    events were dropped.
    """
    entry = feed.entry
    told = f"the position is at offset {offset}, events are kept from {start + 1} on only: "
    if entry.retain != "always" and stored is not None and start >= stored:
        return Reset("missed", f"{told}the client was away for longer than the hold time, {entry.hold:g} s")
    return Reset("missed", f"{told}at most {entry.length} for one client, none older than {entry.age:g} s")

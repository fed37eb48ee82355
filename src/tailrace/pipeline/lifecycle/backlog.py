"""The backlog: how many records of its topics a view has not processed, decided without I/O."""

from __future__ import annotations

from collections.abc import Mapping

from tailrace.kafka.groups import Offsets

# Above this a view catches up in micro-batches before it goes live: real time takes some tens of thousands of records a
# second, micro-batches several times that.
MANY = 50_000

Bounds = Mapping[str, Mapping[int, tuple[int, int]]]


def backlog(processed: Offsets, bounds: Bounds) -> int:
    """Records between the processed offsets, or the earliest if there are none, and the ends."""
    return sum(waiting(processed, bounds).values())


def waiting(processed: Offsets, bounds: Bounds) -> dict[str, int]:
    """The same by topic."""
    found = {}
    for topic, partitions in bounds.items():
        ends = ((first, end, _next(processed, topic, number, first)) for number, (first, end) in partitions.items())
        found[topic] = sum(max(0, end - max(first, at)) for first, end, at in ends)
    return found


def lost(processed: Offsets, bounds: Bounds) -> int:
    """Records that retention took away before they were processed."""
    total = 0
    for topic, partitions in bounds.items():
        for number, (first, _) in partitions.items():
            total += max(0, first - _next(processed, topic, number, first))
    return total


def reached(processed: Offsets, bounds: Bounds) -> bool:
    """Whether everything up to the ends is processed."""
    return backlog(processed, bounds) == 0


def _next(processed: Offsets, topic: str, number: int, first: int) -> int:
    """The offset that comes next; a partition that was added to a topic begins at 0."""
    known = processed.get(topic)
    return known.get(number, 0) if known else first

"""The backlog: how many records of its topics a view has not processed, decided without I/O."""

from __future__ import annotations

from collections.abc import Mapping

from tailrace.kafka.groups import Offsets

# Above this a view catches up in micro-batches before it goes live: real time takes some tens of thousands of records a
# second, micro-batches several times that.
MANY = 50_000

Bounds = Mapping[str, Mapping[int, tuple[int, int]]]


def backlog(processed: Offsets, bounds: Bounds) -> int:
    """Records between the processed offsets, or the earliest where there are none, and the ends."""
    total = 0
    for topic, partitions in bounds.items():
        for number, (first, end) in partitions.items():
            total += max(0, end - max(first, processed.get(topic, {}).get(number, first)))
    return total


def lost(processed: Offsets, bounds: Bounds) -> int:
    """Records that retention took away before they were processed."""
    total = 0
    for topic, partitions in bounds.items():
        for number, (first, _) in partitions.items():
            total += max(0, first - processed.get(topic, {}).get(number, first))
    return total

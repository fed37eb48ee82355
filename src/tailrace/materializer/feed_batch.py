"""A batch of events: the records of one partition of a feed from one poll. Every event counts: nothing is conflated."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tailrace.event import Event, decode_event
from tailrace.materializer.batch import RawRecord
from tailrace.record import NotAChange


@dataclass(frozen=True)
class FeedBatch:
    """Events in the order of offsets, and the offset that the batch leads to; `refused` are records that are none."""

    events: list[Event]
    reached: int
    records: int
    refused: list[tuple[int, str]]


def gather(records: Iterable[RawRecord], stored: int) -> FeedBatch:
    """The events of records in offset order; those at or below the stored offset are already in the store."""
    events: list[Event] = []
    refused: list[tuple[int, str]] = []
    reached, count = stored, 0
    for key, value, headers, offset in records:
        if offset <= stored:
            continue
        count += 1
        reached = offset
        try:
            events.append(decode_event(key, value, headers, offset))
        except NotAChange as error:
            refused.append((offset, str(error)))
    return FeedBatch(events, reached, count, refused)

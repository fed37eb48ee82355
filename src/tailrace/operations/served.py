"""What a view has served of its source topics, estimated between the ends of two batches. No I/O.

In real time, Spark says how far it is only when a batch ends, once a minute, but rows leave all the time. Meanwhile
timestamps give an estimate: of every source partition, the records up to the highest source timestamp in the store
count as served. Records that were written after the last report of a materializer do not count as behind, because
nobody knows yet whether they were served.

The estimate of records behind is too high if the last records gave no row, for example because a step has left them
out. It is too low if one source partition stands still while others move, or if records are older than those before
them. When a batch ends, its offsets are exact.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from tailrace.kafka.groups import Offsets

Bounds = Mapping[str, Mapping[int, tuple[int, int]]]

_LIVE = "live"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def can_be_estimated(mode: str, built: int, served: int) -> bool:
    """Whether timestamps can tell. A view in another mode may take much older records after newer ones.

    `built` is the generation that the pipeline reports on, `served` the one that the store serves.
    """
    return mode == _LIVE and built == served


def after(newest: int) -> datetime:
    """The time of the first records that are later than a timestamp in ms.

    Half a millisecond is added, because callers turn the time into whole milliseconds through a float.
    """
    return _EPOCH + timedelta(milliseconds=newest + 1, microseconds=500)


def counted_until(newest: int, at: int | None) -> int | None:
    """The time up to which records count as behind, in ms like `at`; None if all do.

    `at` is the time of the last report. All records count if there is none, or if producers' clocks are ahead of it.
    Otherwise their records would seem to be written after it, and a view that stands still would seem to have served
    them.
    """
    return at if at is not None and newest <= at else None


def ends_at(bounds: Bounds, later: Offsets) -> dict[str, dict[int, tuple[int, int]]]:
    """Where topics ended at some time. `later` are the first offsets of later records; a partition may have none."""
    return {
        topic: {number: (first, min(end, later.get(topic, {}).get(number, end))) for number, (first, end) in of.items()}
        for topic, of in bounds.items()
    }


def estimated(processed: Offsets, later: Offsets, bounds: Bounds) -> dict[str, dict[int, int]]:
    """Per source partition the offset that is served next.

    `processed` are the offsets of finished batches. `later` are the first offsets of records that are later than the
    newest in the store; a partition may have none.
    """
    return {
        topic: {
            number: max(
                first, processed.get(topic, {}).get(number, first), min(end, later.get(topic, {}).get(number, end))
            )
            for number, (first, end) in partitions.items()
        }
        for topic, partitions in bounds.items()
    }

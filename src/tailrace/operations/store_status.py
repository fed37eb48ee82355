"""How far the store is with a changelog, partition by partition, for `tailrace status`."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tailrace.errors import Unreachable
from tailrace.kafka.groups import Group
from tailrace.store.connection.outages import Unavailable
from tailrace.store.layout.stored_position import StoredPosition
from tailrace.store.write.writer import StoreWriter

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class StoredPartition:
    """One partition of a changelog in Redis.

    `offset` is None if Redis holds nothing of the partition, and -1 if it is about to be restored. `behind` counts
    records that are not in Redis, and `behind_seconds` is the age of the oldest. During a restore, `restored` is the
    share that is done.
    """

    partition: int
    offset: int | None
    end: int
    behind: int
    behind_seconds: float = 0.0
    restored: float | None = None


def stored_partitions(
    group: Group, writer: StoreWriter, name: str, lineage: str, changelog: str, count: int
) -> list[StoredPartition] | None:
    """Every partition of a view or feed; None if Redis or Kafka does not answer."""
    try:
        stored = writer.stored([(name, number, lineage) for number in range(count)])
        bounds = group.bounds({changelog: count})[changelog]
    except (Unavailable, Unreachable) as error:
        log.warning("%s: how far the store is, is not known: %s", name, error)
        return None
    found = partitions(stored, bounds)
    now = time.time()
    return [
        StoredPartition(
            one.partition,
            one.offset,
            one.end,
            one.behind,
            (group.age(changelog, one.partition, one.end - one.behind, now) or 0.0) if one.behind else 0.0,
            one.restored,
        )
        for one in found
    ]


def partitions(stored: Sequence[StoredPosition], bounds: Mapping[int, tuple[int, int]]) -> list[StoredPartition]:
    """How far each partition is: positions in the store against the bounds of the changelog."""
    found = []
    for number, one in enumerate(stored):
        first, end = bounds[number]
        at = max(first, 0 if one.offset is None else one.offset + 1)
        restored = None
        if one.offset is None:
            restored = 0.0
        elif not one.whole and one.target is not None:
            restored = max(0, at - first) / max(1, one.target + 1 - first)
        found.append(StoredPartition(number, one.offset, end, max(0, end - at), 0.0, restored))
    return found


def summary(found: Sequence[StoredPartition] | None) -> str:
    """All partitions in a word or two."""
    if found is None or any(one.offset is None for one in found):
        return "unknown" if found is None else "nothing stored"
    restoring = [one.restored for one in found if one.restored is not None]
    if restoring:
        return f"restoring, {min(restoring):.0%}"
    behind = sum(one.behind for one in found)
    return f"{behind:,} ({max(one.behind_seconds for one in found):.0f} s)" if behind else "0"

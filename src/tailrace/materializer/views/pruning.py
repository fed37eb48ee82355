"""Pruning: tombstones in the store are forgotten when nobody needs them any more.

A tombstone is there for clients that come back after their key has gone, and against replays: it stands above older
versions of its key, wherever they come. So it goes when both are over: it is older than the setting `tombstones`, and
the pipeline has finished the batch that it is of (`prune.lua` says how that is known). A client that comes back later
than that, to a key that holds nothing, gets `reset` (`gateway/resume.py`).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from tailrace.kafka.changelogs import Partition
from tailrace.materializer.views.open_partition import OpenPartition
from tailrace.store.write.tombstones import Tombstones
from tailrace.store.write.writer import Moved

# A step looks at about so many tombstones of a partition: well under a millisecond of Redis.
_BATCH = 500
# How long a horizon that is due, but may not move yet, is left alone at most, in ms.
_PATIENCE = 10_000
# Arguments of one call; Lua takes a few thousand.
_MOST = 1000

# The last batch of a view's generation that the pipeline has finished, where it is known.
Finished = Callable[[str, int], int | None]


@dataclass
class _Pass:
    """How far the tombstones of a partition were gone over; `cursor` is None between two passes."""

    held: OpenPartition
    horizon: int = -1
    cursor: int | None = None
    due: int = 0


class Pruning:
    """Goes over the tombstones of each partition once, in small steps, whenever its horizon has moved."""

    def __init__(self, tombstones: Tombstones, keep: float, finished: Finished) -> None:
        self._tombstones = tombstones
        self._keep = int(keep * 1000)
        self._finished = finished
        self._passes: dict[Partition, _Pass] = {}

    def tend(self, held: OpenPartition) -> int | Moved:
        """Do a step for a partition, if one is due; returns how many tombstones have gone.

        Moved if the partition must be opened again.
        """
        if not held.whole:
            return 0
        going = self._passes.get(held.partition)
        if going is None or going.held is not held:
            going = self._passes[held.partition] = _Pass(held)
        keys: list[bytes] = []
        if going.cursor is not None:
            keys, cursor = self._tombstones.before(held.view, held.number, going.horizon, going.cursor, _BATCH)
            going.cursor = cursor or None
        now = int(time.time() * 1000)
        if not keys and now < going.due:
            return 0
        batch, dropped = self._finished(held.view, held.generation), 0
        for first in range(0, max(1, len(keys)), _MOST):
            found = self._tombstones.prune(
                *held.place,
                generation=held.generation,
                now=now,
                keep=self._keep,
                batch=batch,
                keys=keys[first : first + _MOST],
            )
            if isinstance(found, Moved):
                return found
            if found is None:
                return dropped
            dropped += found.dropped
            going.due = max(found.moves, now + min(self._keep, _PATIENCE))
            if found.horizon > going.horizon:
                going.horizon, going.cursor = found.horizon, 0
        return dropped

"""Replays: what is read again after a crash may not be what was read before; decided without I/O.

Real-time mode saves offsets and state at the end of a batch. What the open batch has served is read again at the next
start. If it may bring fewer records than the first time, versions that count records would fall behind those that were
served. Then `base`, which is added to every version, rises above all of them: see docs/decisions/0034-versions.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tailrace.pipeline.lifecycle.backlog import Bounds

# A row has absorbed no more than this, and no more than so many events of each record that was written. Redis compares
# versions exactly up to 2^53: that are two million steps.
STEP = 1 << 32
_EVENTS_OF_A_RECORD = 256


@dataclass(frozen=True)
class Replays:
    """What may make a replay of one build differ.

    `accumulates`: rows are made of several records. `watermarked`: records are dropped as late by where a batch is cut.
    `compacted` are topics of events from which compaction removes records. `tombstones` says for how many seconds the
    tables that it reads keep them; a table that is not compacted is not among them.
    """

    accumulates: bool = False
    watermarked: bool = False
    compacted: frozenset[str] = frozenset()
    tombstones: Mapping[str, float] = field(default_factory=dict)

    def differ(self, *, waiting: Mapping[str, int], cut: bool) -> bool:
        """Whether the next start may read something else than what was served, though retention has removed nothing.

        waiting: records by topic that no finished batch has read.
        cut: the last run was in real time, so that its open batch may be cut into others.
        """
        removed = any(waiting.get(topic) for topic in self.compacted)
        return self.accumulates and (removed or (self.watermarked and cut))

    def outdated(self, as_of: int, waiting: Mapping[str, int], now: int) -> str:
        """Why tombstones may be gone that were never read; empty if they are not. Times are in ms since 1970.

        A compacted topic keeps a tombstone for some time. Half of it is for being away, half for reading on.
        """
        for topic, kept in self.tombstones.items():
            if as_of and waiting.get(topic) and now - as_of > kept * 500:
                away = (now - as_of) / 1000
                return (
                    f"{topic} keeps tombstones for {kept:.0f} s and was not read to its end for {away:.0f} s: some may "
                    "be gone that were never read"
                )
        return ""


def raised(base: int, bounds: Bounds) -> int:
    """The base that stands above every version which a build has served so far."""
    read = sum(end for partitions in bounds.values() for _, end in partitions.values())
    return base + max(STEP, read * _EVENTS_OF_A_RECORD)

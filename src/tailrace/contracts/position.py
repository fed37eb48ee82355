"""The position: the one coordinate from Kafka to the screen.

A position names a build of a view and, per changelog partition, the offset up to which its holder has seen
everything. It is what a client sends back to resume, what an ETag holds and what an SSE id is:

    4be1a27c.1.0-17.3-22
    ─────┬── ┬ ──┬───────
         │   │   └ partition 0 up to offset 17, partition 3 up to offset 22
         │   └ generation of the view
         └ lineage: which changelog the offsets belong to

The position of a stream whose keys were changed ends with the number of the last change that its holder knows of:
`4be1a27c.1.0-17.c2`.

The lineage is a digest of the app, the view and the Kafka id of the changelog topic, so a position
from another view, or from a changelog that was deleted and made anew, is recognised and never used.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass

_TEXT = re.compile(
    r"(?P<lineage>[0-9a-f]{8})\.(?P<generation>[0-9]{1,9})(?P<offsets>(?:\.[0-9]{1,6}-[0-9]{1,19})*)"
    r"(?:\.c(?P<change>[1-9][0-9]{0,8}))?",
    re.ASCII,
)


@dataclass(frozen=True)
class Position:
    """Lineage, generation, and the last offset seen per changelog partition; for a stream, the change of its keys."""

    lineage: str
    generation: int
    offsets: Mapping[int, int]
    change: int = 0

    def __str__(self) -> str:
        offsets = "".join(f".{partition}-{offset}" for partition, offset in sorted(self.offsets.items()))
        change = f".c{self.change}" if self.change else ""
        return f"{self.lineage}.{self.generation}{offsets}{change}"

    @classmethod
    def parse(cls, text: str) -> Position | None:
        """The position in the text, or None if there is none."""
        match = _TEXT.fullmatch(text)
        if match is None:
            return None
        offsets: dict[int, int] = {}
        for pair in match["offsets"].split(".")[1:]:
            partition, _, offset = pair.partition("-")
            if int(partition) in offsets:
                return None
            offsets[int(partition)] = int(offset)
        return cls(match["lineage"], int(match["generation"]), offsets, int(match["change"] or 0))


def lineage(app: str, view: str, topic_id: str) -> str:
    """Eight hex digits that tell one changelog from every other."""
    return hashlib.sha256("\0".join((app, view, topic_id)).encode()).hexdigest()[:8]

"""What a listing with `after` gives: only what is newer, or everything; decided without I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tailrace.gateway.catalog import KnownView
from tailrace.gateway.live.positions import After, Ahead, Later, Reset, entry
from tailrace.store.layout.stored import Stored


@dataclass(frozen=True)
class Since:
    """The client has seen the partitions up to these offsets; -1 where it can claim nothing of one."""

    offsets: Mapping[int, int]


def since(after: str, view: KnownView, generation: int, stored: Sequence[Stored]) -> Since | Ahead | Later | Reset:
    """What a position is worth to a store that serves this generation, its partitions as far as `stored` says.

    What has gone is known of a partition after its horizon and after its restore: compaction may have taken
    tombstones out of the changelog before it was read.
    """
    served = replace(view, generation=generation)
    seen: dict[int, int] = {}
    for partition, one in enumerate(stored):
        forgotten = max(one.pruned, one.target if one.target is not None else -1)
        come = entry(after, served, partition, one.offset if one.offset is not None else -1, forgotten)
        if isinstance(come, Ahead | Later | Reset):
            return come
        if isinstance(come, After):
            seen[partition] = come.offset
    return Since(seen)

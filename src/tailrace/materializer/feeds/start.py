"""Where a partition of a feed begins that the store has no position of, decided without I/O.

    first …… start …… since ……………… end
              │         │
              │         └ after it events are kept: those of the hold time, for who was connected when Redis was lost
              └ from here on records are read, so that a replay among the kept ones is known

A feed that always keeps its events begins with the first one that the changelog still has.
"""

from __future__ import annotations

from tailrace.contracts.catalog import CatalogFeed
from tailrace.store.write.feeds import REMEMBERED, Beginning

# So many records before the kept ones are read for their marks. A replay repeats the open batch of the pipeline.
_MARKED = 10_000


def beginning(feed: CatalogFeed, first: int, end: int, held: int, grace: float) -> Beginning:
    """Where to begin: `first` and `end` are those of the changelog, `held` is the first offset of the hold time.

    Listeners get `grace` seconds to register again where there is something to be had.
    """
    if feed.retain == "always":
        return Beginning(first, first, first - 1, end - 1)
    kept = min(max(held, first), end)
    start = max(first, kept - (_MARKED if feed.ordered else REMEMBERED))
    return Beginning(first, start, kept - 1, end - 1, grace if kept < end else 0.0)

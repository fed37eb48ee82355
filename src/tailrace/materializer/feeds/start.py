"""Where to begin with a partition of a feed if the store has no position of it. Does no I/O.

    first …… start …… since ……………… end
              │         │
              │         └ events after it are kept: those of the hold time, for clients that were connected when Redis
              │           was lost
              └ records are read from here on, so that replays among the kept events are recognized

A feed that always keeps its events begins with the first one that the changelog still has.
"""

from __future__ import annotations

from tailrace.contracts.catalog import CatalogFeed
from tailrace.store.write.feeds import REMEMBERED, Beginning

# This many records before the kept ones are read for their marks. A replay repeats the open batch of the pipeline.
_MARKED = 10_000


def beginning(feed: CatalogFeed, first: int, end: int, held: int, grace: float) -> Beginning:
    """Where to begin in a changelog from `first` to `end`; `held` is the first offset of the hold time.

    If any events are kept, listeners get `grace` seconds to register again.
    """
    if feed.retain == "always":
        return Beginning(first, first, first - 1, end - 1)
    kept = min(max(held, first), end)
    start = max(first, kept - (_MARKED if feed.ordered else REMEMBERED))
    return Beginning(first, start, kept - 1, end - 1, grace if kept < end else 0.0)

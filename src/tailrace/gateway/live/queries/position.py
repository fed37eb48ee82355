"""What a position is worth to a query over all partitions of a view, decided without I/O."""

from __future__ import annotations

from tailrace.contracts.position import Position
from tailrace.gateway.catalog import ServedView
from tailrace.gateway.live.positions import Fresh, Later, Reset, Since, of_view, readable
from tailrace.store.read import matches

# The generation of a position that asks for everything: no build has it.
NO_BUILD = 0

_WHY = {
    "clock": "what comes and goes by the clock has no position",
    "horizon": "it is no longer known what has left the query since",
    "break": "the store was rolled back to before the position",
    "ahead": "the store has not come as far as the position",
    "generation": "the position is of another build of the view",
}


def query_entry(text: str | None, view: ServedView) -> Fresh | Since | Later | Reset:
    """How a client that sent this position comes in.

    A partition that the position does not name held nothing at that time: everything in it is newer.
    """
    if not text:
        return Fresh()
    begun = readable(text, view.lineage, "view")
    if isinstance(begun, Position) and begun.generation == NO_BUILD:
        return Reset("query", "the connection ended before everything had been sent")
    position = of_view(text, view)
    if not isinstance(position, Position):
        return position
    if any(partition >= view.partitions for partition in position.offsets):
        return Reset("foreign", f"the position names a partition that the view does not have: it has {view.partitions}")
    return Since({number: position.offsets.get(number, -1) for number in range(view.partitions)})


def refused(reset: matches.NotResumable) -> Reset:
    """What a client is told if the store can't honour its position."""
    return Reset("query", _WHY.get(reset.reason, reset.reason))

"""How a client comes in: what its position is worth to the store, decided without I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tailrace.contracts.position import Position
from tailrace.gateway.catalog import ServedView
from tailrace.store.layout.stored_position import StoredPosition
from tailrace.store.read.reader import KeyRead


@dataclass(frozen=True)
class Fresh:
    """The client has seen nothing, and gets a snapshot."""


@dataclass(frozen=True)
class After:
    """The client has seen everything up to this offset, and gets what is newer."""

    offset: int


@dataclass(frozen=True)
class Since:
    """The client has seen the partitions of a view up to these offsets; -1 means nothing."""

    offsets: Mapping[int, int]


@dataclass(frozen=True)
class Ahead:
    """The client has seen more than the store holds: Redis was lost and is being restored. Wait."""

    offset: int


@dataclass(frozen=True)
class Later:
    """The client has seen a later build than this gateway knows: the catalog is on its way. Wait."""

    generation: int


@dataclass(frozen=True)
class Reset:
    """The position can't be used; the client must drop what it holds and gets a snapshot."""

    reason: str
    message: str


# Stands for a position from a time when rights showed the client only a part.
OTHER_RIGHTS = "other rights"

Entry = Fresh | After | Ahead | Later | Reset


def entry(text: str | None, view: ServedView, partition: int, stored: int, forgotten: int = -1) -> Entry:
    """How a client that sent this position comes in, if the store holds the partition up to `stored`.

    Up to `forgotten`, the store may have forgotten what has gone.
    """
    if not text:
        return Fresh()
    position = of_view(text, view)
    if not isinstance(position, Position):
        return position
    # Without an offset the client is owed everything. But it may hold rows that were sent while the position
    # could claim nothing, so it has to hear of what has gone, too.
    offset = position.offsets.get(partition, -1)
    if offset < forgotten:
        return Reset(
            "forgotten", f"the position is at offset {offset}, what has gone is known from {forgotten} on only"
        )
    return Ahead(offset) if offset > stored else After(offset)


def of_view(text: str, view: ServedView) -> Position | Later | Reset:
    """The position that a text names, if it is one of this build of a view."""
    position = readable(text, view.lineage, "view")
    if isinstance(position, Reset) or position.generation == view.generation:
        return position
    if position.generation > view.generation:
        return Later(position.generation)
    return _of_another(position.generation, view)


def readable(text: str, lineage: str, what: str) -> Position | Reset:
    """The position that a text names, if it is of this view or feed."""
    position = Position.parse(text)
    if position is None:
        return unreadable(text)
    if position.lineage != lineage:
        return Reset("foreign", f"the position belongs to another {what} or to an earlier changelog of this one")
    return position


def entries(
    asked: Mapping[bytes, str | None], view: ServedView, held: Mapping[bytes, KeyRead]
) -> dict[bytes, Fresh | After] | Ahead | Later | Reset:
    """How a client that sent a position for each key comes in: with each key on its own, if all can.

    If one position can't be used, all keys are reset. If one has to wait, all wait. `held` is what a whole store
    holds of each key.
    """
    stored = offsets(view, held)
    judged: dict[tuple[str | None, int, int], Entry] = {}
    found: dict[bytes, Fresh | After] = {}
    waits: Ahead | Later | None = None
    for key, text in asked.items():
        partition = view.partition(key)
        # A key that holds something has forgotten nothing.
        forgotten = held[key].pruned if held[key].row is None else -1
        case = (text, partition, forgotten)
        one = judged.get(case)
        if one is None:
            one = judged[case] = entry(text, view, partition, stored[partition], forgotten)
        if isinstance(one, Reset):
            return one
        if isinstance(one, Ahead | Later):
            waits = waits or one
        else:
            found[key] = one
    return found if waits is None else waits


def since(
    after: str, view: ServedView, generation: int, stored: Sequence[StoredPosition]
) -> Since | Ahead | Later | Reset:
    """What a position is worth to a listing, if the store serves this generation up to `stored`.

    The store knows what has gone from a partition since its horizon and since its restore: compaction may have
    taken older tombstones out of the changelog before the restore read it.
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


def offsets(view: ServedView, held: Mapping[bytes, KeyRead]) -> dict[int, int]:
    """Per partition, the offset up to which the reads of some keys have seen all of these keys."""
    found: dict[int, int] = {}
    for key, one in held.items():
        partition, offset = view.partition(key), one.offset if one.offset is not None else -1
        found[partition] = min(found.get(partition, offset), offset)
    return found


def unreadable(text: str) -> Reset:
    """What a client is told whose position is not a position."""
    if text == OTHER_RIGHTS:
        return Reset(
            "rights", "the position is from while only a part could be seen: what you may see may be another part now"
        )
    return Reset("unreadable", "expected the id of an earlier frame as the position, got something else")


def too_far_ahead(ahead: Ahead | Later, view: ServedView, stored: int) -> Reset:
    """What a client is told if the store did not reach its position in time."""
    if isinstance(ahead, Later):
        return _of_another(ahead.generation, view)
    return Reset("ahead", f"the position is at offset {ahead.offset}, the store holds the view up to {stored} only")


def rebuilt(view: ServedView) -> Reset:
    """What a client is told if its view was built anew while it followed."""
    return Reset("rebuilt", f"the view was built anew: it is now at generation {view.generation}")


def _of_another(generation: int, view: ServedView) -> Reset:
    return Reset("generation", f"the position is of generation {generation}, the view of {view.generation}")

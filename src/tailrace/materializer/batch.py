"""A batch: the records of one partition from one poll, reduced to what the store must see."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tailrace.record import Change, NotAChange, decode_change

RawRecord = tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]] | None, int]


@dataclass(frozen=True)
class Batch:
    """At most one change per key and generation, the one of highest rank, and the offset that the batch leads to.

    Generations are kept apart, because one is served while the next is kept back. `added` are all changes that a
    materializer has added to the changelog.
    """

    changes: list[Change]
    reached: int
    records: int
    refused: list[tuple[int, str]]
    added: list[Change]


def conflate(records: Iterable[RawRecord], stored: int) -> Batch:
    """Reduce records in offset order; those at or below the stored offset are already in the store.

    A record that is no change is refused, with its offset and the reason; it holds up no other.
    Of equal ranks the first stays: a replay brings nothing new.
    """
    newest: dict[tuple[bytes, int], Change] = {}
    added: list[Change] = []
    refused: list[tuple[int, str]] = []
    reached = stored
    count = 0
    for key, value, headers, offset in records:
        if offset <= stored:
            continue
        count += 1
        reached = offset
        try:
            change = decode_change(key, value, headers, offset)
        except NotAChange as error:
            refused.append((offset, str(error)))
            continue
        if change.added:
            added.append(change)
        held = newest.get((change.key, change.generation))
        if held is None or change.rank > held.rank:
            newest[change.key, change.generation] = change
    return Batch(list(newest.values()), reached, count, refused, added)

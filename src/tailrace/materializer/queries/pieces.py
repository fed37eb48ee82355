"""Pieces of a batch: if its changes mean very much for queries, it is applied in several steps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tailrace.contracts.record import Change


def pieces(changes: Sequence[Change], reached: int, most: int) -> Iterator[tuple[Sequence[Change], int]]:
    """The changes of a batch, at most `most` at a time, in the order of offsets, with the offsets that they lead to.

    A key whose earlier change was conflated with one in a later piece is behind until that piece is applied. Whoever
    stops in between reads on after the offset of the last piece, and so gets it.
    """
    if len(changes) <= most:
        yield changes, reached
        return
    ordered = sorted(changes, key=lambda change: change.offset)
    for first in range(0, len(ordered), most):
        found = ordered[first : first + most]
        yield found, reached if first + most >= len(ordered) else found[-1].offset

"""A batch taken in pieces."""

from __future__ import annotations

from tailrace.contracts.record import Change
from tailrace.materializer.queries.pieces import pieces


def change(key: bytes, offset: int) -> Change:
    return Change(key, b"{}", 1, 1, 0, offset)


def test_pieces_are_all_changes_in_the_order_of_offsets_and_lead_to_where_the_batch_does() -> None:
    a, b, c = change(b"a", 2), change(b"b", 1), change(b"c", 3)
    assert list(pieces([a, b, c], 9, 2)) == [([b, a], 2), ([c], 9)]
    assert list(pieces([a, b, c], 9, 1)) == [([b], 1), ([a], 2), ([c], 9)]


def test_a_batch_that_is_small_enough_stays_as_it_is() -> None:
    a, b = change(b"a", 2), change(b"b", 1)
    assert list(pieces([a, b], 9, 2)) == [([a, b], 9)]
    assert list(pieces([], 9, 2)) == [([], 9)]

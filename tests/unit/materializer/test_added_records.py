"""Mending: which rows an addition to the changelog stands behind."""

from __future__ import annotations

from tailrace.contracts.record import Change
from tailrace.materializer.views.added_records import again, covered


def change(version: int, offset: int, value: bytes | None = b"{}", generation: int = 1) -> Change:
    return Change(b"k", value, generation, version, 0, offset)


def tombstone(version: int, offset: int, generation: int = 1) -> dict[bytes, Change]:
    return {b"k": Change(b"k", None, generation, version, 0, offset, added=True)}


def test_a_row_of_higher_rank_before_a_tombstone_is_covered() -> None:
    assert covered(tombstone(0, 9), [change(5, 8)]) == [change(5, 8)]
    assert covered(tombstone(5, 9), [change(5, 8)]) == [change(5, 8)], "of one version, the row stands above"
    assert covered(tombstone(7, 9), [change(1, 8, generation=2)]) == [change(1, 8, generation=2)]


def test_a_row_that_comes_later_or_ranks_lower_is_not() -> None:
    assert covered(tombstone(0, 9), [change(5, 10)]) == []
    assert covered(tombstone(6, 9), [change(5, 8)]) == []
    assert covered(tombstone(1, 9, generation=2), [change(5, 8)]) == []
    assert covered(tombstone(0, 9), [change(4, 8), change(5, 10)]) == [], "the highest comes later"
    assert covered(tombstone(0, 9), [change(5, 8, None)]) == [], "gone is gone"
    assert covered({}, [change(5, 8)]) == []


def test_a_row_is_added_again_as_it_was() -> None:
    row = Change(b"k", b"{}", 3, 4, 5, 6, expires=7)
    assert again(row) == Change(b"k", b"{}", 3, 4, 5, -1, expires=7, added=True)
    assert again(row).rank == row.rank

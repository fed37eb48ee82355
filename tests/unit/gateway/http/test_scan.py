"""The scan of a listing, over a store that lives in memory and is as contrary as Redis may be."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.contracts.catalog import Column
from tailrace.gateway.catalog import ServedView
from tailrace.gateway.http.listings.page import ScanPlace
from tailrace.gateway.http.listings.scan import ListingPage, Moved, choose, scan
from tailrace.gateway.live.positions import Ahead, Later, Reset, Since, since
from tailrace.store.layout.row import StoredRow
from tailrace.store.layout.stored_position import StoredPosition
from tailrace.store.read.scans import ScanBatch

VIEW = ServedView("orders", "0123abcd", 1, 2, (Column("id", "bigint"),))


def row(offset: int, value: bytes | None = b"{}") -> StoredRow:
    return StoredRow(1, offset + 1, offset, 0, value)


class RowScanner:
    """Gives rows in batches whose size it chooses itself; a restart changes their order."""

    def __init__(
        self, rows: Mapping[int, dict[bytes, StoredRow]], size: int, gone: Mapping[int, dict[bytes, StoredRow]]
    ) -> None:
        self.rows, self.gone, self.size = rows, gone, size
        self.run = "first"
        self.generation = 1
        self.batches = 0

    async def batch(
        self,
        view: str,  # noqa: ARG002
        partition: int,
        lineage: str,  # noqa: ARG002
        *,
        gone: bool = False,
        cursor: int = 0,
        count: int = 100,  # noqa: ARG002
    ) -> ScanBatch:
        self.batches += 1
        held = sorted((self.gone if gone else self.rows).get(partition, {}).items(), reverse=self.run != "first")
        following = cursor + self.size
        stored = StoredPosition(1000, -1, self.generation)
        return ScanBatch(dict(held[cursor:following]), following if following < len(held) else 0, stored)

    async def server(self, view: str, partition: int) -> str:  # noqa: ARG002
        return self.run


def pages(source: RowScanner, place: ScanPlace | None, limit: int) -> list[ListingPage]:
    found = []
    while place is not None:
        found.append(asyncio.run(scan(source, VIEW, place, limit, None)))
        place = found[-1].place
    return found


def keys(found: list[ListingPage]) -> list[bytes]:
    return sorted(key for one in found for key in one.rows)


@settings(deadline=None, max_examples=40)
@given(st.sets(st.integers(0, 99)), st.integers(1, 30), st.integers(1, 30))
def test_every_row_is_on_one_page_whatever_the_size_of_batches_and_pages(
    numbers: set[int], size: int, limit: int
) -> None:
    rows = {p: {b"%d" % n: row(n) for n in numbers if n % 2 == p} for p in (0, 1)}
    found = pages(RowScanner(rows, size, {}), ScanPlace(1, {0: 1000, 1: 1000}), limit)
    assert keys(found) == sorted(b"%d" % n for n in numbers)
    assert all(len(one) <= limit for one in found)


def test_a_batch_that_was_cut_goes_on_where_it_was_even_if_it_has_changed() -> None:
    rows = {0: {b"%d" % n: row(n) for n in range(10)}}
    source = RowScanner(rows, 10, {})
    first = asyncio.run(scan(source, VIEW, ScanPlace(1, {0: 1000, 1: 1000}), 4, None))
    assert first.place is not None and len(first.place.sent) == 4
    rows[0][b"00"] = row(50)
    del rows[0][b"9"]
    later = pages(source, first.place, 4)
    assert keys([first, *later]) == sorted([b"00", *(b"%d" % n for n in range(9))])


def test_after_a_restart_of_the_server_the_partition_is_scanned_again() -> None:
    source = RowScanner({0: {b"%03d" % n: row(n) for n in range(100)}}, 10, {})
    first = asyncio.run(scan(source, VIEW, ScanPlace(1, {0: 1000, 1: 1000}), 25, None))
    source.run = "second"
    assert set(keys([first, *pages(source, first.place, 25)])) == {b"%03d" % n for n in range(100)}


def test_a_partition_without_news_is_not_read() -> None:
    source = RowScanner({0: {b"a": row(5)}, 1: {b"b": row(7)}}, 10, {0: {b"c": row(6, None)}, 1: {}})
    (found,) = pages(source, ScanPlace(1, {0: 6, 1: 7}, {0: 5, 1: 7}), 10)
    assert (list(found.rows), list(found.gone), source.batches) == ([], [b"c"], 2)
    (idle,) = pages(source, ScanPlace(1, {0: 6, 1: 7}, {0: 6, 1: 7}), 10)
    assert (len(idle), source.batches) == (0, 2)


def test_another_build_ends_the_scan() -> None:
    source = RowScanner({0: {b"a": row(1)}}, 10, {})
    source.generation = 2
    with pytest.raises(Moved):
        pages(source, ScanPlace(1, {0: 1, 1: 1}), 10)


def test_who_has_seen_nothing_of_a_partition_holds_nothing_that_could_be_gone() -> None:
    rows = {b"new": row(9), b"seen": row(3), b"other": row(8, b"no"), b"gone": row(7, None)}
    matches = b"{}".__eq__
    assert choose(rows, ScanPlace(1, {0: 9}, {0: 5}), matches) == {b"new": False, b"other": True, b"gone": True}
    assert choose(rows, ScanPlace(1, {0: 9}, {}), matches) == {b"new": False, b"seen": False}
    assert choose(rows, ScanPlace(1, {0: 9}), matches) == {b"new": False, b"seen": False}


@pytest.mark.parametrize(
    ("after", "expected"),
    [
        ("0123abcd.1.0-20.1-9", Since({0: 20, 1: 9})),
        ("0123abcd.1.0-20", Since({0: 20, 1: -1})),
        ("0123abcd.1.0-20.1-10", Ahead(10)),
        ("0123abcd.2.0-20.1-9", Later(2)),
    ],
)
def test_a_position_is_worth_what_the_store_still_knows(after: str, expected: object) -> None:
    assert since(after, VIEW, 1, [StoredPosition(20, 3, 1), StoredPosition(9, -1, 1)]) == expected


@pytest.mark.parametrize(
    ("stored", "reason"),
    [
        (StoredPosition(20, 13, 1), "forgotten"),
        (StoredPosition(20, 3, 1, pruned=13), "forgotten"),
        (StoredPosition(20, 12, 1, pruned=12), ""),
    ],
)
def test_what_went_before_a_restore_or_the_horizon_is_not_known(stored: StoredPosition, reason: str) -> None:
    come = since("0123abcd.1.0-12", VIEW, 1, [stored, StoredPosition(9, -1, 1)])
    assert (come.reason if isinstance(come, Reset) else "") == reason

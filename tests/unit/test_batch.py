"""A polled batch is reduced to the newest change per key and generation, and loses nothing by it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tailrace.materializer.batch import RawRecord, conflate


def raw(offset: int, key: bytes, version: int, generation: int = 1) -> RawRecord:
    headers: list[tuple[str, bytes | None]] = [("g", b"%d" % generation), ("v", b"%d" % version), ("t", b"0")]
    return (key, b"{}", headers, offset)


@given(
    st.lists(st.tuples(st.sampled_from([b"a", b"b", b"c"]), st.integers(1, 3), st.integers(0, 9))),
    st.integers(-1, 10),
)
def test_applying_the_reduced_batch_gives_the_same_rows_as_applying_every_record(
    history: list[tuple[bytes, int, int]], stored: int
) -> None:
    records = [raw(offset, key, version, generation) for offset, (key, generation, version) in enumerate(history)]
    rows: dict[tuple[bytes, int], int] = {}
    for offset, (key, generation, version) in enumerate(history):
        if offset > stored:
            rows[key, generation] = max(version, rows.get((key, generation), -1))
    batch = conflate(records, stored)
    assert {(change.key, change.generation): change.version for change in batch.changes} == rows
    assert batch.reached == max(stored, len(history) - 1)


def test_of_equal_versions_the_first_stays() -> None:
    (change,) = conflate([raw(5, b"a", 3), raw(6, b"a", 3)], 4).changes
    assert change.offset == 5


def test_a_record_that_is_no_change_is_refused_and_the_batch_moves_past_it() -> None:
    batch = conflate([(b"a", b"{}", None, 7), raw(8, b"b", 1), (None, b"x", None, 9)], 6)
    assert [refused.offset for refused in batch.refused] == [7, 9]
    assert [change.key for change in batch.changes] == [b"b"] and batch.reached == 9


def test_what_a_materializer_has_added_is_told_apart() -> None:
    key, value, headers, offset = raw(5, b"a", 3)
    assert headers is not None
    batch = conflate([(key, value, [*headers, ("a", b"1")], offset), raw(6, b"a", 4)], 4)
    assert [(change.offset, change.added) for change in batch.added] == [(5, True)]
    assert [(change.offset, change.added) for change in batch.changes] == [(6, False)]

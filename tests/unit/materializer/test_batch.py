"""A polled batch is reduced to the newest change per key and generation, and loses nothing by it."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from tailrace.contracts.record import MAX_NUMBER, NotAChange, decode_change, too_long
from tailrace.materializer.records import RawRecord, cut
from tailrace.materializer.views.batch import conflate


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


@given(
    st.lists(st.tuples(st.sampled_from([b"a", b"b", b"c", b"d"]), st.integers(0, 9)), min_size=1),
    st.integers(1, 3),
    st.integers(0, 5),
)
def test_who_stops_after_any_piece_of_a_batch_and_reads_on_has_the_same_rows(
    history: list[tuple[bytes, int]], most: int, applied: int
) -> None:
    records = [raw(offset, key, version) for offset, (key, version) in enumerate(history)]
    batch = conflate(records, -1)
    pieces = list(batch.pieces(most))
    assert all(len(piece.packed) <= most for piece in pieces)
    assert [change for piece in pieces for change in piece.changes] == batch.changes
    assert (pieces[-1].reached, sum(piece.records for piece in pieces)) == (batch.reached, batch.records)
    stored, rows = -1, dict[bytes, int]()
    again = conflate(records, pieces[min(applied, len(pieces)) - 1].reached) if applied else batch
    for piece in (*pieces[:applied], again):
        assert piece.reached >= stored
        stored = piece.reached
        for change in piece.changes:
            rows[change.key] = max(change.version, rows.get(change.key, -1))
    assert rows == {change.key: change.version for change in batch.changes}


def test_a_piece_keeps_when_its_rows_expire() -> None:
    headers: list[tuple[str, bytes | None]] = [("g", b"1"), ("v", b"1"), ("t", b"0")]
    expiring: list[tuple[str, bytes | None]] = [*headers, ("x", b"7")]
    records: list[RawRecord] = [(b"a", b"{}", headers, 0), (b"b", b"{}", expiring, 1), (b"c", b"{}", expiring, 2)]
    pieces = list(conflate(records, -1).pieces(1))
    assert [[change.expires for change in piece.changes] for piece in pieces] == [[None], [7], [7]]


numbers = st.sampled_from(
    [b"0", b"1", b"7", b"07", b"", b"-1", b" 1", b"1_0", b"9" * 18, b"9" * 19, b"%d" % MAX_NUMBER]
)
header_lists = st.one_of(
    st.none(),
    st.builds(
        lambda g, v, t, more: [("g", g), ("v", v), ("t", t), *more],
        numbers,
        numbers,
        numbers,
        st.sampled_from([[], [("x", b"5")], [("x", b"x")], [("a", b"1")], [("x", b"5"), ("a", b"1")], [("x", None)]]),
    ),
    st.lists(
        st.tuples(st.sampled_from(["g", "v", "t", "x", "a", "o", "z"]), st.one_of(st.none(), numbers)), max_size=6
    ),
)


@given(st.sampled_from([None, b"", b"k"]), st.sampled_from([None, b"", b"{}"]), header_lists)
def test_headers_in_any_shape_are_read_as_decode_change_reads_them(
    key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes | None]] | None
) -> None:
    batch = conflate([(key, value, headers, 3)], -1)
    change, reason = None, None
    try:
        change = decode_change(key, value, headers, 3)
    except NotAChange as error:
        reason = str(error)
    if change is not None and change.oversize is not None:
        reason = too_long(change.oversize)
    assert [refused.reason for refused in batch.refused] == ([reason] if reason is not None else [])
    seen = replace(change, value=value or None, added=False, oversize=None) if change is not None else None
    assert batch.changes == ([seen] if seen is not None else [])
    assert batch.added == ([change] if change is not None and change.added else [])


def test_large_values_are_cut_into_batches_in_their_order() -> None:
    messages = [b"x" * size for size in (3, 3, 5, 20, 1, 1)]
    assert list(cut(messages, 8)) == [messages[:2], messages[2:3], messages[3:4], messages[4:]]
    assert list(cut(messages, 100)) == [messages]


def test_of_equal_versions_the_first_stays() -> None:
    (change,) = conflate([raw(5, b"a", 3), raw(6, b"a", 3)], 4).changes
    assert change.offset == 5


def test_a_record_that_is_no_change_is_refused_and_the_batch_moves_past_it() -> None:
    batch = conflate([(b"a", b"{}", None, 7), raw(8, b"b", 1), (None, b"x", None, 9)], 6)
    assert [refused.offset for refused in batch.refused] == [7, 9]
    assert [change.key for change in batch.changes] == [b"b"] and batch.reached == 9


def test_a_key_whose_row_is_too_long_holds_none_and_the_newest_of_such_records_is_refused() -> None:
    def oversize(offset: int, key: bytes, version: int) -> RawRecord:
        _, _, headers, _ = raw(offset, key, version)
        return (key, None, [*(headers or []), ("o", b"9000000")], offset)

    batch = conflate([oversize(5, b"a", 1), raw(6, b"b", 1), oversize(7, b"a", 2), oversize(8, b"b", 2)], 4)
    assert [(change.key, change.value) for change in batch.changes] == [(b"a", None), (b"b", None)]
    assert [refused.offset for refused in batch.refused] == [7, 8] and "9000000 bytes" in batch.refused[0].reason
    shorter_again = conflate([oversize(5, b"a", 1), raw(6, b"a", 2)], 4)
    assert shorter_again.refused == [] and [change.value for change in shorter_again.changes] == [b"{}"]


def test_what_a_materializer_has_added_is_told_apart() -> None:
    key, value, headers, offset = raw(5, b"a", 3)
    assert headers is not None
    batch = conflate([(key, value, [*headers, ("a", b"1")], offset), raw(6, b"a", 4)], 4)
    assert [(change.offset, change.added) for change in batch.added] == [(5, True)]
    assert [(change.offset, change.added) for change in batch.changes] == [(6, False)]

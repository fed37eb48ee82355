"""The changelog record: read exactly, or refused with the reason."""

from __future__ import annotations

import pytest

from tailrace.contracts.record import Change, NotAChange, decode_change

HEADERS: list[tuple[str, bytes | None]] = [("g", b"2"), ("v", b"9223372036854775806"), ("t", b"1700000000000")]


def test_a_change_is_read_as_it_was_written() -> None:
    change = decode_change(b"362", b'{"rating":9.0}', HEADERS, 17)
    assert change == Change(b"362", b'{"rating":9.0}', 2, 2**63 - 2, 1_700_000_000_000, 17)


def test_a_null_value_is_a_change_too() -> None:
    assert decode_change(b"362", None, HEADERS, 17).value is None


def test_a_later_generation_ranks_above_any_version_of_an_earlier_one() -> None:
    old = Change(b"k", b"{}", 1, 10**9, 0, 5)
    new = Change(b"k", b"{}", 2, 1, 0, 6)
    assert new.rank > old.rank


def test_of_one_version_a_row_ranks_above_a_tombstone() -> None:
    assert Change(b"k", b"{}", 1, 7, 0, 5).rank > Change(b"k", None, 1, 7, 0, 6).rank


@pytest.mark.parametrize(
    "change",
    [
        Change(b"k", b"{}", 1, 2, 3, 4),
        Change(b"k", b"{}", 1, 2, 3, 4, expires=5),
        Change(b"k", None, 1, 2, 3, 4, added=True),
        Change(b"k", None, 1, 2, 3, 4, expires=5, oversize=9_000_000),
        Change(b"k", b"{}", 2**63 - 2, 0, 0, 4, expires=2**63 - 2, added=True),
    ],
)
def test_a_change_is_read_from_its_own_headers(change: Change) -> None:
    assert decode_change(change.key, change.value, change.headers(), change.offset) == change


@pytest.mark.parametrize(
    ("headers", "says"),
    [
        (None, "'g'"),
        ([("g", b"1"), ("v", b"1")], "'t'"),
        ([("g", b"1"), ("v", b"-1"), ("t", b"0")], "'v'"),
        ([("g", b"1"), ("v", b"9223372036854775807"), ("t", b"0")], "'v'"),
        ([("g", b"1"), ("v", None), ("t", b"0")], "'v'"),
        ([("g", "\u0661".encode()), ("v", b"1"), ("t", b"0")], "'g'"),
    ],
)
def test_a_record_of_another_kind_is_refused_by_the_header_it_lacks(
    headers: list[tuple[str, bytes | None]] | None, says: str
) -> None:
    with pytest.raises(NotAChange, match=says):
        decode_change(b"k", b"{}", headers, 0)


def test_a_record_without_a_key_is_refused() -> None:
    with pytest.raises(NotAChange, match="key"):
        decode_change(None, b"{}", HEADERS, 0)

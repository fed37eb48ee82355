"""The position: what it spells, and what it refuses to be."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.contracts.position import Position, lineage

positions = st.builds(
    Position,
    lineage=st.from_regex(r"[0-9a-f]{8}", fullmatch=True).filter(str.isascii),
    generation=st.integers(0, 999_999_999),
    offsets=st.dictionaries(st.integers(0, 999_999), st.integers(0, 2**63 - 1), max_size=8),
    change=st.integers(0, 999_999_999),
)


@given(positions)
def test_a_position_survives_being_written_and_read(position: Position) -> None:
    assert Position.parse(str(position)) == position


@given(positions)
def test_a_position_fits_in_a_header_an_etag_and_a_url_as_it_is(position: Position) -> None:
    assert re.fullmatch(r"[0-9a-f.\-]+", str(position))


@given(st.text())
def test_any_text_is_a_position_or_nothing(text: str) -> None:
    parsed = Position.parse(text)
    assert parsed is None or set(parsed.offsets.values()) >= set()


@pytest.mark.parametrize(
    "text",
    [
        *("", "1", "abcdefgh.1.0-1", "0123abcd", "0123abcd.1.0", "0123abcd.1.0-1.0-2", "0123abcd.1.0--1", "0123ABCD.1"),
        *("0123abcd.1.c0", "0123abcd.1.c1.0-1", "0123abcd.1.c1.c2", "0123abcd.1.c"),
    ],
)
def test_what_only_looks_like_a_position_is_none(text: str) -> None:
    assert Position.parse(text) is None


def test_lineages_tell_apps_views_and_remade_topics_apart() -> None:
    found = {lineage(a, v, t) for a in ("m", "n") for v in ("x", "y") for t in ("1", "2")}
    assert len(found) == 8

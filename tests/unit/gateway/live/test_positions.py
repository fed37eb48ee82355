"""Resume: a position gives the exact suffix, a wait, or a reset; never a guess."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.contracts.catalog import Column
from tailrace.gateway.catalog import ServedView
from tailrace.gateway.live.positions import After, Ahead, Fresh, Later, Reset, entry, rebuilt, too_far_ahead

VIEW = ServedView("averages", "0123abcd", 2, 4, (Column("movie_id", "bigint"),))


@pytest.mark.parametrize("text", [None, ""])
def test_no_position_gets_a_snapshot(text: str | None) -> None:
    assert entry(text, VIEW, 3, 10) == Fresh()


def test_a_position_the_store_has_reached_gets_what_is_newer() -> None:
    assert entry("0123abcd.2.3-7", VIEW, 3, 10) == After(7)
    assert entry("0123abcd.2.3-10", VIEW, 3, 10) == After(10)
    assert entry("0123abcd.2.0-99.3-7", VIEW, 3, 10) == After(7)


def test_a_position_ahead_of_the_store_waits() -> None:
    assert entry("0123abcd.2.3-11", VIEW, 3, 10) == Ahead(11)
    assert entry("0123abcd.2.3-0", VIEW, 3, -1) == Ahead(0)


def test_a_position_from_before_something_was_forgotten_is_reset() -> None:
    found = entry("0123abcd.2.3-7", VIEW, 3, 10, 8)
    assert isinstance(found, Reset) and found.reason == "forgotten"
    assert entry("0123abcd.2.3-8", VIEW, 3, 10, 8) == After(8)
    assert entry("0123abcd.2.3-11", VIEW, 3, 10, 8) == Ahead(11)
    assert isinstance(entry("0123abcd.2", VIEW, 3, 10, 8), Reset)


@pytest.mark.parametrize("text", ["0123abcd.2", "0123abcd.2.1-7"])
def test_a_position_that_names_no_offset_of_the_partition_gets_everything_and_hears_of_what_has_gone(text: str) -> None:
    assert entry(text, VIEW, 3, 10) == After(-1)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("nonsense", "unreadable"),
        ("0123abcd.2.3-7 ", "unreadable"),
        ("0123abcd.2.3--1", "unreadable"),
        ("0123abcd.2.3-7.3-8", "unreadable"),
        ("ffffffff.2.3-7", "foreign"),
        ("0123abcd.1.3-7", "generation"),
    ],
)
def test_a_position_that_cannot_be_used_resets_and_says_why(text: str, reason: str) -> None:
    found = entry(text, VIEW, 3, 10)
    assert isinstance(found, Reset) and found.reason == reason and found.message


@given(st.text())
def test_whatever_a_client_sends_it_is_judged(text: str) -> None:
    assert isinstance(entry(text, VIEW, 3, 10), Fresh | Reset)


def test_a_position_of_a_later_build_waits_for_the_catalog() -> None:
    assert entry("0123abcd.3.3-7", VIEW, 3, 10) == Later(3)
    assert entry("0123abcd.3", VIEW, 3, 10) == Later(3)


def test_a_store_that_never_comes_and_a_rebuilt_view_are_reasons_of_their_own() -> None:
    assert too_far_ahead(Ahead(11), VIEW, 10).reason == "ahead"
    assert too_far_ahead(Later(3), VIEW, 10).reason == "generation"
    assert rebuilt(VIEW).reason == "rebuilt"

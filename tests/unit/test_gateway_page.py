"""Places in a listing, as clients hold them."""

from __future__ import annotations

import base64
import json
from hashlib import sha256
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.gateway.page import Place, digests

PLACE = Place(3, {0: 17, 1: -1}, {0: 5}, 1, True, 2**63, "ab12cd34", digests([b"a", b"b"]))


def test_a_place_is_found_again_in_its_own_listing_only() -> None:
    text = PLACE.encode("orders")
    assert Place.decode(text, "orders", 2) == PLACE
    assert Place.decode(text, "others", 2) is None
    assert Place.decode(text, "orders", 1) is None, "a partition that the view does not have"
    assert text.isascii() and not set(text) & set("+/=&?#")


@given(st.data())
def test_a_mangled_place_is_none(data: st.DataObject) -> None:
    text = PLACE.encode("orders")
    at = data.draw(st.integers(0, len(text) - 2))
    letter = data.draw(st.sampled_from("ABCxyz019-_"))
    mangled = text[:at] + letter + text[at + 1 :]
    assert Place.decode(mangled, "orders", 2) in (None, PLACE)
    assert mangled == text or Place.decode(mangled, "orders", 2) is None


@given(st.text())
def test_what_is_no_place_is_none(text: str) -> None:
    assert Place.decode(text, "orders", 2) is None


@pytest.mark.parametrize(
    "held",
    [
        [],
        [1, [[0, 1], [1, 1]], None, 0, False, -1, "", ""],
        [1, [[0, 1], [1, 1]], None, 2, False, 0, "", ""],
        [1, [[0, 1]], None, 0, False, 0, "", ""],
        [1, [[0, 1], [1, 1]], [[7, 1]], 0, False, 0, "", ""],
        [1, [[0, "x"], [1, 1]], None, 0, False, 0, "", ""],
        [1, [[0, 1], [1, 1]], None, 0, False, 2**64, "", ""],
        [1, [[0, 1], [1, 1]], None, 0, False, 0, "", "!"],
        {"a": 1},
    ],
)
def test_a_place_that_somebody_made_up_with_a_right_check_holds_what_it_must(held: Any) -> None:
    payload = json.dumps(held).encode()
    check = sha256(b"orders\0" + payload).digest()[:8]
    assert Place.decode(base64.urlsafe_b64encode(check + payload).rstrip(b"=").decode(), "orders", 2) is None

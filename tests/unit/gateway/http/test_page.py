"""Places in a listing, as clients hold them."""

from __future__ import annotations

import base64
import hmac
import json
from hashlib import sha256
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.gateway.http.listings.page import ScanPlace, digests, key_number
from tailrace.store.read.page_keys import PageKey

KEY = PageKey(20_000, b"k" * 32)
PLACE = ScanPlace(3, {0: 17, 1: -1}, {0: 5}, 1, True, 2**63, "ab12cd34", digests([b"a", b"b"]))


def test_a_place_is_found_again_in_its_own_listing_only() -> None:
    text = PLACE.encode("orders", KEY)
    assert ScanPlace.decode(text, "orders", 2, KEY) == PLACE
    assert ScanPlace.decode(text, "others", 2, KEY) is None
    assert ScanPlace.decode(text, "orders", 1, KEY) is None, "a partition that the view does not have"
    assert text.isascii() and not set(text) & set("+/=&?#")


@given(st.data())
def test_a_mangled_place_is_none(data: st.DataObject) -> None:
    text = PLACE.encode("orders", KEY)
    at = data.draw(st.integers(0, len(text) - 2))
    letter = data.draw(st.sampled_from("ABCxyz019-_"))
    mangled = text[:at] + letter + text[at + 1 :]
    assert ScanPlace.decode(mangled, "orders", 2, KEY) in (None, PLACE)
    assert mangled == text or ScanPlace.decode(mangled, "orders", 2, KEY) is None


@given(st.text())
def test_what_is_no_place_is_none(text: str) -> None:
    assert ScanPlace.decode(text, "orders", 2, KEY) is None


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
def test_a_place_that_was_signed_holds_what_it_must(held: Any) -> None:
    payload = json.dumps(held).encode()
    signature = hmac.digest(KEY.secret, sha256(b"orders").digest() + payload, "sha256")[:16]
    text = base64.urlsafe_b64encode(b"\0\0\x4e\x20" + signature + payload).rstrip(b"=").decode()
    assert key_number(text) == KEY.number
    assert ScanPlace.decode(text, "orders", 2, KEY) is None


def test_a_place_is_known_by_the_key_that_it_was_signed_with() -> None:
    text = PLACE.encode("orders", KEY)
    assert key_number(text) == KEY.number
    assert ScanPlace.decode(text, "orders", 2, PageKey(KEY.number, b"x" * 32)) is None
    for other in ("", "-", "A" * 26, "é", "\ud800"):
        assert key_number(other) is None

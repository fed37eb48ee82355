"""What clients say on a WebSocket: a request, or an error that says what was expected, whatever comes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.gateway.live.requests import (
    Auth,
    FollowFeed,
    FollowKeys,
    FollowQuery,
    FollowStream,
    NotARequest,
    Ping,
    Unsubscribe,
    read,
)

SUBSCRIPTION = "unreadable subscription"
ID = "an id: text of 1 to 64 characters"
ONE_OF = "one of view, feed and stream"
NOT_BOTH = "keys or where, not both"
KEYS = "an array of at least one key, each as text"
POSITIONS = "an object of a position, as text, per key"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            '{"type":"subscribe","id":"a","view":"v","keys":["1","2","1"],"positions":{"1":"p"}}',
            FollowKeys("a", "v", ("1", "2"), None, {"1": "p"}),
        ),
        ('{"type":"subscribe","id":"a","view":"v","keys":[""],"position":"p"}', FollowKeys("a", "v", ("",), "p")),
        ('{"type":"subscribe","id":"b","view":"v","where":"x","position":"p"}', FollowQuery("b", "v", "x", "p")),
        ('{"type":"subscribe","id":"c","view":"v","later":"unknown"}', FollowQuery("c", "v")),
        ('{"type":"subscribe","id":"c","view":"v","keys":null,"positions":5,"\\ud800":1}', FollowQuery("c", "v")),
        ('{"type":"subscribe","id":"d","feed":"f","client":"c7"}', FollowFeed("d", "f", "c7")),
        ('{"type":"subscribe","id":"e","stream":"s-7f3a"}', FollowStream("e", "s-7f3a")),
        ('{"type":"unsubscribe","id":"a"}', Unsubscribe("a")),
        ('{"type":"auth","token":"secret"}', Auth("secret")),
        ('{"type":"ping"}', Ping()),
    ],
)
def test_a_message_is_the_request_that_it_spells(text: str, expected: object) -> None:
    assert read(text) == expected


def test_a_token_is_never_shown() -> None:
    assert "secret" not in repr(read('{"type":"auth","token":"secret"}'))
    with pytest.raises(NotARequest) as found:
        read('{"type":"auth","token":["secret"]}')
    assert "secret" not in json.dumps(found.value.body)


@pytest.mark.parametrize(
    ("text", "error", "expected", "got", "id"),
    [
        ("[]", "unreadable message", "a JSON object", "[]", None),
        ('{"type":"dance","id":"a"}', "unknown message", "a type: subscribe, unsubscribe, auth, ping", '"dance"', "a"),
        ('{"type":"unsubscribe"}', "unreadable id", ID, "null", None),
        ('{"type":"subscribe","id":"a"}', SUBSCRIPTION, ONE_OF, "none of them", "a"),
        ('{"type":"subscribe","view":"v","feed":"f"}', "unreadable id", ID, "null", None),
        ('{"type":"subscribe","id":"a","view":"v","feed":"f"}', SUBSCRIPTION, ONE_OF, "view, feed", "a"),
        ('{"type":"subscribe","id":"a","view":"v","keys":[],"where":"w"}', SUBSCRIPTION, NOT_BOTH, "both", "a"),
        ('{"type":"subscribe","id":"a","view":"\\ud800"}', SUBSCRIPTION, "view as text", '"\\ud800"', "a"),
        ('{"type":"subscribe","id":"a","feed":"f"}', SUBSCRIPTION, "client as text", "null", "a"),
        ('{"type":"subscribe","id":"a","view":"v","keys":["\\ud800"]}', "unreadable keys", KEYS, '["\\ud800"]', "a"),
        ('{"type":"subscribe","id":"a","stream":"s","positions":[]}', "unreadable positions", POSITIONS, "[]", "a"),
        ('{"type":"auth","token":"","id":"a"}', "unreadable token", "a token as text", "str", None),
    ],
)
def test_what_is_no_request_says_what_was_expected(
    text: str, error: str, expected: str, got: str, id: str | None
) -> None:
    with pytest.raises(NotARequest) as found:
        read(text)
    body = found.value.body
    assert (body["error"], body["expected"], body["got"], found.value.id) == (error, expected, got, id)


leaves = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.just("\ud800"))
values = st.recursive(leaves, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=5)
names = st.sampled_from(["id", "view", "keys", "where", "feed", "client", "stream", "position", "positions", "token"])
almost = st.builds(
    lambda kind, fields: json.dumps({"type": kind, **fields}),
    st.sampled_from(["subscribe", "unsubscribe", "auth", "ping", "other", None]),
    st.dictionaries(names, values | st.text(min_size=1, max_size=8) | st.lists(st.text(), max_size=3)),
)


@given(almost | st.text() | st.builds(json.dumps, values))
def test_whatever_comes_is_a_request_or_an_error_that_can_be_sent(text: str) -> None:
    found: Any
    try:
        found = read(text)
    except NotARequest as error:
        found = error
    if isinstance(found, NotARequest):
        assert {"error", "expected", "got", "remedy"} <= set(found.body)
        json.dumps(found.body, ensure_ascii=False).encode()
        assert found.id is None or 1 <= len(found.id) <= 64
        return
    for name in ("id", "view", "where", "feed", "client", "stream", "position", "token"):
        assert isinstance(getattr(found, name, ""), str | None)
        (getattr(found, name, "") or "").encode()
    for key, position in getattr(found, "positions", {}).items():
        assert key.encode() is not None and position.encode() is not None

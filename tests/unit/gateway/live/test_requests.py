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

"""The records of the commands topic."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.contracts.commands import Command, NotACommand, Stream, decode_command

STREAM = Stream("s1", "orders", None, "status = 'open'", False, 1_790_000_000_000)

streams = st.builds(
    Stream,
    id=st.text(min_size=1),
    view=st.text(),
    keys=st.none() | st.lists(st.text()).map(tuple),
    where=st.none() | st.text(),
    begun=st.booleans(),
    expires=st.integers(0, 253_402_300_799_999),
)


@given(streams)
def test_a_record_holds_the_whole_stream(stream: Stream) -> None:
    command = Command("open", stream)
    assert decode_command(stream.id, command.encode()) == command


def test_the_record_is_compact_json_with_a_format() -> None:
    assert Command("begin", STREAM).encode() == (
        b'{"format":1,"command":"begin","stream":{"id":"s1","view":"orders","keys":null,'
        b'"where":"status = \'open\'","begun":false,"expires":1790000000000,"ttl":60}}'
    )


def test_what_a_newer_gateway_adds_is_passed_over() -> None:
    found = json.loads(Command("open", STREAM).encode())
    found["reason"] = found["stream"]["color"] = "new"
    found["command"] = "suspend"
    assert decode_command("s1", json.dumps(found).encode()) == Command("suspend", STREAM)


def changed(**parts: Any) -> bytes:
    found = json.loads(Command("open", STREAM).encode())
    found["stream"].update(parts)
    return json.dumps(found).encode()


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (b"\xff{", "expected JSON"),
        (b"[]", "format 1"),
        (b'{"format":2}', "got 2: update this process"),
        (b'{"format":1}', "`command` as one of open"),
        (b'{"format":1,"command":"open"}', "`stream` as an object"),
        (changed(view=None), "`view` of the stream as text"),
        (changed(where=5), "`where` of the stream as text"),
        (changed(begun=1), "`begun` of the stream as true or false"),
        (changed(expires=True), "`expires` of the stream as a whole number"),
        (changed(expires="soon"), "got 'soon'"),
        (changed(keys="k"), "`keys` of the stream as a list"),
        (changed(keys=[1]), "`keys` of the stream as a list"),
        (changed(id="s2"), "the record key to be the stream's id 's2', got 's1'"),
    ],
)
def test_a_record_of_another_kind_is_refused_with_the_reason(value: bytes, says: str) -> None:
    with pytest.raises(NotACommand) as refused:
        decode_command("s1", value)
    assert says in str(refused.value)


def test_a_whole_view_is_the_query_that_is_true_of_every_row() -> None:
    assert Stream("s", "v", None, None, True, 0).query == "true"
    assert Stream("s", "v", ("k",), None, True, 0).query is None
    assert Stream("s", "v", ("k",), "n > 1", True, 0).query == "n > 1"

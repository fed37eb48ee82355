"""Frames: what goes out is exactly what the store holds, with a position to resume from."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway_model import messages
from tailrace.contracts.catalog import Column
from tailrace.contracts.position import Position
from tailrace.gateway.catalog import ServedView
from tailrace.gateway.connection.close_reasons import SHUTDOWN
from tailrace.gateway.frames.frame import About, Frame, place
from tailrace.gateway.frames.surface import SSE, WS, chunk, close, message

VIEW = ServedView("averages", "0123abcd", 3, 4, (Column("movie_id", "bigint"),))
KEY = b"362"
PARTITION = VIEW.partition(KEY)


def frame(
    value: bytes | None, generation: int = 1, offset: int = 1, key: bytes = KEY, view: ServedView = VIEW
) -> Frame:
    position = place(VIEW.lineage, generation, VIEW.partition(key), offset)
    return Frame(About({"view": VIEW.name}, VIEW), key, value, position)


def fields(data: bytes) -> dict[str, str]:
    """The frame as an SSE client reads it: lines end with CR, LF or both, several `data` lines are joined."""
    text = data.decode()
    assert text.endswith("\n\n")
    found: dict[str, str] = {}
    for line in text.replace("\r\n", "\n").replace("\r", "\n")[:-2].split("\n"):
        name, _, value = line.partition(": ")
        found[name] = f"{found[name]}\n{value}" if name in found else value
    return found


@given(st.integers(0, 10**9 - 1), st.integers(0, 10**18))
def test_a_rows_id_is_its_position(generation: int, offset: int) -> None:
    found = fields(SSE.encode(frame(b"{}", generation, offset)))
    assert Position.parse(found["id"]) == Position(VIEW.lineage, generation, {PARTITION: offset})


@given(st.dictionaries(st.text(), st.one_of(st.text(), st.integers(), st.none())), st.sampled_from([None, 1]))
def test_a_rows_json_arrives_whatever_it_contains(value: dict[str, object], indent: int | None) -> None:
    data = json.dumps(value, ensure_ascii=False, indent=indent).encode()
    found = fields(SSE.encode(frame(data)))
    assert found["event"] == "row" and json.loads(found["data"]) == value


def test_compact_json_is_carried_byte_for_byte() -> None:
    data = '{"movie_id":362,"name":"Ü \u2028 é","rating":9.0}'.encode()
    assert b"\ndata: " + data + b"\n\n" in SSE.encode(frame(data))


def test_a_tombstone_is_a_gone_frame_with_the_key_columns() -> None:
    found = fields(SSE.encode(frame(None, 3, 41)))
    assert found == {"event": "gone", "id": f"0123abcd.3.{PARTITION}-41", "data": '{"movie_id":362}'}


def test_before_the_first_record_a_position_names_no_offset() -> None:
    assert fields(SSE.encode(frame(None, 3, -1)))["id"] == "0123abcd.3"


def test_of_frames_that_are_written_together_the_last_has_the_id() -> None:
    frames = SSE.together([frame(b"{}", 1, 4), frame(None, 1, 5)], b"0123abcd.1.0-5")
    row, gone, end = frames.split(b"\n\n")
    assert fields(row + b"\n\n") == {"event": "row", "data": "{}"} and end == b""
    assert fields(gone + b"\n\n") == {"event": "gone", "data": '{"movie_id":362}', "id": "0123abcd.1.0-5"}


def test_close_says_why_and_whether_to_come_back_and_leaves_the_position_alone() -> None:
    found = fields(close(SHUTDOWN.reason, SHUTDOWN.message, SHUTDOWN.retry))
    assert found["event"] == "close" and "id" not in found
    assert json.loads(found["data"]) == {"reason": "shutdown", "message": SHUTDOWN.message, "retry": True}


@given(st.dictionaries(st.text(), st.one_of(st.text(), st.integers(), st.none())), st.text(), st.integers(0, 10**18))
def test_a_message_carries_the_same_row_and_position(value: dict[str, object], key: str, offset: int) -> None:
    data = json.dumps(value, ensure_ascii=False).encode(errors="replace")
    name = key.encode(errors="replace")
    (found,) = messages(WS.encode(frame(data, 3, offset, name)))
    position = Position(VIEW.lineage, 3, {VIEW.partition(name): offset})
    assert found == {
        "type": "row",
        "view": "averages",
        "key": name.decode(),
        "position": str(position),
        "row": json.loads(data),
    }
    (gone,) = messages(WS.encode(frame(None, 3, offset, name)))
    assert gone == {"type": "gone", "view": "averages", "key": name.decode(), "position": str(position)}


@pytest.mark.parametrize("size", [0, 1, 125, 126, 65535, 65536, 200_000])
def test_a_message_of_any_length_is_one_frame(size: int) -> None:
    (found,) = messages(message(b'{"pad":"' + size * b"x" + b'"}'))
    assert len(found["pad"]) == size


def test_a_row_that_is_not_utf_8_does_not_end_the_connection_of_who_follows_it() -> None:
    (found,) = messages(WS.encode(frame(b'{"a":"\xff"}', 3)))
    assert found["row"] == {"a": "\ufffd"}


def test_progress_has_no_id_so_that_a_client_keeps_its_position() -> None:
    assert fields(SSE.progress(None, 3, 9)) == {"event": "progress", "data": '{"offset":3,"target":9}'}


@given(st.binary(min_size=1))
def test_a_chunk_names_its_length(body: bytes) -> None:
    size, _, rest = chunk(body).partition(b"\r\n")
    assert int(size, 16) == len(body) and rest == body + b"\r\n"


@pytest.mark.parametrize(
    ("columns", "key", "expected"),
    [
        ("id bigint", "-7", b'{"id":-7}'),
        ("id bigint", "007", b'{"id":"007"}'),
        ("id string", "7", b'{"id":"7"}'),
        ("id double", "1.5E10", b'{"id":1.5E10}'),
        ("id double", "NaN", b'{"id":"NaN"}'),
        ("id decimal(10,2)", "1.50", b'{"id":1.50}'),
        ("id boolean", "true", b'{"id":true}'),
        ("id date", "2026-01-01", b'{"id":"2026-01-01"}'),
        ('na"me string', 'ü"', '{"na\\"me":"ü\\""}'.encode()),
        ("a bigint, b string", '[1,"x"]', b'{"a":1,"b":"x"}'),
        ("a bigint, b string", "not an array", b'{"key":"not an array"}'),
    ],
)
def test_a_keys_object_has_numbers_as_numbers(columns: str, key: str, expected: bytes) -> None:
    view = ServedView("v", "0123abcd", 1, 1, tuple(Column(*c.rsplit(" ", 1)) for c in columns.split(", ")))
    assert view.key_object(key.encode()) == expected

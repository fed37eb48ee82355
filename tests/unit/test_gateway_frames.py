"""Frames: what goes out is exactly what the store holds, with a position to resume from."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.catalog import Column
from tailrace.gateway.frames import Frames, chunk, progress
from tailrace.gateway.known import KnownView
from tailrace.position import Position
from tailrace.store.row import Row

VIEW = KnownView("averages", "0123abcd", 3, 4, (Column("movie_id", "bigint"),))
KEY = b"362"
PARTITION = VIEW.partition(KEY)
FRAMES = Frames(VIEW, KEY)


def fields(frame: bytes) -> dict[str, str]:
    """The frame as an SSE client reads it: lines end with CR, LF or both, several `data` lines are joined."""
    text = frame.decode()
    assert text.endswith("\n\n")
    found: dict[str, str] = {}
    for line in text.replace("\r\n", "\n").replace("\r", "\n")[:-2].split("\n"):
        name, _, value = line.partition(": ")
        found[name] = f"{found[name]}\n{value}" if name in found else value
    return found


@given(st.integers(0, 10**9 - 1), st.integers(0, 10**18))
def test_a_rows_id_is_its_position(generation: int, offset: int) -> None:
    frame = fields(FRAMES.row(Row(generation, 7, offset, 0, b"{}")))
    assert Position.parse(frame["id"]) == Position(VIEW.lineage, generation, {PARTITION: offset})


@given(st.dictionaries(st.text(), st.one_of(st.text(), st.integers(), st.none())), st.sampled_from([None, 1]))
def test_a_rows_json_arrives_whatever_it_contains(value: dict[str, object], indent: int | None) -> None:
    data = json.dumps(value, ensure_ascii=False, indent=indent).encode()
    frame = fields(FRAMES.row(Row(1, 1, 1, 0, data)))
    assert frame["event"] == "row" and json.loads(frame["data"]) == value


def test_compact_json_is_carried_byte_for_byte() -> None:
    data = '{"movie_id":362,"name":"Ü \u2028 é","rating":9.0}'.encode()
    assert b"\ndata: " + data + b"\n\n" in FRAMES.row(Row(1, 1, 1, 0, data))


def test_a_tombstone_is_a_gone_frame_with_the_key_columns() -> None:
    frame = fields(FRAMES.row(Row(3, 9, 41, 0, None)))
    assert frame == {"event": "gone", "id": f"0123abcd.3.{PARTITION}-41", "data": '{"movie_id":362}'}


def test_ready_names_view_key_columns_and_generation() -> None:
    frame = fields(FRAMES.ready(99))
    assert json.loads(frame["data"]) == {"view": "averages", "key": ["movie_id"], "generation": 3}
    assert frame["id"] == f"0123abcd.3.{PARTITION}-99"


def test_before_the_first_record_a_position_names_no_offset() -> None:
    assert fields(FRAMES.ready(-1))["id"] == "0123abcd.3"


def test_a_resets_id_asks_for_a_snapshot() -> None:
    position = Position.parse(fields(FRAMES.reset("foreign", "…"))["id"])
    assert position == Position(VIEW.lineage, VIEW.generation, {})


def test_progress_has_no_id_so_that_a_client_keeps_its_position() -> None:
    assert fields(progress(3, 9)) == {"event": "progress", "data": '{"offset":3,"target":9}'}


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
    view = KnownView("v", "0123abcd", 1, 1, tuple(Column(*c.rsplit(" ", 1)) for c in columns.split(", ")))
    assert view.key_object(key.encode()) == expected

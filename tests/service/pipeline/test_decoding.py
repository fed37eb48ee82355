"""Decoding: every format against plain Python, and no bytes that make it fail."""

from __future__ import annotations

import json
import math
import struct
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, Row, SparkSession

from tailrace import App, Topic, View
from tailrace.pipeline.dead_letters.dead_letters import bad_for, dead_letters
from tailrace.pipeline.source import decoding
from tailrace.pipeline.source.reading import Reading
from tailrace.pipeline.view import events, rows

KAFKA = (
    "key binary, value binary, topic string, partition int, offset long, timestamp timestamp, timestampType int, "
    "headers array<struct<key: string, value: binary>>"
)
AT = datetime(2026, 2, 3, 4, 5, 6, 789000, tzinfo=UTC)
RATING = {
    "type": "record",
    "name": "Rating",
    "namespace": "org.movies",
    "fields": [
        {"name": "movie_id", "type": "long"},
        {"name": "rating", "type": ["null", "double"], "default": None},
        {"name": "title", "type": "string"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "genre", "type": {"type": "enum", "name": "Genre", "symbols": ["DRAMA", "COMEDY"]}},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
    ],
}

few = settings(max_examples=8, deadline=None)


@dataclass(frozen=True)
class Record:
    value: bytes | None
    key: bytes | None = None
    headers: list[tuple[str, bytes | None]] | None = field(default=None)


def view_of(topic: Topic, key: str | tuple[str, ...] = (), **columns: str) -> View:
    return App("movies").view("averages", topic, key=key, columns=columns or {"n": "count(*)"})


def frame(spark: SparkSession, records: list[Record]) -> DataFrame:
    rows = [(r.key, r.value, "ratings", 3, 40 + i, AT, 0, r.headers) for i, r in enumerate(records)]
    return spark.createDataFrame(rows, KAFKA)


def reading_of(view: View) -> Reading:
    assert isinstance(view.source, Topic)
    return Reading(view.source)


def decoded_for(spark: SparkSession, view: View, records: list[Record]) -> DataFrame:
    reading = reading_of(view)
    decoded = events.decode(frame(spark, records), decoding.schemas(spark, reading.topic), reading)
    return events.unusable(decoded, view.key, None)


def decode(spark: SparkSession, view: View, records: list[Record]) -> list[Row]:
    """What becomes of the records, in their order."""
    decoded = decoded_for(spark, view, records)
    return decoded.orderBy("_offset").collect()


def values(spark: SparkSession, format: str, type: str, payloads: list[bytes | None]) -> list[tuple[Any, str | None]]:
    """Each value and why it is skipped."""
    topic = App("movies").topic("ratings", value=f"it {type}", format=format)
    return [(row["it"], row[decoding.SKIPPED]) for row in decode(spark, view_of(topic), [Record(p) for p in payloads])]


# Of one value


@few
@given(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=50))
@example([0, 1, -1, 2**63 - 1, -(2**63), 2**53 + 1, 255, 256, -256])
def test_a_long_is_what_kafka_serialized(spark: SparkSession, numbers: list[int]) -> None:
    payloads = [struct.pack(">q", n) for n in numbers]
    assert values(spark, "long", "long", [*payloads]) == [(n, None) for n in numbers]


@few
@given(st.lists(st.floats(), max_size=50))
@example([0.0, -0.0, math.inf, -math.inf, math.nan, 5e-324, 1.7976931348623157e308, 2.2250738585072014e-308])
def test_a_double_is_what_kafka_serialized_to_the_bit(spark: SparkSession, numbers: list[float]) -> None:
    found = values(spark, "double", "double", [struct.pack(">d", n) for n in numbers])
    for (got, skipped), wanted in zip(found, numbers, strict=True):
        assert skipped is None
        assert math.isnan(got) if math.isnan(wanted) else struct.pack(">d", got) == struct.pack(">d", wanted)


def as_text(payload: bytes) -> tuple[str | None, str | None]:
    try:
        return payload.decode(), None
    except UnicodeDecodeError:
        return None, "malformed"


@few
@given(st.lists(st.binary(max_size=12) | st.text(max_size=12).map(str.encode), max_size=50))
@example([b"", b"\xff", b"\xed\xa0\x80", b"\xc0\x80", "żółw 🐢".encode(), b"a\x00b"])
def test_a_string_is_utf8_or_malformed(spark: SparkSession, payloads: list[bytes]) -> None:
    assert values(spark, "string", "string", [*payloads]) == [as_text(payload) for payload in payloads]


def test_bytes_are_taken_as_they_are(spark: SparkSession) -> None:
    assert values(spark, "bytes", "binary", [b"", b"\x00\xff", None]) == [
        (b"", None),
        (b"\x00\xff", None),
        (None, "null-value"),
    ]


@pytest.mark.parametrize(("format", "type"), [("long", "long"), ("double", "double")])
def test_a_number_of_another_length_is_malformed(spark: SparkSession, format: str, type: str) -> None:
    found = values(spark, format, type, [b"", b"1", b"1234567", b"123456789", b"12345678" * 2, None])
    assert found == [(None, "malformed")] * 5 + [(None, "null-value")]


# JSON


def test_json_is_one_whole_object_of_the_declared_types(spark: SparkSession) -> None:
    topic = App("movies").topic("ratings", value="movie_id long, rating double")
    good = [b'{"movie_id":1,"rating":2.5}', b' {"rating":3} ', b'{"movie_id":1,"more":[{}]}', b"{}"]
    good += ['{"movie_id":1,"more":"\u00fc}"}'.encode(), b'{"movie_id":1,"more":{"rating":2}}', b' {"movie_id":1}']
    bad = [b"", b"{", b'{"movie_id":"x"}', b"{} {}", b"[]", b"1", b'{"movie_id":1}\xff', b'{"rating":NaN}', b"null"]
    bad += [
        b'{"movie_id":1},"z":2',
        b'{"movie_id":1},{"movie_id":2}',
        b'{"movie_id":1}],"value":[{"movie_id":2}',
        b"{},",
    ]
    bad += [
        b'{"movie_id":1},"value":{"movie_id":2}',
        b'{"movie_id":1}}',
        b'{"movie_id":1},{"whole":true}',
        b",{}",
        b"[{}]",
    ]
    # A brace at the end, and no other.
    bad += [
        b"}",
        b"null}",
        b"5}",
        b'"a"}',
        b'[{"movie_id":1}',
        b'{"movie_id":1,"more":"}',
        b'{"movie_id":"x"}',
        b"\xff}",
    ]
    bad += [b'{"movie_id":1,"more":"\xff"}']
    found = decode(spark, view_of(topic), [Record(value) for value in [*good, *bad, None]])
    expected = [(1, 2.5), (None, 3.0), (1, None), (None, None), (1, None), (1, None), (1, None)]
    assert [(row.movie_id, row.rating) for row in found[: len(good)]] == expected
    assert [row[decoding.SKIPPED] for row in found] == [None] * len(good) + ["malformed"] * len(bad) + ["null-value"]


def test_a_json_number_that_its_type_cannot_hold_is_malformed_for_views_and_in_its_dead_letter(
    spark: SparkSession,
) -> None:
    topic = App("movies").topic("ratings", value="n tinyint, r double, f float, d decimal(4,1), at timestamp, t string")
    good = ['"n":127', '"r":1.7e308', '"f":3e38', '"d":999.94', '"at":7', '"r":-0.0', '"r":1e-400', '"t":1e400']
    bad = ['"n":128', '"n":200', '"r":1e400', '"r":-1e309', '"f":1e39', '"d":1e3', '"d":1e99999999', f'"at":{2**62}']
    records = [Record(f"{{{field}}}".encode()) for field in (*good, *bad)]
    reasons = [row[decoding.SKIPPED] for row in decode(spark, view_of(topic), records)]
    assert reasons == [None] * len(good) + ["malformed"] * len(bad)
    schemas = decoding.schemas(spark, topic)
    decoded = decoding.decode(frame(spark, records), schemas, topic, raw=True)
    found = dead_letters(bad_for(decoded, Reading(topic), []), Reading(topic), schemas, 1_000_000).collect()
    assert sorted(bytes(row.value).decode() for row in found) == sorted(f"{{{field}}}" for field in bad)
    told = {bytes(header.value).decode() for row in found for header in row.headers if header.key == "tailrace.error"}
    assert len(told) == 1 and "range of its type" in told.pop()


# Metadata


def test_metadata_stands_beside_the_fields(spark: SparkSession) -> None:
    topic = App("movies").topic("ratings", value="rating double")
    headers: list[tuple[str, bytes | None]] = [("a", b"1"), ("b", b"2"), ("a", b"3"), ("c", None), ("d", b"\xff")]
    records = [Record(b"{}", b"k", headers), Record(b"{}", b"\xff", []), Record(b"{}")]
    one, two, three = decode(spark, view_of(topic), records)
    assert (one["_key"], one["_topic"], one["_partition"], one["_offset"]) == ("k", "ratings", 3, 40)
    assert one["_timestamp"].timestamp() == AT.timestamp()
    assert one["_headers"] == {"a": "3", "b": "2", "c": None, "d": None}, "the last header of a name counts"
    assert two["_key"] is None and two["_headers"] == {} and two[decoding.SKIPPED] is None
    assert three["_key"] is None and three["_headers"] == {}


@few
@given(st.lists(st.lists(st.tuples(st.sampled_from(["a", "b", "", "ą"]), st.none() | st.binary(max_size=3)))))
def test_headers_are_a_map_whatever_they_are(
    spark: SparkSession, records: list[list[tuple[str, bytes | None]]]
) -> None:
    topic = App("movies").topic("ratings", value="rating double")
    found = decode(spark, view_of(topic), [Record(b"{}", headers=headers) for headers in records])
    expected = [{name: as_text(v)[0] if v is not None else None for name, v in headers} for headers in records]
    assert [row["_headers"] for row in found] == expected


@pytest.mark.parametrize(
    ("format", "good", "key"),
    [("long", struct.pack(">q", -7), -7), ("double", struct.pack(">d", 0.1), 0.1), ("bytes", b"\xff", b"\xff")],
)
def test_a_key_has_a_format_of_its_own(spark: SparkSession, format: str, good: bytes, key: object) -> None:
    topic = App("movies").topic("ratings", value="rating double", key_format=format)
    one, two = decode(spark, view_of(topic), [Record(b"{}", good), Record(b"{}", None)])
    assert one["_key"] == key and two["_key"] is None and two[decoding.SKIPPED] is None


# Steps and rules


def test_steps_apply_in_their_order_and_a_column_can_replace_a_field(spark: SparkSession) -> None:
    topic = App("movies").topic("ratings", value="rating double")
    source = (
        topic.where("_headers['__TypeId__'] = 'rating'")
        .with_columns(rating="rating * 2", before="rating", client="_key")
        .where("rating > 4")
    )
    view = view_of(source, "client", rating="sum(rating)", before="max(before)", newest="max(_offset)")
    typed: list[tuple[str, bytes | None]] = [("__TypeId__", b"rating")]
    records = [
        Record(b'{"rating":3}', b"ann", typed),
        Record(b'{"rating":5}', b"ann", typed),
        Record(b'{"rating":2}', b"ann", typed),
        Record(b'{"rating":9}', b"ann", [("__TypeId__", b"other")]),
        Record(b'{"rating":9}', b"ann"),
        Record(b'{"rating":4}', None, typed),
        Record(b'{"rating":1}', None, typed),
        Record(b"?", b"ann", typed),
    ]
    decoded = decoded_for(spark, view, records)
    reasons = [row[decoding.SKIPPED] for row in decoded.orderBy("_offset").collect()]
    assert reasons == [None] * 5 + ["no-key", None, "malformed"], "what a condition leaves out is not skipped"
    (row,) = rows.aggregate(events.events(decoded, reading_of(view)), view).collect()
    assert (row.client, row.rating, row.before, row.newest, row["_version"]) == ("ann", 16.0, 5.0, 41, 2)


def test_an_expression_is_not_computed_for_what_an_earlier_condition_left_out(spark: SparkSession) -> None:
    topic = App("movies").topic("ratings", value="rating double").where("rating > 0")
    source = topic.with_columns(safe="if(rating > 0, rating, raise_error('computed'))")
    found = decode(spark, view_of(source), [Record(b'{"rating":-1}'), Record(b"?"), Record(b'{"rating":1}')])
    assert [row.safe for row in found] == [None, None, 1.0]


def test_a_record_that_breaks_the_rule_is_skipped_before_any_step(spark: SparkSession) -> None:
    topic = App("movies").topic("ratings", value="rating double", expect="rating between 0 and 10")
    source = topic.with_columns(rating="rating + 100")
    payloads = [b'{"rating":10}', b'{"rating":11}', b"{}", b"?", None]
    found = decode(spark, view_of(source), [Record(payload) for payload in payloads])
    assert [row[decoding.SKIPPED] for row in found] == [None, "broken-rule", "broken-rule", "malformed", "null-value"]
    assert found[0].rating == 110.0


def test_a_repeated_event_counts_once_and_one_without_an_id_always(spark: SparkSession) -> None:
    topic = App("movies").topic("ratings", value="id string, kind string, rating double")
    source = (
        topic.where("rating < 100")
        .dedupe(by=["id", "kind"])
        .with_columns(id="'replaced'")
        .where("rating > 1")
        .with_columns(partition="_partition")
    )
    view = view_of(source, "partition", rating="sum(rating)")
    sent = [
        {"id": "a", "kind": "x", "rating": 200},
        {"id": "a", "kind": "x", "rating": 10},
        {"id": "a", "kind": "x", "rating": 10},
        {"id": "a", "kind": "y", "rating": 20},
        {"id": "b", "kind": "x", "rating": 1},
        {"id": "b", "kind": "x", "rating": 1},
        {"kind": "x", "rating": 30},
        {"kind": "x", "rating": 30},
        {"id": "c", "rating": 40},
    ]
    records = [Record(json.dumps(event).encode()) for event in sent]
    decoded = decoded_for(spark, view, records)
    (row,) = rows.aggregate(events.events(decoded, reading_of(view)), view).collect()
    assert (row.rating, row["_version"]) == (10 + 20 + 30 + 30 + 40, 5)


# Avro, with an encoder of a few lines that shares nothing with the product


def number(value: int) -> bytes:
    rest = ((value << 1) ^ (value >> 63)) & (2**64 - 1)
    encoded = bytearray()
    while rest > 127:
        encoded.append(rest & 127 | 128)
        rest >>= 7
    return bytes([*encoded, rest])


def text(value: str) -> bytes:
    return number(len(value.encode())) + value.encode()


def avro(movie: int, rating: float | None, title: str, at: int, genre: int, tags: list[str]) -> bytes:
    union = number(0) if rating is None else number(1) + struct.pack("<d", rating)
    items = number(len(tags)) + b"".join(map(text, tags)) if tags else b""
    return number(movie) + union + text(title) + number(at) + number(genre) + items + number(0)


ratings = st.tuples(
    st.integers(-(2**63), 2**63 - 1),
    st.none() | st.floats(allow_nan=False),
    st.text(max_size=20),
    st.integers(0, 4102444800000),
    st.integers(0, 1),
    st.lists(st.text(max_size=5), max_size=3),
)


def avro_view() -> View:
    return view_of(App("movies").topic("ratings", format="avro", schema=json.dumps(RATING)))


@few
@given(st.lists(ratings, max_size=30))
def test_avro_is_decoded_field_by_field(spark: SparkSession, written: list[tuple[Any, ...]]) -> None:
    found = decode(spark, avro_view(), [Record(avro(*rating)) for rating in written])
    for row, (movie, rating, title, at, genre, tags) in zip(found, written, strict=True):
        assert row[decoding.SKIPPED] is None
        assert (row.movie_id, row.rating, row.title, row.tags) == (movie, rating, title, tags)
        assert round(row["at"].timestamp() * 1000) == at and row.genre == ("DRAMA", "COMEDY")[genre]


def test_an_avro_value_that_ends_early_or_late_is_malformed(spark: SparkSession) -> None:
    whole = avro(362, 8.0, "Solaris", 0, 0, ["a", "b"])
    payloads = [*(whole[:size] for size in range(len(whole))), whole + b"\x00", whole * 2]
    found = decode(spark, avro_view(), [Record(payload) for payload in [*payloads, whole, None]])
    assert [row[decoding.SKIPPED] for row in found] == ["malformed"] * len(payloads) + [None, "null-value"]


@few
@given(st.lists(st.binary(max_size=40), max_size=50))
@example([number(1) + number(0) + number(n) for n in (2**31 - 20, 2**31 - 1, 2**40, -3, 10**9)])
@example([number(1) + number(0) + text("") + number(0) * 2 + number(n) for n in (2**31 - 20, -(2**31), 10**9)])
@example([number(1) + number(0) + number(2) + b"\xff\xfe" + number(0) * 3])
def test_no_bytes_make_avro_fail(spark: SparkSession, payloads: list[bytes]) -> None:
    found = decode(spark, avro_view(), [Record(payload) for payload in payloads])
    assert {row[decoding.SKIPPED] for row in found} <= {None, "malformed"} and len(found) == len(payloads)
    assert all(row.movie_id is not None for row in found if row[decoding.SKIPPED] is None)


def test_an_avro_record_of_nulls_is_no_malformed_one(spark: SparkSession) -> None:
    schema = '{"type":"record","name":"R","fields":[{"name":"a","type":["null","long"]}]}'
    view = view_of(App("movies").topic("ratings", format="avro", schema=schema))
    found = decode(spark, view, [Record(b"\x00"), Record(b"\x02\x0e"), Record(b"\x04")])
    assert [(row.a, row[decoding.SKIPPED]) for row in found] == [(None, None), (7, None), (None, "malformed")]


def test_an_avro_schema_may_stand_in_a_file_beside_the_module(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "rating.avsc").write_text(json.dumps(RATING))
    topic = App("movies").topic("ratings", format="avro", schema=tmp_path / "rating.avsc")
    (row,) = decode(spark, view_of(topic), [Record(avro(1, None, "Ran", 0, 1, []))])
    assert (row.movie_id, row.rating, row.title, row.genre) == (1, None, "Ran", "COMEDY")


def test_an_avro_decimal_of_more_digits_than_it_declares_is_malformed_wherever_it_stands(spark: SparkSession) -> None:
    def decimal(precision: int, **more: Any) -> dict[str, Any]:
        return {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": 2, **more}

    fixed = decimal(6, type="fixed", name="F", size=12)
    inner = {"type": "record", "name": "I", "fields": [{"name": "x", "type": decimal(6)}]}
    types = [decimal(6), ["null", decimal(18)], decimal(30), fixed, inner]
    types += [{"type": "array", "items": decimal(6)}, {"type": "map", "values": ["null", decimal(6)]}]
    schema = {"type": "record", "name": "R", "fields": [{"name": f"f{n}", "type": t} for n, t in enumerate(types)]}
    key = json.dumps({"type": "record", "name": "K", "fields": [{"name": "id", "type": decimal(6)}]})
    topic = App("movies").topic("ratings", format="avro", schema=json.dumps(schema), key_format="avro", key_schema=key)

    def unscaled(value: int) -> bytes:
        data = value.to_bytes(value.bit_length() // 8 + 1, "big", signed=True)
        return number(len(data)) + data

    def record(*values: int) -> bytes:
        a, b, c, d, e, f, g = values
        parts = [unscaled(a), number(1) + unscaled(b), unscaled(c), d.to_bytes(12, "big", signed=True), unscaled(e)]
        parts += [number(2) + unscaled(1) + unscaled(f) + number(0)]
        parts += [number(1) + text("x") + number(1) + unscaled(g) + number(0)]
        return b"".join(parts)

    most = [10**6 - 1, 10**18 - 1, 10**30 - 1, *[10**6 - 1] * 4]
    whole = [record(*most), record(*(-one for one in most)), record(*[0] * 7)]
    # One more than fits, and one whose last eight bytes are those of a small number.
    bad = [
        record(*(beyond if at == n else 7 for at in range(7))) for n in range(7) for beyond in (most[n] + 1, 2**72 + 7)
    ]
    bad[5] = record(7, 7, 2**120 + 7, 7, 7, 7, 7)
    found = decode(spark, view_of(topic), [Record(value, unscaled(7)) for value in [*whole, *bad]])
    assert [row[decoding.SKIPPED] for row in found] == [None] * len(whole) + ["malformed"] * len(bad)
    assert [str(found[0][f"f{n}"]) for n in (0, 1, 3)] == ["9999.99", "9999999999999999.99", "9999.99"]
    assert (str(found[0].f4.x), list(map(str, found[0].f5)), str(found[0].f6["x"])) == (
        "9999.99",
        ["0.01", "9999.99"],
        "9999.99",
    )
    keys = decode(spark, view_of(topic), [Record(whole[2], unscaled(n)) for n in (7, 10**6, 2**72 + 7)])
    assert [row["_key"] and str(row["_key"].id) for row in keys] == ["0.07", None, None]

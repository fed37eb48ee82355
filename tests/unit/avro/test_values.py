"""JSON values as Avro: every value comes back from its bytes as another reader of Avro sees it; others are refused."""

from __future__ import annotations

import base64
import json
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from io import BytesIO
from typing import Any

import jsonschema_rs
import pytest
from fastavro import parse_schema, schemaless_reader
from hypothesis import given
from hypothesis import strategies as st

from tailrace.avro.encoding import Encoding
from tailrace.avro.schema import Unwritable, read
from tailrace.events.json_spans import whole
from tailrace.types import json_schema
from tailrace.types.values import Mismatch
from tailrace.types.values import converted as checked

# A schema, a strategy of (what is sent, what a reader gets), and JSON values that are not of it.
Case = tuple[Any, st.SearchStrategy[tuple[Any, Any]], list[Any]]

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
INSTANTS = st.datetimes(datetime(1900, 1, 1), datetime(2200, 1, 1), timezones=st.just(UTC))


def same(values: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[Any, Any]]:
    return values.map(lambda value: (value, value))


def millis(at: datetime) -> datetime:
    return at.replace(microsecond=at.microsecond // 1000 * 1000)


def logical(kind: str, name: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": name, **more}


PLAIN: dict[str, Case] = {
    "null": ("null", st.just((None, None)), [0, "", False]),
    "boolean": ("boolean", same(st.booleans()), [0, "true", None]),
    "int": ("int", same(st.integers(-(2**31), 2**31 - 1)), [2**31, -(2**31) - 1, 1.5, True, "1", None]),
    "long": ("long", same(st.integers(-(2**63), 2**63 - 1)), [2**63, 1.5, True, "1", {}, None]),
    "float": ("float", same(st.floats(width=32, allow_nan=False, allow_infinity=False)), [10**39, "1", True]),
    "double": ("double", same(st.floats(allow_nan=False, allow_infinity=False)), [10**400, "1", True, None]),
    "string": ("string", same(TEXTS), [1, None, ["x"], "\ud800"]),
    "bytes": ("bytes", st.binary(max_size=5).map(lambda b: (base64.b64encode(b).decode(), b)), ["ü", "A", 1, None]),
    "date": (
        logical("int", "date"),
        st.dates().map(lambda d: (d.isoformat(), d)),
        ["2026-02-30", "2026-1-1", "today", 2**31, 1.5, True, None],
    ),
    "date as a number": (
        logical("int", "date"),
        st.dates().map(lambda d: ((d - date(1970, 1, 1)).days, d)),
        [],
    ),
    "time-millis": (
        logical("int", "time-millis"),
        st.times().map(lambda t: t.replace(microsecond=t.microsecond // 1000 * 1000)).map(lambda t: (t.isoformat(), t)),
        ["24:00", "09:30:00.0001", 86_400_000, -1, None],
    ),
    "time-micros": (
        logical("long", "time-micros"),
        st.times().map(lambda t: (t.isoformat(), t)),
        ["09:30:00.0000001", 86_400_000_000, True, None],
    ),
    "timestamp-millis": (
        logical("long", "timestamp-millis"),
        INSTANTS.map(millis).map(lambda at: (at.isoformat(), at)),
        ["2026-01-31T09:30:00.0001Z", "2026-01-31", 2**63 // 1000, 1.5, None],
    ),
    "timestamp-micros": (
        logical("long", "timestamp-micros"),
        INSTANTS.map(lambda at: (at.replace(tzinfo=None).isoformat(), at)),
        ["2026-01-31T09:30:00.0000001Z", "yesterday", 2**63, True],
    ),
    "timestamp as a number": (
        logical("long", "timestamp-micros"),
        INSTANTS.map(lambda at: ((at - EPOCH) // timedelta(microseconds=1), at)),
        [],
    ),
    "local-timestamp-micros": (
        logical("long", "local-timestamp-micros"),
        INSTANTS.map(lambda at: at.replace(tzinfo=None)).map(lambda at: (at.isoformat(), at)),
        ["2026-01-31T09:30:00Z", None],
    ),
    "decimal": (
        logical("bytes", "decimal", precision=20, scale=4),
        st.decimals(-(10**15), 10**15, places=4).map(lambda d: (d, d)),
        [Decimal("0.00001"), 10**16, "x", "1e5", True, None],
    ),
    "decimal as text": (
        logical("bytes", "decimal", precision=38, scale=2),
        st.decimals(-(10**30), 10**30, places=2).map(lambda d: (format(d, "f"), d)),
        [],
    ),
    "uuid": (
        logical("string", "uuid"),
        st.uuids().map(lambda u: (str(u), u)),
        ["x", 1, "123e4567e89b12d3a456426614174000"],
    ),
    "passed over": (logical("long", "unheard-of"), same(st.integers(-9, 9)), ["1"]),
}


class Names:
    """Names of types, each once in a schema."""

    def __init__(self) -> None:
        self._count = 0

    def new(self) -> str:
        self._count += 1
        return f"T{self._count}"


def enum(names: Names) -> Case:
    return {"type": "enum", "name": names.new(), "symbols": ["A", "B"]}, same(st.sampled_from("AB")), ["C", 0, None]


def fixed(names: Names) -> Case:
    values = st.binary(min_size=4, max_size=4).map(lambda b: (base64.b64encode(b).decode(), b))
    return {"type": "fixed", "name": names.new(), "size": 4}, values, ["AAAA", 1, None]


def fixed_decimal(names: Names) -> Case:
    schema = {"type": "fixed", "name": names.new(), "size": 6, "logicalType": "decimal", "precision": 9, "scale": 2}
    return schema, st.decimals(-(10**6), 10**6, places=2).map(lambda d: (d, d)), ["x", 10**8]


@st.composite
def cases(draw: st.DrawFn, names: Names, depth: int = 2) -> Case:
    """Any type, and its values."""
    kinds = [*PLAIN, "enum", "fixed", "fixed decimal", *(["array", "map", "record", "union"] if depth else [])]
    kind = draw(st.sampled_from(kinds))
    if kind in PLAIN:
        return PLAIN[kind]
    if kind in ("enum", "fixed", "fixed decimal"):
        return {"enum": enum, "fixed": fixed, "fixed decimal": fixed_decimal}[kind](names)
    if kind == "record":
        return draw(records(names, depth - 1))
    schema, values, wrong = draw(cases(names, depth - 1))
    if kind == "array":
        listed = st.lists(values, max_size=3).map(lambda pairs: ([a for a, _ in pairs], [b for _, b in pairs]))
        return {"type": "array", "items": schema}, listed, ["x", {}, None]
    if kind == "map":
        mapped = st.dictionaries(TEXTS, values, max_size=3).map(
            lambda held: ({n: a for n, (a, _) in held.items()}, {n: b for n, (_, b) in held.items()})
        )
        return {"type": "map", "values": schema}, mapped, ["x", [], None]
    if schema == "null" or isinstance(schema, list):
        return schema, values, wrong
    return ["null", schema], st.one_of(st.just((None, None)), values), [one for one in wrong if one is not None]


@st.composite
def records(draw: st.DrawFn, names: Names, depth: int) -> Case:
    held = [draw(cases(names, depth)) for _ in range(draw(st.integers(0, 3)))]
    schema = {
        "type": "record",
        "name": names.new(),
        "fields": [{"name": f"f{number}", "type": one[0]} for number, one in enumerate(held)],
    }
    values = st.tuples(*(one[1] for one in held)).map(
        lambda pairs: ({f"f{n}": a for n, (a, _) in enumerate(pairs)}, {f"f{n}": b for n, (_, b) in enumerate(pairs)})
    )
    return schema, values, ["x", [], {"another": 1}, None]


def sent(value: Any) -> Any:
    """A value as it is decoded from the JSON that a client has sent."""

    def text(one: Any) -> str:
        if isinstance(one, dict):
            return "{" + ",".join(f"{json.dumps(name)}:{text(held)}" for name, held in one.items()) + "}"
        if isinstance(one, list):
            return "[" + ",".join(map(text, one)) + "]"
        return format(one, "f") if isinstance(one, Decimal) else json.dumps(one)

    return whole(text(value)).value


def converted(schema: Any, value: Any) -> tuple[Any, list[Mismatch]]:
    wrong: list[Mismatch] = []
    return checked(read(json.dumps(schema)), sent(value), "", wrong), wrong


def read_back(schema: Any, data: bytes) -> Any:
    source = BytesIO(data)
    found = schemaless_reader(source, parse_schema(schema), None)
    assert source.read() == b""
    return found


def written(schema: Any, value: Any) -> Any:
    """What a reader gets for what a client has sent."""
    found, wrong = converted(schema, value)
    assert wrong == []
    return read_back(schema, Encoding(json.dumps(schema)).encode(found))


@given(st.data())
def test_every_value_comes_back_from_its_bytes(data: st.DataObject) -> None:
    schema, values, _ = data.draw(cases(Names()))
    value, expected = data.draw(values)
    assert written(schema, value) == expected


@given(st.data())
def test_what_is_no_value_is_refused_at_its_place_and_nowhere_else(data: st.DataObject) -> None:
    names = Names()
    good, values, _ = data.draw(cases(names))
    bad, _, wrong = data.draw(cases(names).filter(lambda case: bool(case[2])))
    fields = [{"name": "good", "type": good}, {"name": "bad", "type": bad}]
    schema = {"type": "record", "name": "Outer", "fields": fields}
    _, found = converted(schema, {"good": data.draw(values)[0], "bad": data.draw(st.sampled_from(wrong))})
    assert found and all(one.where == "bad" or one.where.startswith(("bad.", "bad[")) for one in found)
    assert all(one.expected and one.got for one in found)


@given(st.data())
def test_the_document_takes_every_value(data: st.DataObject) -> None:
    schema, values, _ = data.draw(cases(Names()))
    of = read(json.dumps(schema))
    documented = jsonschema_rs.validator_for(json_schema.schema(of))
    value, _ = data.draw(values)
    documented.validate(json.loads(json.dumps(value, default=float)))
    example = json_schema.example(of)
    documented.validate(example)
    assert written(schema, example) is not ...


@pytest.mark.parametrize(
    ("union", "value", "expected"),
    [
        (["null", "long"], {"long": 5}, 5),
        (["int", "long", "double"], 5, 5),
        (["int", "long", "double"], 2**40, 2**40),
        (["float", "double", "int"], 0.1, 0.1),
        (["string", "bytes"], {"bytes": "AP8="}, b"\x00\xff"),
        (["string", "long"], "5", "5"),
        (["bytes", "string"], "AAAA", "AAAA"),
        ([logical("int", "date"), "string"], "1970-01-02", "1970-01-02"),
        ([logical("int", "date"), "double"], 1, 1.0),
        (["null", logical("long", "timestamp-millis")], {"long": 0}, EPOCH),
        (["string", logical("int", "date")], {"int": "1970-01-02"}, date(1970, 1, 2)),
        (["string", {"type": "map", "values": "string"}], {"string": "x"}, "x"),
        (["string", {"type": "map", "values": "string"}], {"map": {"string": "x"}}, {"string": "x"}),
        (["string", {"type": "map", "values": "long"}], {"string": 1}, {"string": 1}),
        (["null", {"type": "array", "items": "int"}], {"array": [1]}, [1]),
    ],
)
def test_a_value_of_a_union_stands_alone_or_with_its_type(union: Any, value: Any, expected: Any) -> None:
    assert written(union, value) == expected


def test_records_of_a_union_are_told_by_their_fields_or_by_their_names() -> None:
    def record(name: str, field: str) -> dict[str, Any]:
        fields = [{"name": field, "type": "int"}, {"name": "both", "type": ["null", "int"], "default": None}]
        return {"type": "record", "name": name, "namespace": "org.x", "fields": fields}

    union = [record("A", "a"), record("B", "b")]
    assert written(union, {"b": 1}) == {"b": 1, "both": None}
    assert written(union, {"B": {"b": 1}}) == {"b": 1, "both": None}
    assert written(union, {"org.x.A": {"a": 1}}) == {"a": 1, "both": None}
    assert [one.where for one in converted(union, {"B": {"b": "x"}})[1]] == ["B.b"]
    (unclear,) = converted([record("A", "a"), record("B", "a")], {"a": 1})[1]
    assert unclear.expected == 'the type with the value, such as {"org.x.A": …}' and "org.x.B" in unclear.got


@pytest.mark.parametrize(
    ("union", "value"),
    [
        ([{"type": "enum", "name": "E", "symbols": ["AAAA"]}, "bytes"], "AAAA"),
        (["string", logical("string", "uuid")], 1),
    ],
)
def test_a_value_that_no_type_or_several_take_is_refused(union: Any, value: Any) -> None:
    (found,) = converted(union, value)[1]
    assert found.where == "" and found.expected and found.got


def test_what_is_missing_is_the_default_or_null_and_otherwise_named() -> None:
    fixed = {"type": "fixed", "name": "F", "size": 2}
    inner = {"type": "record", "name": "I", "fields": [{"name": "n", "type": "int", "default": 7}]}
    fields = [
        {"name": "a", "type": "int", "default": 5},
        {"name": "b", "type": "bytes", "default": "\u00ff"},
        {"name": "c", "type": ["string", "null"], "default": "x"},
        {"name": "d", "type": ["null", "int"]},
        {"name": "e", "type": fixed, "default": "\u0000\u0001"},
        {"name": "f", "type": inner, "default": {}},
        {"name": "g", "type": {"type": "array", "items": "F"}, "default": []},
        {"name": "h", "type": ["null", "string"], "default": "not the first"},
    ]
    schema = {"type": "record", "name": "R", "fields": fields}
    assert written(schema, {}) == {
        "a": 5,
        "b": b"\xff",
        "c": "x",
        "d": None,
        "e": b"\x00\x01",
        "f": {"n": 7},
        "g": [],
        "h": "not the first",
    }
    needed = {"type": "record", "name": "R", "fields": [{"name": "n", "type": "int"}]}
    assert converted(needed, {}) == ({}, [Mismatch("n", "an integer of 32 bits", "nothing")])
    assert converted(needed, {"n": 1, "m": 2})[1] == [Mismatch("m", "one of the fields n", "another name")]


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ('{"type":"record","name":"R","fields":[{"name":"r","type":["null","R"]}]}', "recursive"),
        ('{"type":"record","name":"R","fields":[{"name":"n","type":"int","default":"x"}]}', "default of its field n"),
        ('{"type":"array","items":"Missing"}', "Missing"),
        ("{}", "not an Avro schema"),
        ("[", "not an Avro schema"),
        ('{"type":"enum","name":"E","symbols":["A","A"]}', "not an Avro schema: All symbols"),
    ],
)
def test_a_schema_that_nothing_can_be_written_with_says_why(schema: str, reason: str) -> None:
    with pytest.raises(Unwritable, match=reason):
        Encoding(schema)


def test_a_time_has_its_offset_from_utc() -> None:
    at = logical("long", "timestamp-millis")
    assert written(at, "2026-01-31T09:30+02:00") == datetime(2026, 1, 31, 7, 30, tzinfo=UTC)
    assert written(at, "2026-01-31T09:30:00.123000000Z") == datetime(2026, 1, 31, 9, 30, 0, 123000, tzinfo=UTC)
    assert written(logical("long", "time-micros"), 1) == time(0, 0, 0, 1)

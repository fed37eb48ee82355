"""Events that clients send, as records: formats and keys of all kinds."""

from __future__ import annotations

import json
import struct
from typing import Any

import pytest

from tailrace.contracts.catalog import CatalogTopic, Column
from tailrace.events import records
from tailrace.events.codecs import declared
from tailrace.events.records import CheckedEvents, NotEvents

VALUE = (Column("n", "bigint"), Column("d", "decimal(38,18)"))
PAIR = (Column("a", "bigint"), Column("b", "string"))


def topic(format: str = "json", key_format: str = "string", key: tuple[str, ...] = ()) -> CatalogTopic:
    columns = VALUE if format == "json" else (Column("it", "string"),)
    named = PAIR if key_format == "json" else (Column("", "string"),)
    return CatalogTopic("t", format, columns, key_format, named, key, True)


def read_events(held: CatalogTopic, body: bytes, **options: Any) -> CheckedEvents:
    kinds = declared(held)
    assert kinds is not None
    return records.read_events(kinds, body, **options)


def record(held: CatalogTopic, body: bytes, **options: Any) -> tuple[bytes | None, bytes | None]:
    events = read_events(held, body, **options)
    assert events.problems == []
    (found,) = events.records
    return found.key, found.value


def test_a_decimal_keeps_every_digit() -> None:
    body = b'{"d":12345678901234567890.123456789012345678}'
    assert record(topic(), body) == (None, body)
    assert record(topic(), b" [ " + body + b" ] ") == (None, body)
    assert record(topic(), b'{"value": ' + body + b" }", wrapped=True) == (None, body)


@pytest.mark.parametrize(
    ("format", "body", "value"),
    [
        ("string", b'"\\u00fc"', "ü".encode()),
        ("long", b"-1", b"\xff" * 8),
        ("double", b"1", struct.pack(">d", 1.0)),
        ("double", b"1.5e3", struct.pack(">d", 1500.0)),
        ("bytes", b'"AP8="', b"\x00\xff"),
    ],
)
def test_plain_values_and_keys_have_the_same_bytes(format: str, body: bytes, value: bytes) -> None:
    assert record(topic(format), body) == (None, value)
    wrapped = b'{"value":{},"key":' + body + b"}"
    assert record(topic(key_format=format), wrapped, wrapped=True) == (value, b"{}")


def test_a_key_of_several_columns_is_json() -> None:
    table = topic(key_format="json", key=("a", "b"))
    assert record(table, b'{"n":1,"b":"x","a":007}'.replace(b"007", b"7")) == (
        b'{"a":7,"b":"x"}',
        b'{"n":1,"b":"x","a":7}',
    )
    assert record(table, b"null", key='{"b":"x", "a":7}') == (b'{"b":"x", "a":7}', None)
    assert read_events(table, b'{"n":1,"a":7}').problems[0]["where"] == "key"
    assert read_events(table, b'{"n":1}', key="text").problems[0]["where"] == "key"


def test_a_wrapped_event_says_what_it_lacks() -> None:
    for body, where in (
        (b"5", ""),
        (b"{}", "value"),
        (b'{"value":{},"keys":1}', "keys"),
        (b'{"value":{},"headers":{"a":1}}', "headers"),
        (b'{"value":{},"key":5}', "key"),
        (b'{"value":{},"key":null}', "key"),
    ):
        assert [one["where"] for one in read_events(topic(), body, wrapped=True).problems] == [where]


def test_problems_are_told_up_to_a_number() -> None:
    events = read_events(topic(), b"[" + b",".join([b'{"n":"x"}'] * 500) + b"]")
    assert len(events.problems) == 100 and events.records == []


@pytest.mark.parametrize("body", [b"", b"[]", b"nope", b"[1] 2", b"\xff", b'{"n":1}{'])
def test_what_is_no_json_is_no_events(body: bytes) -> None:
    with pytest.raises(NotEvents):
        read_events(topic(), body)


@pytest.mark.parametrize(
    ("held", "body", "where"),
    [
        (topic("string"), b'"\\ud800"', ""),
        (topic(), b'{"\\ud800":1}', "\\ud800"),
        (topic("double"), b"1e400", ""),
        (topic("double"), b"1" + b"0" * 400, ""),
        (topic(key_format="double", key=("k",)), b'{"k":1e400}', "k"),
    ],
)
def test_what_no_bytes_can_hold_is_refused_and_named(held: CatalogTopic, body: bytes, where: str) -> None:
    assert [one["where"] for one in read_events(held, body).problems] == [where]


def test_half_a_character_in_a_header_or_a_key_is_refused() -> None:
    headers = b'{"value":{},"headers":{"a":"\\ud800"}}'
    assert [one["where"] for one in read_events(topic(), headers, wrapped=True).problems] == ["headers"]
    key = b'{"value":{},"key":"\\ud800"}'
    assert [one["where"] for one in read_events(topic(), key, wrapped=True).problems] == ["key"]


def test_a_number_beyond_all_exponents_is_no_json() -> None:
    with pytest.raises(NotEvents, match="exponent"):
        read_events(topic(), b'{"n":1e99999999999999999999}')


def test_a_record_that_tells_itself_from_others_keeps_its_own_idempotency_key() -> None:
    body = b'[{"value":{},"headers":{"idempotency-key":"mine"}},{"value":{}}]'
    records = read_events(topic(), body, wrapped=True, once="abc").records
    assert [one.headers for one in records] == [[("idempotency-key", b"mine")], [("idempotency-key", b"abc/1")]]


def avro(*fields: tuple[str, Any], key_schema: Any = None, key: tuple[str, ...] = ()) -> CatalogTopic:
    schema = {"type": "record", "name": "R", "fields": [{"name": name, "type": of} for name, of in fields]}
    key_format = "string" if key_schema is None else "avro"
    keys = None if key_schema is None else json.dumps(key_schema)
    return CatalogTopic("t", "avro", (), key_format, (), key, True, json.dumps(schema), keys)


def test_avro_values_have_nothing_in_front_of_them_without_a_registry() -> None:
    assert record(avro(("n", "long")), b'{"n":-1}', key="k") == (b"k", b"\x01")


def test_the_key_columns_of_a_table_become_its_avro_key_and_stay_where_the_value_has_them() -> None:
    pair = {"type": "record", "name": "K", "fields": [{"name": "a", "type": "long"}, {"name": "b", "type": "string"}]}
    table = avro(("n", "long"), ("b", "string"), key_schema=pair, key=("a", "b"))
    assert record(table, b'{"n":1,"b":"x","a":3}') == (b"\x06\x02x", b"\x02\x02x")
    assert record(table, b"null", key='{"b":"x","a":3}') == (b"\x06\x02x", None)
    assert [one["where"] for one in read_events(table, b'{"n":1,"b":"x","a":"3"}').problems] == ["a"]
    plain = avro(("n", "long"), key_schema="string", key=("name",))
    assert record(plain, b'{"n":1,"name":"7"}') == (b"\x027", b"\x02")
    assert record(plain, b'{"n":1}', key="7") == (b"\x027", b"\x02")
    assert [one["where"] for one in read_events(plain, b'{"n":1}').problems] == ["key"]
    assert [one["where"] for one in read_events(plain, b'{"n":1,"name":7}').problems] == ["name"]


def test_json_values_may_have_avro_keys() -> None:
    table = CatalogTopic("t", "json", VALUE, "avro", (), ("id",), True, None, '"long"')
    assert record(table, b'{"n":1,"id":3}') == (b"\x06", b'{"n":1,"id":3}')
    assert record(table, b'{"n":1}', key="3") == (b"\x06", b'{"n":1}')


def test_an_avro_topic_of_an_older_pipeline_is_not_written_to() -> None:
    assert declared(CatalogTopic("t", "avro", VALUE, accept=True)) is None

"""Events that clients send, as records: formats and keys of all kinds."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from tailrace.catalog import CatalogTopic, Column
from tailrace.gateway.event_records import NotEvents, read_events

VALUE = (Column("n", "bigint"), Column("d", "decimal(38,18)"))
PAIR = (Column("a", "bigint"), Column("b", "string"))


def topic(format: str = "json", key_format: str = "string", key: tuple[str, ...] = ()) -> CatalogTopic:
    columns = VALUE if format == "json" else (Column("it", "string"),)
    named = PAIR if key_format == "json" else (Column("", "string"),)
    return CatalogTopic("t", format, columns, key_format, named, key, True)


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

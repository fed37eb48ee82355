"""Events that clients send, as the records of a topic: checked against its declared schema, all or none."""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal

from tailrace.catalog import CatalogTopic
from tailrace.gateway import json_spans
from tailrace.gateway.json_spans import Span
from tailrace.gateway.spark_types import Mismatch, SparkType, got, mismatches, read
from tailrace.kafka.async_delivery import LARGEST
from tailrace.kafka.delivery import Headers, Outgoing

MOST = 1000
# What a request's `Idempotency-Key` becomes, for `.dedupe(header="idempotency-key")`.
IDEMPOTENCY = "idempotency-key"
FORMATS = ("json", "string", "long", "double", "bytes")
_TOLD = 100
_RECORD = ("key", "value", "headers")
_TYPES = {"string": "string", "long": "bigint", "double": "double", "bytes": "binary"}


@dataclass
class Events:
    """Records to write, or what is wrong with them: the number of the event, where in it, what was expected."""

    records: list[Outgoing] = field(default_factory=list)
    problems: list[dict[str, object]] = field(default_factory=list)


class NotEvents(ValueError):
    """The body as a whole is not what was expected; the text says what it is instead."""


def read_events(
    topic: CatalogTopic, body: bytes, *, wrapped: bool = False, key: str | None = None, once: str | None = None
) -> Events:
    """The records of a body: an event, or an array of them. Raises NotEvents.

    wrapped: each event stands as the `value` of an object, beside its `key` and `headers`.
    key: the key of every event; once: what tells the request from others.
    """
    try:
        text = body.decode()
        several = text.lstrip(" \t\r\n").startswith("[")
        found = json_spans.elements(text) if several else [json_spans.whole(text)]
    except UnicodeDecodeError:
        raise NotEvents("bytes that are not UTF-8") from None
    except ValueError as error:
        raise NotEvents(f"no JSON: {error}") from None
    if not 0 < len(found) <= MOST:
        raise NotEvents(f"{len(found)} events")
    kinds, events = _Kinds.of(topic), Events()
    given = _named_key(topic, key) if key is not None else None
    for number, event in enumerate(found):
        headers: Headers = []
        if once is not None:
            headers.append((IDEMPOTENCY, (f"{once}/{number}" if several else once).encode()))
        try:
            record = _record(kinds, event, given, headers, wrapped=wrapped)
        except _Wrong as wrong:
            events.problems.extend({"event": number, **one.__dict__} for one in wrong.mismatches)
            if len(events.problems) >= _TOLD:
                break
        else:
            events.records.append(record)
    return events


class _Wrong(Exception):
    def __init__(self, *mismatches: Mismatch) -> None:
        super().__init__(mismatches)
        self.mismatches = mismatches


@dataclass(frozen=True)
class _Kinds:
    """What the values and keys of a topic are."""

    topic: CatalogTopic
    value: SparkType
    key: SparkType

    @classmethod
    def of(cls, topic: CatalogTopic) -> _Kinds:
        fields = {column.name: read(column.type) for column in topic.columns}
        key = SparkType("struct", tuple((column.name, read(column.type)) for column in topic.key))
        if topic.key_format != "json":
            key = read(_TYPES.get(topic.key_format, "string"))
        if topic.format != "json":
            return cls(topic, read(_TYPES[topic.format]), key)
        # The columns of a table's key may stand in the value, too: the record key takes their place.
        named = dict(key.fields) if topic.key_format == "json" else dict.fromkeys(topic.key_columns, key)
        return cls(topic, SparkType("struct", tuple({**fields, **_only(named, topic.key_columns)}.items())), key)


def _record(kinds: _Kinds, event: Span, key: Span | None, headers: Headers, *, wrapped: bool) -> Outgoing:
    topic = kinds.topic
    if wrapped:
        event, own, more = _unwrapped(event)
        key, headers = own or key, [*more, *headers]
    wrong = list(_value_problems(kinds, event.value))
    if key is None and topic.key_columns:
        key = _key_within(topic, event)
        if key is None:
            columns = " and ".join(topic.key_columns)
            wrong.append(Mismatch("key", f"a key: the parameter `key`, or {columns} in the event", "none"))
    if key is not None:
        wrong.extend(mismatches(key.value, kinds.key, "key"))
        if key.value is None:
            wrong.append(Mismatch("key", "a key", "null"))
    if wrong:
        raise _Wrong(*wrong)
    value = _encoded(topic.format, event)
    found = Outgoing(topic.name, None, _encoded(topic.key_format, key) if key is not None else None, value, headers)
    size = sum(len(part or b"") for part in (found.key, value, *(held for _, held in headers)))
    if size > LARGEST:
        raise _Wrong(Mismatch("", f"an event of at most {LARGEST} bytes", f"{size} bytes"))
    return found


def _unwrapped(event: Span) -> tuple[Span, Span | None, Headers]:
    if not isinstance(event.value, dict):
        raise _Wrong(Mismatch("", "an object with value, key and headers", got(event.value)))
    members = json_spans.members(event.text)
    wrong = [Mismatch(name, "one of the fields key, value, headers", "another name") for name in members]
    wrong = [one for one in wrong if one.where not in _RECORD]
    if "value" not in members:
        wrong.append(Mismatch("value", "an event, or null", "nothing"))
    headers = members["headers"].value if "headers" in members else {}
    if not isinstance(headers, dict) or not all(isinstance(text, str) for text in headers.values()):
        wrong.append(Mismatch("headers", "an object of texts", got(headers)))
    if wrong:
        raise _Wrong(*wrong)
    return members["value"], members.get("key"), [(name, text.encode()) for name, text in headers.items()]


def _value_problems(kinds: _Kinds, value: object) -> Iterator[Mismatch]:
    if value is not None:
        yield from mismatches(value, kinds.value)
    elif not kinds.topic.key_columns:
        yield Mismatch("", "an event", "null, which deletes a key of a table; this is a topic")


def _key_within(topic: CatalogTopic, event: Span) -> Span | None:
    """The key of a table's event that holds the key's columns."""
    value = event.value
    if not isinstance(value, dict) or not all(value.get(name) is not None for name in topic.key_columns):
        return None
    if topic.key_format != "json":
        return Span(value[topic.key_columns[0]], "")
    members = json_spans.members(event.text)
    parts = (f"{json.dumps(name)}:{members[name].text}" for name in topic.key_columns)
    return Span({name: value[name] for name in topic.key_columns}, "{" + ",".join(parts) + "}")


def _named_key(topic: CatalogTopic, text: str) -> Span:
    """The key that the parameter `key` names."""
    if topic.key_format in ("string", "bytes"):
        return Span(text, "")
    try:
        return json_spans.whole(text)
    except ValueError:
        return Span(text, "")


def _encoded(format: str, span: Span) -> bytes | None:
    """The bytes of a value that is of its type, as Kafka's own serializers write them."""
    value = span.value
    if value is None:
        return None
    if format == "json":
        return span.text.encode()
    if format == "string":
        return str(value).encode("utf-8", "surrogatepass")
    if format == "long":
        return struct.pack(">q", value)
    if format == "double":
        return struct.pack(">d", float(value) if isinstance(value, Decimal | int) else value)
    return base64.b64decode(value)


def _only(named: Mapping[str, SparkType], names: tuple[str, ...]) -> dict[str, SparkType]:
    return {name: of for name, of in named.items() if name in names}

"""Events that clients send, as records of a topic: checked against its declared schema, all or none."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from tailrace.events import json_spans
from tailrace.events.codecs import TopicCodecs
from tailrace.events.json_spans import JsonSpan
from tailrace.kafka.async_delivery import LARGEST
from tailrace.kafka.delivery import Headers, Outgoing
from tailrace.types.values import Mismatch, got, is_text, within

MOST = 1000
# What a request's `Idempotency-Key` becomes, for `.dedupe(header="idempotency-key")`.
IDEMPOTENCY = "idempotency-key"
_TOLD = 100
_RECORD = ("key", "value", "headers")


@dataclass
class CheckedEvents:
    """Records to write, or problems: each with the number of the event, the place in it, and what was expected."""

    records: list[Outgoing] = field(default_factory=list)
    problems: list[dict[str, object]] = field(default_factory=list)


class NotEvents(ValueError):
    """The body is neither an event nor an array of events. The text says what it is instead."""


def read_events(
    codecs: TopicCodecs, body: bytes, *, wrapped: bool = False, key: str | None = None, once: str | None = None
) -> CheckedEvents:
    """The records of a body: an event, or an array of them. Raises NotEvents.

    wrapped: each event is the `value` of an object, beside its `key` and `headers`.
    key: the key of every event; once: the request's idempotency key.
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
    events = CheckedEvents()
    given = _named_key(codecs, key) if key is not None else None
    for number, event in enumerate(found):
        headers: Headers = []
        if once is not None:
            headers.append((IDEMPOTENCY, (f"{once}/{number}" if several else once).encode()))
        try:
            record = _record(codecs, event, given, headers, wrapped=wrapped)
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


def _record(codecs: TopicCodecs, event: JsonSpan, key: JsonSpan | None, headers: Headers, *, wrapped: bool) -> Outgoing:
    topic, where = codecs.topic, "key"
    if wrapped:
        event, own, more = _unwrapped(event)
        # A record's own idempotency key wins over that of the request.
        told = any(name == IDEMPOTENCY for name, _ in more)
        key, headers = own or key, more if told else [*more, *headers]
    wrong: list[Mismatch] = []
    value = _value(codecs, event, wrong)
    if key is None and topic.key_columns:
        key = _key_within(codecs, event)
        where = "" if codecs.key.names else topic.key_columns[0]
        if key is None:
            columns = " and ".join(topic.key_columns)
            wrong.append(Mismatch("key", f"a key: the parameter `key`, or {columns} in the event", "none"))
    data = None
    if key is not None and key.value is None:
        wrong.append(Mismatch("key", "a key", "null"))
    elif key is not None:
        data = codecs.key.encode(key, where, wrong)
    if wrong:
        raise _Wrong(*wrong)
    found = Outgoing(topic.name, None, data, value, headers)
    size = sum(len(part or b"") for part in (data, value, *(held for _, held in headers)))
    if size > LARGEST:
        raise _Wrong(Mismatch("", f"an event of at most {LARGEST} bytes", f"{size} bytes"))
    return found


def _value(codecs: TopicCodecs, event: JsonSpan, wrong: list[Mismatch]) -> bytes | None:
    if event.value is not None:
        return codecs.value.encode(event, "", wrong)
    if not codecs.topic.key_columns:
        wrong.append(Mismatch("", "an event", "null, which deletes a key of a table; this is a topic"))
    return None


def _unwrapped(event: JsonSpan) -> tuple[JsonSpan, JsonSpan | None, Headers]:
    if not isinstance(event.value, dict):
        raise _Wrong(Mismatch("", "an object with value, key and headers", got(event.value)))
    members = json_spans.members(event.text)
    wrong = [
        Mismatch(within("", name), "one of the fields key, value, headers", "another name")
        for name in members
        if name not in _RECORD
    ]
    if "value" not in members:
        wrong.append(Mismatch("value", "an event, or null", "nothing"))
    headers = members["headers"].value if "headers" in members else {}
    if not isinstance(headers, dict) or not all(isinstance(text, str) for text in headers.values()):
        wrong.append(Mismatch("headers", "an object of texts", got(headers)))
    elif not all(is_text(text) for pair in headers.items() for text in pair):
        wrong.append(Mismatch("headers", "texts of Unicode characters", "half a character"))
    if wrong:
        raise _Wrong(*wrong)
    return members["value"], members.get("key"), [(name, text.encode()) for name, text in headers.items()]


def _key_within(codecs: TopicCodecs, event: JsonSpan) -> JsonSpan | None:
    """The key of a table's event, if the event has the key's columns."""
    value, names = event.value, codecs.topic.key_columns
    if not isinstance(value, dict) or not all(value.get(name) is not None for name in names):
        return None
    if not codecs.key.names:
        return JsonSpan(value[names[0]], "")
    members = json_spans.members(event.text)
    parts = (f"{json.dumps(name)}:{members[name].text}" for name in names)
    return JsonSpan({name: value[name] for name in names}, "{" + ",".join(parts) + "}")


def _named_key(codecs: TopicCodecs, text: str) -> JsonSpan:
    """The key that the parameter `key` names."""
    if codecs.key.texts:
        return JsonSpan(text, "")
    try:
        return json_spans.whole(text)
    except ValueError:
        return JsonSpan(text, "")

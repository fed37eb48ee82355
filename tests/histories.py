"""Random histories of source topics: what producers may write, good and bad, before any product code has seen it.

A history is a list of sends. `records` makes records of it, with a prefix that tells the keys of one history
from those of others, so that many histories can share topics. A view makes the same of a history in whatever
order the partitions are read: a repeat has the content of its original, and a second content under the same
message id follows its original in the same partition.
"""

from __future__ import annotations

import json
import random
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from hypothesis import strategies as st

PARTITIONS = 2
MINUTE = 60_000
# All times of a history lie within this many minutes, so no event is late by more.
SPAN = 40
_MEGABYTE = 1_000_000

EVENTS = "events"
TABLES = ("a", "b", "c")


@dataclass(frozen=True)
class Record:
    """A record of a source topic, as Kafka keeps it; the offset is known once it was written."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...]
    timestamp: int
    partition: int
    offset: int = -1


@dataclass(frozen=True)
class Key:
    """A key of a history; `bare` ones are the same in every history."""

    text: str
    bare: bool

    def named(self, prefix: str) -> str:
        return self.text if self.bare else prefix + self.text


@dataclass(frozen=True)
class Event:
    """A send to the topic of events; times are minutes after the start of the history."""

    client: Key | None
    partition: int
    k: Key | None
    n: int | None
    x: float | None
    s: str | None
    note: str | None
    message: int | None
    at: int | None
    minute: int
    escaped: bool = False


@dataclass(frozen=True)
class Put:
    """A send to a table: a value, None to delete, or bytes that are neither."""

    table: str
    key: Key | None
    value: tuple[tuple[str, Any], ...] | bytes | None
    minute: int
    escaped: bool = False


@dataclass(frozen=True)
class Spoiled:
    """A send to the topic of events that no view can use."""

    client: Key | None
    value: bytes | None
    partition: int


Send = Event | Put | Spoiled

HOSTILE = (
    *("", " ", "\n", "\r\n\t", "\x00", "a\x00b", "\x1f", "\x7f", '"', "'", "\\", "\\u0041", '{"a":1}', '["x",1]', "[]"),
    *("null", "true", "0", "-0", "00", "1e3", "1.0", "NaN", "a,b", "a:b", "a/b?c#d%20", "../..", "{}", "*", "$1", "%s"),
    *(
        "é",
        "e\u0301",
        "ß",
        "İ",
        "🐢",
        "👨‍👩‍👧",
        "\u202eabc",
        "\ufeff",
        "\u2028",
        "\ufffd",
        "\uffff",
        "\U0010ffff",
        "x" * 5000,
    ),
)
# Not JSON, not all of it, too much of it, not an object, not of the declared types, not UTF-8.
BAD = (
    *(None, b"", b" ", b"{", b'{"k":"a"', b"{}{}", b'{"k":"a"} x', b"[]", b"1", b'"text"', b"null", b"\xff\xfe\x00"),
    *(b'{"n":"one"}', b'{"k":"a","n":1.5}', b'{"k":{},"n":[]}', b'{"k":"a","n":99999999999999999999}', b"{'k':'a'}"),
    *(b'{"k":"\xff"}', b'{"k":"a","x":NaN}', b'{"k":"a","n":true}', b'{"k":"a\n"}'),
)
BAD_TABLE = (b"", b"{", b"[]", b"1", b'{"year":"x","score":"x","tag":"x"} x', b"\xff", b"null x")

_texts = st.sampled_from(HOSTILE) | st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
_notes = st.none() | _texts | st.sampled_from(["a", "\u00e9", "🐢", '"']).map(lambda c: f"big:{c}")
_minutes = st.integers(0, SPAN)
_numbers = st.none() | st.sampled_from([13, 0, -1, 2**40, -(2**40)]) | st.integers(-9, 9)
_quarters = st.none() | st.integers(-1, 40).map(lambda n: n / 4)


@st.composite
def keys(draw: st.DrawFn) -> list[Key]:
    """A few keys, so that most occur more than once."""
    found = draw(st.lists(st.tuples(_texts, st.integers(0, 4)), min_size=1, max_size=4))
    return [Key(text, bare == 0) for text, bare in found]


@st.composite
def events(draw: st.DrawFn, most: int = 24) -> list[Send]:
    """Events: late, repeated, in any order across partitions, with nulls, hostile keys and spoiled records."""
    own, clients = draw(keys()), draw(keys())
    found: list[Send] = []
    originals: list[Event] = []
    for number in range(draw(st.integers(1, most))):
        what = draw(st.integers(0, 9))
        client = draw(st.none() | st.sampled_from(clients))
        partition = draw(st.integers(0, PARTITIONS - 1))
        if what == 0:
            found.append(Spoiled(client, draw(st.sampled_from(BAD)), partition))
            continue
        fresh = Event(
            client=client,
            partition=partition,
            k=draw(st.none() | st.sampled_from(own) | st.sampled_from(own)),
            n=draw(_numbers),
            x=draw(_quarters),
            s=draw(st.none() | _texts),
            note=draw(_notes) if what == 1 else None,
            message=number if draw(st.integers(0, 4)) else None,
            at=draw(st.none() | _minutes | _minutes),
            minute=draw(_minutes),
            escaped=draw(st.booleans()),
        )
        if what in (2, 3) and originals:
            told = draw(st.sampled_from(originals))
            if what == 2:
                minute, escaped = fresh.minute, fresh.escaped
                found.append(replace(told, client=client, partition=partition, minute=minute, escaped=escaped))
            else:
                found.append(replace(fresh, client=told.client, partition=told.partition, message=told.message))
            continue
        originals.append(fresh)
        found.append(fresh)
    return found


@st.composite
def puts(draw: st.DrawFn, most: int = 24, tables: Sequence[str] = TABLES) -> list[Send]:
    """Values of tables, with deletes on every side, nulls, hostile keys and values that can't be read."""
    own = draw(keys())
    found: list[Send] = []
    for _ in range(draw(st.integers(1, most))):
        table = draw(st.sampled_from(tables))
        key = draw(st.sampled_from(own)) if draw(st.integers(0, 11)) else None
        what = draw(st.integers(0, 9))
        value: tuple[tuple[str, Any], ...] | bytes | None
        if what == 0:
            value = draw(st.sampled_from(BAD_TABLE))
        elif what <= 3:
            value = None
        else:
            value = tuple(draw(_value(table)).items())
        found.append(Put(table, key, value, draw(_minutes), draw(st.booleans())))
    return found


@st.composite
def _value(draw: st.DrawFn, table: str) -> dict[str, Any]:
    if table == "a":
        return {"title": draw(_notes), "year": draw(st.none() | st.integers(1998, 2002))}
    if table == "b":
        return {"score": draw(_quarters)}
    return {"tag": draw(st.none() | st.sampled_from(["hidden", "new", "old"]) | _texts), "more": draw(st.booleans())}


@st.composite
def rated(draw: st.DrawFn, most: int = 24) -> list[Send]:
    """Values of tables, and events under the same keys."""
    sends = draw(puts(most))
    own = sorted({s.key for s in sends if isinstance(s, Put) and s.key is not None}, key=lambda k: (k.text, k.bare))
    for number in range(draw(st.integers(0, most if own else 0))):
        sends.insert(
            draw(st.integers(0, len(sends))),
            Event(
                client=None,
                partition=draw(st.integers(0, PARTITIONS - 1)),
                k=draw(st.sampled_from(own)),
                n=draw(_numbers),
                x=draw(_quarters),
                s=None,
                note=None,
                message=number,
                at=None,
                minute=draw(_minutes),
            ),
        )
    return sends


def traffic(chance: random.Random, first: int, count: int) -> list[Send]:
    """Events and values of two tables as they flow while something breaks; `first` numbers the messages."""
    found: list[Send] = []
    for number in range(first, first + count):
        key, minute = Key(f"k{chance.randrange(12)}", bare=True), chance.randrange(SPAN)
        client = Key(f"c{chance.randrange(8)}", bare=True)
        x, s = chance.randrange(41) / 4, chance.choice("ab")
        event = Event(client, 0, key, chance.randrange(-9, 99), x, s, None, number, minute, chance.randrange(SPAN))
        found.append(event)
        if chance.random() < 0.1:
            found.append(replace(event, client=Key(f"c{chance.randrange(8)}", bare=True)))
        if chance.random() < 0.02:
            found.append(Spoiled(client, chance.choice(BAD), 0))
        if chance.random() < 0.2:
            value: dict[str, tuple[tuple[str, Any], ...]] = {
                "a": (("title", f"t{number}"), ("year", chance.randrange(1998, 2003))),
                "b": (("score", x),),
            }
            table = chance.choice("ab")
            found.append(Put(table, key, None if chance.random() < 0.3 else value[table], minute))
    return found


def everything() -> list[Send]:
    """Every hostile key and every record that can't be used, at least once."""
    found: list[Send] = []
    for number, text in enumerate(HOSTILE):
        key, minute = Key(text, bare=True), number % SPAN
        event = Event(key, 0, key, number, number / 4, text, None, number, minute, minute, escaped=number % 2 == 0)
        found += [event, replace(event, n=-number, message=None), replace(event, minute=minute + 1)]
        found += [Put("a", key, (("title", text), ("year", 2000 + number % 2)), minute)]
        found += [Put("b", key, (("score", number / 4),), minute)]
        found += [Put("c", key, (("tag", text), ("more", None)), minute)]
        if number % 3 == 0:
            found.append(Put(TABLES[number // 3 % 3], key, None, minute))
        if number % 5 == 0:
            found.append(Put("a", key, (("title", None), ("year", 1999)), minute))
    client = Key("spoiled", bare=True)
    found += [Spoiled(client, value, 0) for value in BAD]
    found += [Put(table, client, value, 0) for table in TABLES for value in BAD_TABLE]
    return found


def records(sends: Iterable[Send], prefix: str, start: int, suffix: str = "") -> list[Record]:
    """The records of a history whose keys begin with a prefix and whose times begin at `start`, in ms since 1970."""
    return [_record(send, prefix, start, suffix) for send in sends]


def _record(send: Send, prefix: str, start: int, suffix: str) -> Record:
    if isinstance(send, Put):
        key = send.key.named(prefix).encode() if send.key is not None else None
        value = send.value
        if isinstance(value, tuple):
            value = _json({name: _grown(part, send.escaped) for name, part in value}, send.escaped)
        return Record(send.table + suffix, key, value, (), start + send.minute * MINUTE, _partition(key, 0))
    key = send.client.named(prefix).encode() if send.client is not None else None
    partition = _partition(key, send.partition)
    if isinstance(send, Spoiled):
        return Record(EVENTS + suffix, key, send.value, (), start, partition)
    body = {
        "k": send.k.named(prefix) if send.k is not None else None,
        "n": send.n,
        "x": send.x,
        "s": send.s,
        "note": _grown(send.note, send.escaped),
        "id": f"{prefix}{send.message}" if send.message is not None else None,
        "at": start + send.at * MINUTE if send.at is not None else None,
    }
    headers: tuple[tuple[str, bytes], ...] = ()
    if send.message is not None:
        # If several headers have one name, the last counts.
        headers = (("message-id", b"other"), ("message-id", f"{prefix}{send.message}".encode()))
    # A null may also be left out.
    body = {name: part for name, part in body.items() if part is not None or not send.escaped}
    value = _json(body, send.escaped)
    return Record(EVENTS + suffix, key, value, headers, start + send.minute * MINUTE, partition)


def _partition(key: bytes | None, otherwise: int) -> int:
    """The partition of a key: all its records are in one, as with every producer."""
    return otherwise if key is None else zlib.crc32(key) % PARTITIONS


def _json(body: object, escaped: bool) -> bytes:
    return json.dumps(body, ensure_ascii=escaped).encode()


def _grown(part: Any, escaped: bool) -> Any:
    if isinstance(part, str) and part.startswith("big:"):
        character = part.removeprefix("big:")
        # As many bytes as JSON takes for it, without the quotes around it.
        return character * (_MEGABYTE // (len(_json(character, escaped)) - 2))
    return part

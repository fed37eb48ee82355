"""Spark SQL types, as the catalog spells them: what JSON values they have, for documents and for checking events."""

from __future__ import annotations

import base64
import math
import re
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Any

from tailrace.contracts.catalog import Column
from tailrace.queries.kinds import split_type

_BITS = {"tinyint": 8, "smallint": 16, "int": 32, "integer": 32, "bigint": 64, "long": 64}
_FLOATING = {"float": 32, "double": 64}
_DECIMAL = re.compile(r"decimal\((\d+),\s*(\d+)\)", re.ASCII)
_TEXTS = re.compile(r"string|(var)?char\(\d+\)", re.ASCII)
_DATE = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d(\.\d{1,9})?)?(Z|[+-]\d\d:\d\d)?", re.ASCII)


@dataclass(frozen=True)
class SparkType:
    """A type: its name without what is in brackets, and what it is made of.

    `fields` are those of a struct; `of` is the type of an array's elements or of a map's values; `digits` are
    precision and scale of a decimal.
    """

    name: str
    fields: tuple[tuple[str, SparkType], ...] = ()
    of: SparkType | None = None
    digits: tuple[int, int] = (10, 0)


@dataclass(frozen=True)
class Mismatch:
    """A value that is not of its type: where it stands, what was expected there, and what came."""

    where: str
    expected: str
    got: str


def read(text: str) -> SparkType:
    """The type that a text such as `bigint` or `array<struct<name:string>>` spells."""
    text = text.strip()
    lower = text.lower()
    if lower.startswith("struct<") and lower.endswith(">"):
        parts = (part.partition(":") for part in split_type(text[len("struct<") : -1]))
        return SparkType("struct", tuple((name.strip(), read(of)) for name, colon, of in parts if colon))
    if lower.startswith("array<") and lower.endswith(">"):
        return SparkType("array", of=read(text[len("array<") : -1]))
    if lower.startswith("map<") and lower.endswith(">"):
        return SparkType("map", of=read(split_type(text[len("map<") : -1])[-1]))
    if (found := _DECIMAL.fullmatch(lower)) is not None:
        return SparkType("decimal", digits=(int(found[1]), int(found[2])))
    return SparkType("string" if _TEXTS.fullmatch(lower) else lower)


def row_schema(columns: Sequence[Column], *, never_null: Sequence[str] = ()) -> dict[str, Any]:
    """The JSON schema of an object with these columns; those that are never null are always there."""
    properties = {}
    for column in columns:
        found = schema(read(column.type))
        properties[column.name] = found if column.name in never_null else _or_null(found)
    result: dict[str, Any] = {"type": "object", "properties": properties, "additionalProperties": False}
    return {**result, "required": list(never_null)} if never_null else result


def schema(of: SparkType) -> dict[str, Any]:
    """The JSON schema of the values of a type, null left aside."""
    if of.name in _BITS:
        bits = _BITS[of.name]
        found: dict[str, Any] = {"type": "integer", "minimum": -(2 ** (bits - 1)), "maximum": 2 ** (bits - 1) - 1}
        return {**found, "format": f"int{bits}"} if bits >= 32 else found
    if of.name in ("float", "double"):
        return {"type": "number", "format": of.name}
    if of.name == "decimal":
        return {
            "type": "number",
            "description": f"A decimal of {of.digits[0]} digits, {of.digits[1]} of them fraction.",
        }
    if of.name == "boolean":
        return {"type": "boolean"}
    if of.name == "date":
        return {"type": "string", "format": "date"}
    if of.name == "timestamp":
        return {"type": "string", "format": "date-time"}
    if of.name == "timestamp_ntz":
        return {"type": "string", "description": "A time without an offset."}
    if of.name == "binary":
        return {"type": "string", "contentEncoding": "base64"}
    if of.name == "string":
        return {"type": "string"}
    if of.name == "array" and of.of is not None:
        return {"type": "array", "items": _or_null(schema(of.of))}
    if of.name == "map" and of.of is not None:
        return {"type": "object", "additionalProperties": _or_null(schema(of.of))}
    if of.name == "struct":
        fields = {name: _or_null(schema(one)) for name, one in of.fields}
        return {"type": "object", "properties": fields, "additionalProperties": False}
    return {}


def mismatches(value: object, of: SparkType, where: str = "") -> Iterator[Mismatch]:
    """What is wrong with a value that was decoded from JSON, with decimals for fractions; null is of every type."""
    if value is None:
        return
    if of.name == "struct":
        if not isinstance(value, dict):
            yield Mismatch(where, "an object", got(value))
            return
        fields = dict(of.fields)
        for name, one in value.items():
            if name in fields:
                yield from mismatches(one, fields[name], within(where, name))
            else:
                yield Mismatch(within(where, name), f"one of the fields {', '.join(fields)}", "another name")
    elif of.name == "array" and of.of is not None:
        if not isinstance(value, list):
            yield Mismatch(where, "an array", got(value))
            return
        for number, one in enumerate(value):
            yield from mismatches(one, of.of, f"{where}[{number}]")
    elif of.name == "map" and of.of is not None:
        if not isinstance(value, dict):
            yield Mismatch(where, "an object", got(value))
            return
        for name, one in value.items():
            yield from mismatches(one, of.of, within(where, name))
    elif (expected := _expected(value, of)) is not None:
        yield Mismatch(where, expected, got(value))


def got(value: object) -> str:
    """A value in a message: so much that it can be found."""
    text = f"an {'object' if isinstance(value, dict) else 'array'}" if isinstance(value, dict | list) else repr(value)
    if isinstance(value, bool):
        text = str(value).lower()
    elif isinstance(value, Decimal):
        text = str(value)
    return text if len(text) <= 100 else text[:97] + "…"


def _expected(value: object, of: SparkType) -> str | None:
    """What was expected instead of a value; None where it is of the type."""
    if of.name in _BITS:
        bits = _BITS[of.name]
        held = type(value) is int and -(2 ** (bits - 1)) <= value < 2 ** (bits - 1)
        return None if held else f"an integer of {bits} bits"
    if of.name in ("float", "double"):
        if not isinstance(value, int | Decimal) or type(value) is bool:
            return "a number"
        return None if floating(value, of.name) is not None else f"a number that {_FLOATING[of.name]} bits can hold"
    if of.name == "decimal":
        precision, scale = of.digits
        if isinstance(value, int | Decimal) and type(value) is not bool and fits(Decimal(value), precision, scale):
            return None
        return f"a number of at most {precision} digits, {scale} of them fraction"
    if of.name == "boolean":
        return None if isinstance(value, bool) else "true or false"
    if not isinstance(value, str):
        return "text"
    if of.name == "date":
        return None if _DATE.fullmatch(value) and _parses(date, value) else "a date such as 2026-01-31"
    if of.name in ("timestamp", "timestamp_ntz"):
        return None if _TIME.fullmatch(value) and _parses(datetime, value) else "a time such as 2026-01-31T09:30:00Z"
    if of.name == "binary":
        return None if _is_base64(value) else "bytes in base64"
    return None


def floating(value: int | Decimal, type: str) -> float | None:
    """The nearest `float` or `double` to a number; None where the number is too large for it."""
    try:
        found = float(value)
        found = found if type == "double" else float(struct.unpack("<f", struct.pack("<f", found))[0])
    except OverflowError:
        return None
    return found if math.isfinite(found) else None


def fits(value: Decimal, precision: int, scale: int) -> bool:
    """Whether a decimal of so many digits, so many of them fraction, can hold a number."""
    exponent = value.as_tuple().exponent
    return isinstance(exponent, int) and -exponent <= scale and value.adjusted() < precision - scale


def _parses(kind: type[date], text: str) -> bool:
    try:
        # A fraction of a second may have more digits than Python takes.
        kind.fromisoformat(re.sub(r"(\.\d{6})\d+", r"\1", text))
    except ValueError:
        return False
    return True


def _is_base64(text: str) -> bool:
    try:
        base64.b64decode(text, validate=True)
    except ValueError:
        return False
    return True


def _or_null(found: dict[str, Any]) -> dict[str, Any]:
    return {**found, "type": [found["type"], "null"]} if "type" in found else found


def is_text(value: str) -> bool:
    """Whether it can be written as UTF-8: an escape such as `\\ud800` alone is half a character."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def within(where: str, name: str) -> str:
    """The place of a member; what no answer can hold of its name is escaped."""
    name = name.encode(errors="backslashreplace").decode()
    return f"{where}.{name}" if where else name

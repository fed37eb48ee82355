"""Spark SQL types, as the catalog spells them. Null is a value of every type, and every field may be missing."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from tailrace.contracts.catalog import Column
from tailrace.types.tree import RecordField, Type

_BITS = {"tinyint": 8, "smallint": 16, "int": 32, "integer": 32, "bigint": 64, "long": 64}
_KINDS = {
    **dict.fromkeys(_BITS, "integer"),
    **{kind: kind for kind in ("float", "double", "boolean", "date", "timestamp")},
    "timestamp_ntz": "local timestamp",
    "binary": "bytes",
    "string": "text",
}
_SIZED = re.compile(r"(decimal|char|varchar)\s*(?:\(([\d\s,]*)\))?", re.ASCII)


def read(text: str) -> Type:
    """The type that a text such as `bigint` or `array<struct<name:string>>` spells."""
    text = text.strip()
    lower = text.lower()
    if lower.startswith("struct<") and lower.endswith(">"):
        parts = (part.partition(":") for part in _split(text[len("struct<") : -1]))
        fields = tuple(RecordField(name.strip(), read(of), True) for name, colon, of in parts if colon)
        return Type("record", text, nullable=True, fields=fields)
    if lower.startswith("array<") and lower.endswith(">"):
        return Type("array", text, nullable=True, of=read(text[len("array<") : -1]))
    if lower.startswith("map<") and lower.endswith(">"):
        return Type("map", text, nullable=True, of=read(_split(text[len("map<") : -1])[-1]))
    if (sized := _SIZED.fullmatch(lower)) is None:
        return Type(_KINDS.get(lower, "unknown"), text, nullable=True, bits=_BITS.get(lower, 0))
    if sized[1] != "decimal":
        return Type("text", text, nullable=True)
    precision, scale, *_ = *map(int, re.findall(r"\d+", sized[2] or "10")), 0, 0
    return Type("decimal", text, nullable=True, digits=(precision, scale))


def row(columns: Sequence[Column], *, never_null: Sequence[str] = ()) -> Type:
    """The type of an object with these columns. Those that are never null are never missing."""
    fields = []
    for column in columns:
        null = column.name not in never_null
        fields.append(RecordField(column.name, replace(read(column.type), nullable=null), null))
    return Type("record", "struct", fields=tuple(fields))


def _split(text: str) -> list[str]:
    """Split the text within the brackets of a type at the commas that no inner brackets enclose."""
    found, depth, start = [], 0, 0
    for i, character in enumerate(text):
        if character in "<(":
            depth += 1
        elif character in ">)":
            depth -= 1
        elif character == "," and depth == 0:
            found.append(text[start:i])
            start = i + 1
    found.append(text[start:])
    return found

"""Column types: what the text of a Spark SQL type says about the values in a row's JSON."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum


class Kind(Enum):
    """What values are, as far as comparing them goes."""

    INTEGER = "integer"
    DECIMAL = "decimal"
    DOUBLE = "double"
    TEXT = "text"
    BOOLEAN = "boolean"
    TIME = "time"
    STRUCT = "struct"
    OTHER = "other"


NUMBERS = frozenset({Kind.INTEGER, Kind.DECIMAL, Kind.DOUBLE})

_KINDS = {
    "tinyint": Kind.INTEGER,
    "smallint": Kind.INTEGER,
    "int": Kind.INTEGER,
    "integer": Kind.INTEGER,
    "bigint": Kind.INTEGER,
    "long": Kind.INTEGER,
    "float": Kind.DOUBLE,
    "double": Kind.DOUBLE,
    "string": Kind.TEXT,
    "boolean": Kind.BOOLEAN,
    "timestamp": Kind.TIME,
    "timestamp_ntz": Kind.TIME,
    "date": Kind.TIME,
}
_SIZED = re.compile(r"(decimal|char|varchar)\s*(\([\d\s,]*\))?", re.ASCII)
_SIZED_KINDS = {"decimal": Kind.DECIMAL, "char": Kind.TEXT, "varchar": Kind.TEXT}


@dataclass(frozen=True)
class Type:
    """A type: its text as Spark spells it, its kind, and of a struct the types of its fields."""

    text: str
    kind: Kind
    fields: Mapping[str, Type] = field(default_factory=dict, compare=False)


def read_type(text: str) -> Type:
    """The type that a text such as `bigint` or `struct<name:string>` spells; one that is not known is OTHER."""
    text = text.strip()
    lower = text.lower()
    if lower.startswith("struct<") and lower.endswith(">"):
        parts = (part.partition(":") for part in split_type(text[len("struct<") : -1]))
        return Type(text, Kind.STRUCT, {name.strip(): read_type(of) for name, colon, of in parts if colon})
    if (sized := _SIZED.fullmatch(lower)) is not None:
        return Type(text, _SIZED_KINDS[sized[1]])
    return Type(text, _KINDS.get(lower, Kind.OTHER))


def split_type(text: str) -> list[str]:
    """What stands within the brackets of a type, cut at the commas that are in no brackets of their own."""
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

"""Kinds: what the type of a column says about comparing its values."""

from __future__ import annotations

from enum import Enum

from tailrace.types.tree import Type


class Kind(Enum):
    """What values are for comparisons."""

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
    "integer": Kind.INTEGER,
    "decimal": Kind.DECIMAL,
    "float": Kind.DOUBLE,
    "double": Kind.DOUBLE,
    "text": Kind.TEXT,
    "boolean": Kind.BOOLEAN,
    "timestamp": Kind.TIME,
    "local timestamp": Kind.TIME,
    "date": Kind.TIME,
    "record": Kind.STRUCT,
}


def kind_of(type: Type) -> Kind:
    """The kind of a type's values; OTHER where they are not compared."""
    return _KINDS.get(type.kind, Kind.OTHER)

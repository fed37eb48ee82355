"""The type of a value, as a tree."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

DAY = 86_400_000_000


@dataclass(frozen=True)
class Type:
    """A type of values. Members that its `kind` does not need keep their defaults.

    The kinds are `null`, `boolean`, `integer`, `float`, `double`, `decimal`, `text`, `uuid`, `enum`, `bytes`,
    `fixed`, `date`, `time`, `timestamp`, `local timestamp`, `array`, `map`, `record` and `union`. `unknown`
    is any other type of Spark. For a decimal, `digits` are precision and scale, and `size` is its number of
    bytes, if Avro fixes that. `of` is the type of an array's items or of a map's values.
    """

    kind: str
    # Spark's text, or the name in an Avro union: for a named type, its full name.
    name: str
    nullable: bool = False
    # Values are written as bytes; the JSON of any other type goes on as it came.
    binary: bool = False
    bits: int = 0
    digits: tuple[int, int] = (10, 0)
    size: int = 0
    # How many microseconds the number 1 stands for, if dates and times may be numbers.
    unit: int = 0
    symbols: tuple[str, ...] = ()
    fields: tuple[RecordField, ...] = ()
    branches: tuple[Type, ...] = ()
    of: Type | None = None


@dataclass(frozen=True)
class RecordField:
    """A field of a record. If it is `optional`, it may be missing; then `default` is written."""

    name: str
    type: Type
    optional: bool = False
    default: Any = None

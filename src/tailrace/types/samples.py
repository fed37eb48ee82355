"""Values of types, for examples in documents."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from tailrace.contracts.catalog import Column
from tailrace.types.spark_types import SparkType, read

PAGE: dict[str, Any] = {"rows": [], "position": "4be1a27c.1.0-17.1-4", "as_of": 1790000000000, "next": None}

_VALUES: dict[str, Any] = {
    "float": 8.5,
    "double": 8.5,
    "decimal": 12.5,
    "boolean": True,
    "date": "2026-01-31",
    "timestamp": "2026-01-31T09:30:00.000Z",
    "timestamp_ntz": "2026-01-31T09:30:00.000",
    "binary": "Ynl0ZXM=",
    "string": "text",
}


def value(of: SparkType) -> Any:
    """A value of a type."""
    if of.name == "struct":
        return {name: value(one) for name, one in of.fields}
    if of.name == "array" and of.of is not None:
        return [value(of.of)]
    if of.name == "map" and of.of is not None:
        return {"name": value(of.of)}
    if of.name == "decimal":
        return 1.5 if of.digits[1] else 1
    return _VALUES.get(of.name, 1)


def row(columns: Sequence[Column]) -> dict[str, Any]:
    """A row with these columns."""
    return {column.name: value(read(column.type)) for column in columns}


def key(columns: Sequence[Column]) -> Any:
    """A key of these columns, as a path or a record has it."""
    values = [value(read(column.type)) for column in columns]
    return values[0] if len(values) == 1 else json.dumps(values, separators=(",", ":"))

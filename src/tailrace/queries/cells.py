"""Cells: the values in a row's JSON, read by the type of their column.

A value that is missing, null, or of another type counts as null: a row never makes a query fail.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from functools import partial
from typing import Any

from tailrace.contracts.catalog import Column
from tailrace.queries import moments
from tailrace.queries.arithmetic import to_double
from tailrace.queries.kinds import Kind
from tailrace.queries.tree import Field, Scalar

Row = Mapping[str, object]

# As Spark writes them.
_WORDS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_WIDE = re.compile(r"decimal\((\d+)", re.ASCII)
# What decoding raises if it is no JSON, is nested too deep, or has a decimal beyond all numbers.
_NO_ROW = (ValueError, RecursionError, ArithmeticError)
# A double holds this many digits exactly.
_SAFE_DIGITS = 15


def row_decoder(columns: Sequence[Column]) -> Callable[[bytes], dict[str, Any] | None]:
    """A function that decodes rows, None for anything else. Decimals with more digits than a double has stay exact."""
    widths = [int(found) for column in columns for found in _WIDE.findall(column.type)]
    exact = max(widths, default=0) > _SAFE_DIGITS
    load = partial(json.loads, parse_float=Decimal) if exact else json.loads

    def decode(value: bytes) -> dict[str, Any] | None:
        try:
            found = load(value)
        except _NO_ROW:
            return None
        return found if isinstance(found, dict) else None

    return decode


def reader(field: Field) -> Callable[[Row], Scalar]:
    """A function that reads a field of a row."""
    read = _READERS.get(field.kind, _anything)
    name, *others = field.path
    if not others:
        return lambda row: read(row.get(name))

    def nested(row: Row) -> Scalar:
        found = row.get(name)
        for other in others:
            if not isinstance(found, dict):
                return None
            found = found.get(other)
        return read(found)

    return nested


def _integer(cell: object) -> Scalar:
    return cell if type(cell) is int else None


def _decimal(cell: object) -> Scalar:
    if type(cell) is int or isinstance(cell, Decimal):
        return cell
    # The row has the shortest spelling of the double.
    return Decimal(repr(cell)) if isinstance(cell, float) and math.isfinite(cell) else None


def _double(cell: object) -> Scalar:
    if type(cell) is float:
        return cell
    if isinstance(cell, str):
        return _WORDS.get(cell)
    return to_double(cell) if isinstance(cell, int | Decimal) and type(cell) is not bool else None


def _text(cell: object) -> Scalar:
    return cell if isinstance(cell, str) else None


def _boolean(cell: object) -> Scalar:
    return cell if isinstance(cell, bool) else None


def _anything(cell: object) -> Scalar:
    """A value of which a query only asks whether it is null."""
    return None if cell is None else True


_READERS: dict[Kind, Callable[[object], Scalar]] = {
    Kind.INTEGER: _integer,
    Kind.DECIMAL: _decimal,
    Kind.DOUBLE: _double,
    Kind.TEXT: _text,
    Kind.BOOLEAN: _boolean,
    Kind.TIME: moments.read_cell,
}

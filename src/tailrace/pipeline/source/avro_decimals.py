"""Avro decimals, whose bytes may hold more digits than they declare.

Of a decimal of up to 18 digits Spark takes the last eight bytes and passes over the others: a wrong number. So such a
decimal is read as a wider one, which Spark checks, and made narrow afterwards; what does not fit is seen there.
"""

from __future__ import annotations

import math
from functools import reduce
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, DecimalType, MapType, StructType

# Spark's widest decimal, and the widest that it holds in eight bytes.
_WIDEST = 38
_IN_EIGHT_BYTES = 18


def widened(schema: Any) -> Any:
    """An Avro schema, as plain data, with wider decimals in place of those that Spark would cut."""
    if isinstance(schema, list):
        return [widened(branch) for branch in schema]
    if not isinstance(schema, dict):
        return schema
    found = {**schema, **{name: widened(schema[name]) for name in ("type", "items", "values") if name in schema}}
    if isinstance(schema.get("fields"), list):
        found["fields"] = [widened(field) for field in schema["fields"]]
    precision, most = schema.get("precision"), _most(schema)
    if schema.get("logicalType") == "decimal" and isinstance(precision, int) and precision <= _IN_EIGHT_BYTES < most:
        found["precision"] = most
    return found


def _most(schema: dict[str, Any]) -> int:
    """How many digits a decimal of the schema's type may declare."""
    if schema.get("type") == "bytes":
        return _WIDEST
    size = schema.get("size") if schema.get("type") == "fixed" else None
    return min(_WIDEST, math.floor(math.log10(2) * (8 * size - 1))) if isinstance(size, int) and size > 0 else 0


def narrowed(value: Column, type: DataType) -> Column:
    """A value that was read with wider decimals, as the type that is declared."""
    # As text the type has no fields that must not be null: what does not fit is null before it is seen.
    return value.cast(type.simpleString()) if _beyond(value, type) is not None else value


def beyond(value: Column, type: DataType) -> Column:
    """Whether some decimal in a value that was read with wider ones does not fit into the type that is declared."""
    found = _beyond(value, type)
    return F.lit(False) if found is None else F.coalesce(found, F.lit(False))


def _beyond(value: Column, type: DataType) -> Column | None:
    """The same; None if nothing can be beyond its type."""
    if isinstance(type, DecimalType):
        return value.isNotNull() & value.cast(type).isNull() if type.precision <= _IN_EIGHT_BYTES else None
    if isinstance(type, StructType):
        fields = [_beyond(value.getField(field.name), field.dataType) for field in type]
        found = [F.coalesce(field, F.lit(False)) for field in fields if field is not None]
        return reduce(Column.__or__, found) if found else None
    if isinstance(type, ArrayType | MapType):
        inner = type.elementType if isinstance(type, ArrayType) else type.valueType
        if _beyond(F.lit(None), inner) is None:
            return None
        return F.exists(value if isinstance(type, ArrayType) else F.map_values(value), lambda one: beyond(one, inner))
    return None

"""Avro types as a tree: names resolved, logical types that count told from others, defaults as values to write."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tailrace.avro.names import PRIMITIVES, full_name, meant, namespace_of

# Which logical types mean something, and what of; any other is passed over, as Avro's rules say.
_LOGICAL = {
    ("int", "date"),
    ("int", "time-millis"),
    ("long", "time-micros"),
    ("long", "timestamp-millis"),
    ("long", "timestamp-micros"),
    ("long", "local-timestamp-millis"),
    ("long", "local-timestamp-micros"),
    ("string", "uuid"),
}
_LARGEST_FLOAT = (2 - 2**-23) * 2.0**127
BITS = {"int": 32, "long": 64}


class Unwritable(ValueError):
    """Nothing can be written with a schema; the text says why."""


@dataclass(frozen=True)
class AvroType:
    """A type. `kind` is `long`, `record`, `union` and so on; `branch` is what a union calls it, for a named type its
    full name.

    `fields` are those of a record, `branches` of a union; `of` is the type of an array's items or of a map's values;
    `digits` are precision and scale of a decimal, `size` the bytes of a fixed.
    """

    kind: str
    branch: str
    logical: str = ""
    fields: tuple[Field, ...] = ()
    branches: tuple[AvroType, ...] = ()
    of: AvroType | None = None
    symbols: tuple[str, ...] = ()
    size: int = 0
    digits: tuple[int, int] = (0, 0)

    @property
    def nullable(self) -> bool:
        """Whether null is a value of it."""
        return self.kind == "null" or any(branch.kind == "null" for branch in self.branches)


@dataclass(frozen=True)
class Field:
    """A field of a record. `default` is what is written where it is missing, where `optional` says that it may be."""

    name: str
    type: AvroType
    optional: bool = False
    default: Any = None


def read(schema: str) -> AvroType:
    """The type of a schema's text; raises Unwritable, for a recursive one as well: the pipeline reads none."""
    try:
        return _Reading().type(json.loads(schema), "")
    except Unwritable:
        raise
    except (ValueError, KeyError, TypeError, AttributeError):
        raise Unwritable("it is not an Avro schema") from None
    except RecursionError:
        raise Unwritable("it is nested too deeply") from None


class _Reading:
    """Visits a schema depth first, and knows the named types that it has passed."""

    def __init__(self) -> None:
        self._known: dict[str, AvroType | None] = {}

    def type(self, node: Any, namespace: str) -> AvroType:
        if isinstance(node, str):
            return AvroType(node, node) if node in PRIMITIVES else self._named(node, namespace)
        if isinstance(node, list):
            return AvroType("union", "union", branches=tuple(self.type(one, namespace) for one in node))
        kind = node["type"]
        if not isinstance(kind, str):
            return self.type(kind, namespace)
        if kind in ("array", "map"):
            return AvroType(kind, kind, of=self.type(node["items" if kind == "array" else "values"], namespace))
        if kind in PRIMITIVES:
            return _with_logical(AvroType(kind, kind), node)
        if kind in ("record", "error", "enum", "fixed"):
            return self._define(kind, full_name(node, namespace), node)
        return self._named(kind, namespace)

    def _named(self, name: str, namespace: str) -> AvroType:
        found = meant(name, namespace, self._known)
        if found is None:
            raise Unwritable(f"it names the type {name} and does not define it")
        known = self._known[found]
        if known is None:
            raise Unwritable(f"its type {name} is recursive")
        return known

    def _define(self, kind: str, name: str, node: Mapping[str, Any]) -> AvroType:
        if kind == "enum":
            found = AvroType("enum", name, symbols=tuple(map(str, node["symbols"])))
        elif kind == "fixed":
            found = _with_logical(AvroType("fixed", name, size=int(node["size"])), node)
        else:
            self._known[name] = None
            fields = tuple(self._field(field, namespace_of(name)) for field in node["fields"])
            found = AvroType("record", name, fields=fields)
        self._known[name] = found
        return found

    def _field(self, node: Mapping[str, Any], namespace: str) -> Field:
        name, type = str(node["name"]), self.type(node["type"], namespace)
        if "default" not in node:
            # What is missing is null where that is a value, as in topics of JSON.
            return Field(name, type, type.nullable, ("null", None) if type.kind == "union" else None)
        try:
            return Field(name, type, True, default(type, node["default"]))
        except (ValueError, TypeError, AttributeError):
            raise Unwritable(f"the default of its field {name} is not of the field's type") from None


def _with_logical(found: AvroType, node: Mapping[str, Any]) -> AvroType:
    logical = node.get("logicalType")
    if (found.kind, logical) in _LOGICAL:
        return AvroType(found.kind, found.branch, str(logical))
    if logical == "decimal" and found.kind in ("bytes", "fixed"):
        precision, scale = node.get("precision"), node.get("scale", 0)
        if type(precision) is int and type(scale) is int and 0 <= scale <= precision and precision > 0:
            # A precision that the bytes can't hold is no decimal, by Avro's rules.
            most = math.floor(math.log10(2) * (8 * found.size - 1)) if found.kind == "fixed" else precision
            if precision <= most:
                return AvroType(found.kind, found.branch, "decimal", size=found.size, digits=(precision, scale))
    return found


def default(of: AvroType, value: Any) -> Any:
    """What a default, in Avro's own JSON, is to be written as; raises ValueError where it is not of the type.

    It is of the first branch of a union that takes it. Bytes are text whose characters are bytes.
    """
    if of.kind == "union":
        for branch in of.branches:
            try:
                return (branch.branch, default(branch, value))
            except (ValueError, TypeError, AttributeError):
                continue
        raise ValueError
    if of.kind == "record":
        return {field.name: _held(field, value) for field in of.fields}
    if of.kind == "array" and of.of is not None and isinstance(value, list):
        return [default(of.of, one) for one in value]
    if of.kind == "map" and of.of is not None:
        return {str(name): default(of.of, one) for name, one in value.items()}
    if of.kind in ("bytes", "fixed"):
        data: bytes = value.encode("latin-1")
        if of.kind == "bytes" or len(data) == of.size:
            return data
    elif of.kind in BITS:
        bits = BITS[of.kind]
        if type(value) is int and -(2 ** (bits - 1)) <= value < 2 ** (bits - 1):
            return value
    elif of.kind in ("float", "double"):
        # What is written as a float must be finite as one: 1e400 is not, and 1e39 not in 32 bits.
        if type(value) in (int, float) and abs(value) <= (_LARGEST_FLOAT if of.kind == "float" else sys.float_info.max):
            return float(value)
    elif _is_plain(of, value):
        return value
    raise ValueError


def _held(field: Field, value: Mapping[str, Any]) -> Any:
    if field.name in value:
        return default(field.type, value[field.name])
    if field.optional:
        return field.default
    raise ValueError


def _is_plain(of: AvroType, value: Any) -> bool:
    if of.kind == "null":
        return value is None
    if of.kind == "boolean":
        return isinstance(value, bool)
    return isinstance(value, str) and (of.kind == "string" or value in of.symbols)

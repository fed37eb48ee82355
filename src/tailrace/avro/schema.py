"""Avro schemas as types: names resolved, logical types that count applied, defaults as values to write."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tailrace.avro.names import PRIMITIVES, full_name, meant, namespace_of
from tailrace.types.tree import DAY, RecordField, Type

_BITS = {"int": 32, "long": 64}
_KINDS = {**dict.fromkeys(_BITS, "integer"), "string": "text"}
# The logical types that count, by what they are of: kind and unit. Any other is passed over, as Avro's rules say.
_LOGICAL = {
    ("int", "date"): ("date", DAY),
    ("int", "time-millis"): ("time", 1000),
    ("long", "time-micros"): ("time", 1),
    ("long", "timestamp-millis"): ("timestamp", 1000),
    ("long", "timestamp-micros"): ("timestamp", 1),
    ("long", "local-timestamp-millis"): ("local timestamp", 1000),
    ("long", "local-timestamp-micros"): ("local timestamp", 1),
    ("string", "uuid"): ("uuid", 0),
}
_LARGEST_FLOAT = (2 - 2**-23) * 2.0**127


class Unwritable(ValueError):
    """Nothing can be written with a schema. The text says why."""


def read(schema: str) -> Type:
    """The type of a schema. Raises Unwritable, also for a recursive one: the pipeline can't read it."""
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
        self._known: dict[str, Type | None] = {}

    def type(self, node: Any, namespace: str) -> Type:
        if isinstance(node, str):
            return _primitive(node) if node in PRIMITIVES else self._named(node, namespace)
        if isinstance(node, list):
            branches = tuple(self.type(one, namespace) for one in node)
            nullable = any(branch.kind == "null" for branch in branches)
            return Type("union", "union", nullable, binary=True, branches=branches)
        kind = node["type"]
        if not isinstance(kind, str):
            return self.type(kind, namespace)
        if kind in ("array", "map"):
            of = self.type(node["items" if kind == "array" else "values"], namespace)
            return Type(kind, kind, binary=True, of=of)
        if kind in PRIMITIVES:
            return _logical(_primitive(kind), kind, node)
        if kind in ("record", "error", "enum", "fixed"):
            return self._define(kind, full_name(node, namespace), node)
        return self._named(kind, namespace)

    def _named(self, name: str, namespace: str) -> Type:
        found = meant(name, namespace, self._known)
        if found is None:
            raise Unwritable(f"it names the type {name} and does not define it")
        known = self._known[found]
        if known is None:
            raise Unwritable(f"its type {name} is recursive")
        return known

    def _define(self, kind: str, name: str, node: Mapping[str, Any]) -> Type:
        if kind == "enum":
            found = Type("enum", name, binary=True, symbols=tuple(map(str, node["symbols"])))
        elif kind == "fixed":
            found = _logical(Type("fixed", name, binary=True, size=int(node["size"])), kind, node)
        else:
            self._known[name] = None
            fields = tuple(self._field(field, namespace_of(name)) for field in node["fields"])
            found = Type("record", name, binary=True, fields=fields)
        self._known[name] = found
        return found

    def _field(self, node: Mapping[str, Any], namespace: str) -> RecordField:
        name, type = str(node["name"]), self.type(node["type"], namespace)
        if "default" not in node:
            # A missing value is null if the type has null, as in topics of JSON.
            return RecordField(name, type, type.nullable, ("null", None) if type.kind == "union" else None)
        try:
            return RecordField(name, type, True, _default(type, node["default"]))
        except (ValueError, TypeError, AttributeError):
            raise Unwritable(f"the default of its field {name} is not of the field's type") from None


def _primitive(name: str) -> Type:
    return Type(_KINDS.get(name, name), name, nullable=name == "null", binary=True, bits=_BITS.get(name, 0))


def _logical(found: Type, primitive: str, node: Mapping[str, Any]) -> Type:
    """The logical type of a node, if it has one that counts."""
    logical = node.get("logicalType")
    if (primitive, logical) in _LOGICAL:
        kind, unit = _LOGICAL[primitive, str(logical)]
        return replace(found, kind=kind, unit=unit)
    if logical == "decimal" and primitive in ("bytes", "fixed"):
        precision, scale = node.get("precision"), node.get("scale", 0)
        if type(precision) is int and type(scale) is int and 0 <= scale <= precision and precision > 0:
            # By Avro's rules, it is no decimal if the bytes can't hold its precision.
            most = math.floor(math.log10(2) * (8 * found.size - 1)) if primitive == "fixed" else precision
            if precision <= most:
                return replace(found, kind="decimal", digits=(precision, scale))
    return found


def _default(of: Type, value: Any) -> Any:
    """What to write for a default in Avro's own JSON. Raises ValueError if it is not of the type.

    In a union, the first branch that accepts it counts. Bytes are text whose characters are bytes.
    """
    match of.kind:
        case "union":
            for branch in of.branches:
                try:
                    return (branch.name, _default(branch, value))
                except (ValueError, TypeError, AttributeError):
                    continue
        case "record":
            return {field.name: _held(field, value) for field in of.fields}
        case "array" if of.of is not None and isinstance(value, list):
            return [_default(of.of, one) for one in value]
        case "map" if of.of is not None:
            return {str(name): _default(of.of, one) for name, one in value.items()}
        case "bytes" | "fixed" | "decimal":
            data: bytes = value.encode("latin-1")
            if len(data) == of.size or (of.kind != "fixed" and not of.size):
                return data
        case "float" | "double":
            # A float must be finite: 1e400 is not, and 1e39 is not in 32 bits.
            most = _LARGEST_FLOAT if of.kind == "float" else sys.float_info.max
            if type(value) in (int, float) and abs(value) <= most:
                return float(value)
        case "boolean" if isinstance(value, bool):
            return value
        case "null" if value is None:
            return None
        case "enum" if isinstance(value, str) and value in of.symbols:
            return value
        case "text" | "uuid" if isinstance(value, str):
            return value
        case "integer" | "date" | "time" | "timestamp" | "local timestamp":
            if type(value) is int and -(2 ** (of.bits - 1)) <= value < 2 ** (of.bits - 1):
                return value
    raise ValueError


def _held(field: RecordField, value: Mapping[str, Any]) -> Any:
    if field.name in value:
        return _default(field.type, value[field.name])
    if field.optional:
        return field.default
    raise ValueError

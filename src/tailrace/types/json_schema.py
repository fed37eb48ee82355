"""Types in documents: the JSON schema of their values, and an example value."""

from __future__ import annotations

from typing import Any

from tailrace.types.tree import Type
from tailrace.types.values import expected, moment

Json = dict[str, Any]

_FORMATS = {"date": "date", "time": "time", "timestamp": "date-time"}
_EXAMPLES = {
    "null": None,
    "boolean": True,
    "integer": 1,
    "float": 8.5,
    "double": 8.5,
    "bytes": "Ynl0ZXM=",
    "uuid": "123e4567-e89b-12d3-a456-426614174000",
}


def schema(of: Type) -> Json:
    """The JSON schema of the values of a type. Null is left out at the top, except in a union."""
    match of.kind:
        case "union":
            return _union(of)
        case "null" | "boolean":
            return {"type": of.kind}
        case "integer":
            most = 2 ** (of.bits - 1)
            found: Json = {"type": "integer", "minimum": -most, "maximum": most - 1}
            return {**found, "format": f"int{of.bits}"} if of.bits >= 32 else found
        case "float" | "double":
            return {"type": "number", "format": of.kind}
        case "decimal" if of.binary:
            return {**_described(of, "number", "string"), "pattern": r"^-?[0-9]+(\.[0-9]+)?$"}
        case "decimal":
            return _described(of, "number")
        case "date" | "time" | "timestamp" | "local timestamp":
            found = _described(of, "string", "integer") if of.unit else _described(of, "string")
            return {**found, "format": _FORMATS[of.kind]} if of.kind in _FORMATS else found
        case "text":
            return {"type": "string"}
        case "uuid":
            return {"type": "string", "format": "uuid"}
        case "enum":
            return {"type": "string", "enum": list(of.symbols)}
        case "bytes":
            return {"type": "string", "contentEncoding": "base64"}
        case "fixed":
            return {"type": "string", "contentEncoding": "base64", "description": f"{of.size} bytes."}
        case "array" if of.of is not None:
            return {"type": "array", "items": _inner(of.of)}
        case "map" if of.of is not None:
            return {"type": "object", "additionalProperties": _inner(of.of)}
        case "record":
            properties = {field.name: _inner(field.type) for field in of.fields}
            found = {"type": "object", "properties": properties, "additionalProperties": False}
            required = [field.name for field in of.fields if not field.optional]
            return {**found, "required": required} if required else found
    return {}


def example(of: Type) -> Any:
    """A value of a type."""
    match of.kind:
        case "union":
            branches = [branch for branch in of.branches if branch.kind != "null"]
            if len(branches) == 1:
                return example(branches[0])
            return {branches[0].name: example(branches[0])} if branches else None
        case "record":
            return {field.name: example(field.type) for field in of.fields}
        case "array" if of.of is not None:
            return [example(of.of)]
        case "map" if of.of is not None:
            return {"name": example(of.of)}
        case "enum":
            return of.symbols[0] if of.symbols else ""
        case "fixed":
            # Four characters are three bytes; padding stands for missing bytes.
            whole, rest = divmod(of.size, 3)
            return "AAAA" * whole + ("", "AA==", "AAA=")[rest]
        case "decimal":
            precision, scale = of.digits
            return 0 if precision == scale else 1.5 if scale else 1
        case "date" | "time" | "timestamp" | "local timestamp":
            return moment(of)
    return _EXAMPLES.get(of.kind, "text")


def _inner(of: Type) -> Json:
    """The schema of a part, which may be null if its type says so."""
    found = schema(of)
    if of.nullable and of.kind not in ("null", "union") and "type" in found:
        return {**found, "type": [found["type"], "null"]}
    return found


def _described(of: Type, *types: str) -> Json:
    text = expected(of)
    return {"type": types[0] if len(types) == 1 else list(types), "description": f"{text[0].upper()}{text[1:]}."}


def _union(of: Type) -> Json:
    """Every value as it is. If there are several types, also with the type's name, as in Avro's own JSON."""
    branches = [branch for branch in of.branches if branch.kind != "null"]
    found = [schema(branch) for branch in branches]
    if len(branches) > 1:
        found += [
            {
                "type": "object",
                "properties": {branch.name: schema(branch)},
                "required": [branch.name],
                "additionalProperties": False,
            }
            for branch in branches
        ]
    if of.nullable:
        found.append({"type": "null"})
    return found[0] if len(found) == 1 else {"anyOf": found}

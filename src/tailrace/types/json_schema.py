"""Avro types in documents: the JSON schema of what is taken for a value, and an example of one."""

from __future__ import annotations

from typing import Any

from tailrace.types.avro_types import BITS, AvroType
from tailrace.types.avro_values import expected

Json = dict[str, Any]

_FORMATS = {
    "date": "date",
    "time-millis": "time",
    "time-micros": "time",
    "timestamp-millis": "date-time",
    "timestamp-micros": "date-time",
}
_SAMPLES: dict[str, Any] = {
    "null": None,
    "boolean": True,
    "int": 1,
    "long": 1,
    "float": 8.5,
    "double": 8.5,
    "bytes": "Ynl0ZXM=",
    "string": "text",
    "decimal": 1,
    "date": "2026-01-31",
    "time-millis": "09:30:00.000",
    "time-micros": "09:30:00.000000",
    "timestamp-millis": "2026-01-31T09:30:00.000Z",
    "timestamp-micros": "2026-01-31T09:30:00.000000Z",
    "local-timestamp-millis": "2026-01-31T09:30:00.000",
    "local-timestamp-micros": "2026-01-31T09:30:00.000000",
    "uuid": "123e4567-e89b-12d3-a456-426614174000",
}


def schema(of: AvroType) -> Json:
    """The JSON schema of the values of a type."""
    if of.kind == "union":
        return _union(of)
    if of.logical:
        return _logical(of)
    if of.kind in BITS:
        most = 2 ** (BITS[of.kind] - 1)
        return {"type": "integer", "format": f"int{BITS[of.kind]}", "minimum": -most, "maximum": most - 1}
    if of.kind in ("float", "double"):
        return {"type": "number", "format": of.kind}
    if of.kind == "bytes":
        return {"type": "string", "contentEncoding": "base64"}
    if of.kind == "fixed":
        return {"type": "string", "contentEncoding": "base64", "description": f"{of.size} bytes."}
    if of.kind == "enum":
        return {"type": "string", "enum": list(of.symbols)}
    if of.kind == "array" and of.of is not None:
        return {"type": "array", "items": schema(of.of)}
    if of.kind == "map" and of.of is not None:
        return {"type": "object", "additionalProperties": schema(of.of)}
    if of.kind == "record":
        found: Json = {
            "type": "object",
            "properties": {field.name: schema(field.type) for field in of.fields},
            "additionalProperties": False,
        }
        required = [field.name for field in of.fields if not field.optional]
        return {**found, "required": required} if required else found
    return {"type": of.kind}


def sample(of: AvroType) -> Any:
    """A value of a type."""
    if of.kind == "union":
        branches = [branch for branch in of.branches if branch.kind != "null"]
        if len(branches) == 1:
            return sample(branches[0])
        return {branches[0].branch: sample(branches[0])} if branches else None
    if of.kind == "record":
        return {field.name: sample(field.type) for field in of.fields}
    if of.kind == "array" and of.of is not None:
        return [sample(of.of)]
    if of.kind == "map" and of.of is not None:
        return {"name": sample(of.of)}
    if of.kind == "enum":
        return of.symbols[0] if of.symbols else ""
    if of.kind == "fixed" and not of.logical:
        # Four characters stand for three bytes; padding stands for what is missing.
        whole, rest = divmod(of.size, 3)
        return "AAAA" * whole + ("", "AA==", "AAA=")[rest]
    if of.logical == "decimal" and of.digits[0] == of.digits[1]:
        return 0
    return _SAMPLES[of.logical or of.kind]


def _logical(of: AvroType) -> Json:
    text = f"{expected(of)[0].upper()}{expected(of)[1:]}."
    if of.logical == "uuid":
        return {"type": "string", "format": "uuid"}
    if of.logical == "decimal":
        return {"type": ["number", "string"], "pattern": r"^-?[0-9]+(\.[0-9]+)?$", "description": text}
    found: Json = {"type": ["string", "integer"], "description": text}
    return {**found, "format": _FORMATS[of.logical]} if of.logical in _FORMATS else found


def _union(of: AvroType) -> Json:
    """Every value as it stands; where there are several types, also with the type's name, as Avro's own JSON has it."""
    branches = [branch for branch in of.branches if branch.kind != "null"]
    found = [schema(branch) for branch in branches]
    if len(branches) > 1:
        found += [
            {
                "type": "object",
                "properties": {branch.branch: schema(branch)},
                "required": [branch.branch],
                "additionalProperties": False,
            }
            for branch in branches
        ]
    if of.nullable:
        found.append({"type": "null"})
    return found[0] if len(found) == 1 else {"anyOf": found}

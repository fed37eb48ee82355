"""Avro binary: values of a schema as bytes, with the Confluent wire format's header if a registry has the schema."""

from __future__ import annotations

import json
from io import BytesIO
from typing import Any

from fastavro import parse_schema, schemaless_writer
from fastavro.schema import SchemaParseException, UnknownType

from tailrace.avro.schema import Unwritable, read

# The parts of a schema that the bytes depend on. Without logical types and defaults, values are written as given.
_KEPT = ("type", "name", "namespace", "items", "values", "symbols", "size", "fields")


class Encoding:
    """Writes values of a schema. Raises Unwritable if the schema can't be used.

    `id` is the schema's id in its registry. Without one, nothing comes before the value.
    """

    def __init__(self, schema: str, id: int | None = None) -> None:
        self.schema = schema
        self.id = id
        self.type = read(schema)
        self._header = b"" if id is None else b"\x00" + id.to_bytes(4, "big")
        try:
            self._parsed = parse_schema(_bare(json.loads(schema)))
        except (SchemaParseException, UnknownType, ValueError, KeyError, TypeError) as error:
            raise Unwritable(f"it is not an Avro schema: {' '.join(str(error).split())[:200]}") from None

    def encode(self, datum: Any) -> bytes:
        """The bytes of a value. A value of a union is a pair: the name of its branch, and the value."""
        output = BytesIO()
        output.write(self._header)
        schemaless_writer(output, self._parsed, datum)
        return output.getvalue()


def _bare(node: Any) -> Any:
    if isinstance(node, list):
        return [_bare(one) for one in node]
    if not isinstance(node, dict):
        return node
    found = {name: node[name] for name in _KEPT if name in node}
    for name in ("type", "items", "values"):
        if name in found:
            found[name] = _bare(found[name])
    if "fields" in found:
        found["fields"] = [{"name": field["name"], "type": _bare(field["type"])} for field in found["fields"]]
    return found

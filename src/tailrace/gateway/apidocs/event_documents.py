"""Events in, in the OpenAPI document: what a topic's events, keys and request bodies are."""

from __future__ import annotations

from typing import Any

from tailrace.gateway.ingest.codecs import TYPES, AvroKind, JsonKind, Kind, Kinds, PlainKind
from tailrace.gateway.ingest.records import MOST
from tailrace.types import avro_documents, samples, spark_types

Json = dict[str, Any]


def event_schema(kinds: Kinds) -> Json:
    """The JSON schema of the events that a topic takes."""
    found = _schema(kinds.value)
    if "properties" not in found:
        return found
    properties = {**found["properties"]}
    for name in kinds.topic.key_columns:
        if name not in properties:
            properties[name] = _key_column(kinds.key, name)[0]
    return {**found, "properties": properties, "examples": [_event(kinds)]}


def typed_events(operation: Json, *, kinds: Kinds, name: str) -> None:
    """Give a topic's operation the types of its events, whose schema has this name."""
    event = {"$ref": f"#/components/schemas/{name}"}
    sample = _event(kinds)
    for kind, held in operation.get("requestBody", {}).get("content", {}).items():
        held.pop("examples", None)
        if kind == "application/json":
            one, held["example"] = event, sample
        else:
            one, held["example"] = _wrapped(event, kinds), [{"key": _sample(kinds.key), "value": sample}]
        several = {"type": "array", "items": one, "minItems": 1, "maxItems": MOST}
        held["schema"] = {"anyOf": [one, several]}


def _wrapped(event: Json, kinds: Kinds) -> Json:
    # A table's key is deleted by the value null.
    value = {"anyOf": [event, {"type": "null"}]} if kinds.topic.key_columns else event
    return {
        "type": "object",
        "required": ["value"],
        "additionalProperties": False,
        "properties": {
            "key": _schema(kinds.key),
            "value": value,
            "headers": {"type": "object", "additionalProperties": {"type": "string"}},
        },
    }


def _event(kinds: Kinds) -> Any:
    found = _sample(kinds.value)
    if not isinstance(found, dict):
        return found
    return {**{name: _key_column(kinds.key, name)[1] for name in kinds.topic.key_columns}, **found}


def _schema(kind: Kind) -> Json:
    match kind:
        case AvroKind():
            return avro_documents.schema(kind.encoding.type)
        case JsonKind():
            return spark_types.schema(kind.type)
        case PlainKind():
            return spark_types.schema(spark_types.read(TYPES[kind.format]))
    raise TypeError(kind)


def _sample(kind: Kind) -> Any:
    match kind:
        case AvroKind():
            return avro_documents.sample(kind.encoding.type)
        case JsonKind():
            return samples.value(kind.type)
        case PlainKind():
            return samples.value(spark_types.read(TYPES[kind.format]))
    raise TypeError(kind)


def _key_column(key: Kind, name: str) -> tuple[Json, Any]:
    """The schema and an example of a column that the record key becomes."""
    if name in key.names:
        return _schema(key)["properties"][name], _sample(key)[name]
    return _schema(key), _sample(key)

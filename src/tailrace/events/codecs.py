"""Codecs: how the values and keys of a topic are checked, and become the bytes that the pipeline reads."""

from __future__ import annotations

import struct
from collections.abc import Collection
from dataclasses import dataclass, replace

from tailrace.avro.encoding import Encoding
from tailrace.avro.schema import Unwritable
from tailrace.contracts.catalog import CatalogTopic
from tailrace.events.json_spans import JsonSpan
from tailrace.types import spark
from tailrace.types.tree import Type
from tailrace.types.values import Mismatch, converted

AVRO = "avro"
# What Kafka's own serializers write.
_PLAIN = {
    "string": Type("text", "string", binary=True),
    "long": Type("integer", "long", binary=True, bits=64),
    "double": Type("double", "double", binary=True),
    "bytes": Type("bytes", "bytes", binary=True),
}
FORMATS = ("json", *_PLAIN, AVRO)


@dataclass(frozen=True)
class Codec:
    """How the values, or the keys, of a topic are written. Names `beside` the fields of its type are passed over."""

    format: str
    type: Type
    beside: Collection[str] = frozenset()
    encoding: Encoding | None = None

    @property
    def names(self) -> Collection[str]:
        """The names of the fields, if the type has any."""
        return [field.name for field in self.type.fields]

    @property
    def texts(self) -> bool:
        """Whether a text needs no quotes to be a value."""
        return self.format != "json" and self.type.kind in ("text", "uuid", "enum", "bytes", "fixed")

    def encode(self, span: JsonSpan, where: str, wrong: list[Mismatch]) -> bytes:
        """The bytes of a value that is not null. If something is wrong, adds that: the bytes must not be written."""
        given, found = span.value, list[Mismatch]()
        if self.beside and isinstance(given, dict):
            given = {name: held for name, held in given.items() if name not in self.beside}
        value = converted(self.type, given, where, found)
        wrong.extend(found)
        if found:
            return b""
        if self.encoding is not None:
            return self.encoding.encode(value)
        match self.format:
            case "json":
                # The text goes on as it came.
                return span.text.encode()
            case "string":
                return str(value).encode()
            case "long":
                return struct.pack(">q", value)
            case "double":
                return struct.pack(">d", value)
        return bytes(value)


@dataclass(frozen=True)
class TopicCodecs:
    """The codecs of a topic's records."""

    topic: CatalogTopic
    value: Codec
    key: Codec

    @classmethod
    def of(cls, topic: CatalogTopic, value: Encoding | None = None, key: Encoding | None = None) -> TopicCodecs:
        """The codecs of a topic. `value` and `key` are its Avro encodings, if it has any. Raises Unwritable.

        Avro values must be records: the pipeline has columns for nothing else.
        """
        if value is not None and value.type.kind != "record":
            raise Unwritable(f"it is of type {value.type.name}, not a record")
        value_codec = _codec(topic.format, spark.row(topic.columns), value)
        # An event may also have the columns of a table's key: they become the record key.
        if value_codec.type.kind == "record":
            beside = frozenset(topic.key_columns).difference(value_codec.names)
            value_codec = replace(value_codec, beside=beside)
        return cls(topic, value_codec, _codec(topic.key_format, spark.row(topic.key), key))


def declared(topic: CatalogTopic) -> TopicCodecs | None:
    """The codecs of a topic by the catalog alone; None if that lacks a schema. Raises Unwritable."""
    # An older pipeline has no schemas in its catalog.
    for format, schema in ((topic.format, topic.schema), (topic.key_format, topic.key_schema)):
        if format not in FORMATS or (format == AVRO and schema is None):
            return None
    if topic.format != AVRO and not topic.columns:
        return None
    value = Encoding(topic.schema) if topic.format == AVRO and topic.schema is not None else None
    key = Encoding(topic.key_schema) if topic.key_format == AVRO and topic.key_schema is not None else None
    return TopicCodecs.of(topic, value, key)


def _codec(format: str, columns: Type, encoding: Encoding | None) -> Codec:
    if encoding is not None:
        return Codec(AVRO, encoding.type, encoding=encoding)
    if format != "json" and format not in _PLAIN:
        raise Unwritable(f"its format is {format}")
    return Codec(format, columns if format == "json" else _PLAIN[format])

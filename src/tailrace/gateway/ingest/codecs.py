"""What the values and keys of a topic's records are: each is checked, and becomes the bytes that the pipeline reads."""

from __future__ import annotations

import base64
import struct
from collections.abc import Collection
from dataclasses import dataclass
from typing import Protocol

from tailrace.avro.encoding import Encoding
from tailrace.contracts.catalog import CatalogTopic
from tailrace.gateway.ingest.json_spans import JsonSpan
from tailrace.types import avro_values
from tailrace.types.avro_types import Unwritable
from tailrace.types.spark_types import Mismatch, SparkType, floating, got, is_text, mismatches, read

AVRO = "avro"
FORMATS = ("json", "string", "long", "double", "bytes", AVRO)
TYPES = {"string": "string", "long": "bigint", "double": "double", "bytes": "binary"}


class Kind(Protocol):
    """The values, or the keys, of a topic.

    `names` are the fields, where it is made of some. `texts` says that a text is a value as it stands.
    """

    @property
    def names(self) -> Collection[str]: ...

    @property
    def texts(self) -> bool: ...

    def encode(self, span: JsonSpan, where: str, wrong: list[Mismatch]) -> bytes:
        """The bytes of a value that is not null; adds what is wrong with it, and then the bytes are none to write."""
        ...


@dataclass(frozen=True)
class JsonKind:
    """An object: its text goes on as it came. Names that stand `beside` its fields are passed over."""

    type: SparkType
    beside: frozenset[str] = frozenset()
    texts: bool = False

    @property
    def names(self) -> Collection[str]:
        return [name for name, _ in self.type.fields]

    def encode(self, span: JsonSpan, where: str, wrong: list[Mismatch]) -> bytes:
        wrong.extend(mismatches(_without(span.value, self.beside), self.type, where))
        return span.text.encode()


@dataclass(frozen=True)
class PlainKind:
    """Text, a number or bytes, as Kafka's own serializers write them."""

    format: str
    names: Collection[str] = ()

    @property
    def texts(self) -> bool:
        """Whether a text is a value as it stands."""
        return self.format in ("string", "bytes")

    def encode(self, span: JsonSpan, where: str, wrong: list[Mismatch]) -> bytes:
        value = span.value
        found = list(mismatches(value, read(TYPES[self.format]), where))
        if not found and self.format == "string" and not is_text(value):
            found.append(Mismatch(where, "text of Unicode characters", got(value)))
        wrong.extend(found)
        if found:
            return b""
        if self.format == "string":
            return str(value).encode()
        if self.format == "long":
            return struct.pack(">q", value)
        if self.format == "double":
            return struct.pack(">d", floating(value, "double"))
        return base64.b64decode(value)


@dataclass(frozen=True)
class AvroKind:
    """A value of an Avro schema. Names that stand `beside` the fields of a record are passed over."""

    encoding: Encoding
    beside: frozenset[str] = frozenset()

    @property
    def names(self) -> Collection[str]:
        """The fields of a record."""
        return [field.name for field in self.encoding.type.fields]

    @property
    def texts(self) -> bool:
        """Whether a text is a value as it stands."""
        of = self.encoding.type
        return of.kind in ("string", "enum", "bytes", "fixed") and of.logical in ("", "uuid")

    def encode(self, span: JsonSpan, where: str, wrong: list[Mismatch]) -> bytes:
        """Avro binary, behind the header where there is one."""
        found: list[Mismatch] = []
        datum = avro_values.datum(self.encoding.type, _without(span.value, self.beside), where, found)
        wrong.extend(found)
        return b"" if found else self.encoding.encode(datum)


@dataclass(frozen=True)
class Kinds:
    """What the records of a topic are made of."""

    topic: CatalogTopic
    value: Kind
    key: Kind
    # What Avro values and keys are written with.
    encodings: tuple[Encoding | None, Encoding | None] = (None, None)

    @classmethod
    def of(cls, topic: CatalogTopic, value: Encoding | None = None, key: Encoding | None = None) -> Kinds:
        """The kinds of a topic, with what its Avro values and keys are written with; raises Unwritable.

        Values are records: the pipeline has columns for nothing else.
        """
        if value is not None and value.type.kind != "record":
            raise Unwritable(f"it is of type {value.type.kind}, not a record")
        if key is not None:
            key_kind: Kind = AvroKind(key)
        elif topic.key_format == "json":
            key_kind = JsonKind(SparkType("struct", tuple((one.name, read(one.type)) for one in topic.key)))
        else:
            key_kind = PlainKind(topic.key_format)
        # The columns of a table's key may stand in the event, too: they become the record key.
        if value is not None:
            fields = {field.name for field in value.type.fields}
            value_kind: Kind = AvroKind(value, frozenset(topic.key_columns) - fields)
        elif topic.format == "json":
            of = SparkType("struct", tuple((column.name, read(column.type)) for column in topic.columns))
            value_kind = JsonKind(of, frozenset(topic.key_columns) - {column.name for column in topic.columns})
        else:
            value_kind = PlainKind(topic.format)
        return cls(topic, value_kind, key_kind, (value, key))


def declared(topic: CatalogTopic) -> Kinds | None:
    """The kinds of a topic by the catalog alone; None where it does not have them, raises Unwritable."""
    # An older pipeline has no schemas in its catalog.
    for format, schema in ((topic.format, topic.schema), (topic.key_format, topic.key_schema)):
        if format not in FORMATS or (format == AVRO and schema is None):
            return None
    if topic.format != AVRO and not topic.columns:
        return None
    value = Encoding(topic.schema) if topic.format == AVRO and topic.schema is not None else None
    key = Encoding(topic.key_schema) if topic.key_format == AVRO and topic.key_schema is not None else None
    return Kinds.of(topic, value, key)


def _without(value: object, names: Collection[str]) -> object:
    if not names or not isinstance(value, dict):
        return value
    return {name: held for name, held in value.items() if name not in names}

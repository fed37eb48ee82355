"""Decoding: from the bytes of a Kafka record to columns.

The fields of the value stand first, then the record's metadata, then why the record is skipped (null if it is not).
Nothing here can fail for what a record holds: bytes that are not what was declared make the record malformed, and a key
or header that is not what was declared is null. Every format is a native Spark expression.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped, unused-ignore]
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import from_avro
from pyspark.sql.types import (
    BinaryType,
    DataType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from tailrace.declarations.topics import Topic
from tailrace.pipeline.source import wire
from tailrace.pipeline.source.avro_decimals import beyond, narrowed, widened
from tailrace.pipeline.source.avro_envelope import MARK, enveloped
from tailrace.pipeline.source.registry_schemas import RegistrySchemas
from tailrace.pipeline.source.writer_schemas import WriterSchemas
from tailrace.pipeline.spark import functions

# No field or column of a user can have a name that starts with _; these are hidden from their SQL by the analysis.
SKIPPED = "__skipped"
# The record as it came, if it is carried along.
RAW = "__raw"
_PARSED = "__parsed"
_NAMES = "__header_names"
_VALUES = "__header_values"
TIMESTAMP = "_timestamp"

# Why a record is skipped here; the words that metrics show.
NULL_VALUE = "null-value"
MALFORMED = "malformed"

PLAIN_TYPES: dict[str, DataType] = {
    "string": StringType(),
    "long": LongType(),
    "double": DoubleType(),
    "bytes": BinaryType(),
}

HEADERS = "array<struct<key:string,value:binary>>"
_PERMISSIVE = {"mode": "PERMISSIVE"}


class SchemaUnusable(Exception):
    """A schema that can't be read or used; the text says why."""


@dataclass(frozen=True)
class Schemas:
    """What the value and the key of a topic's records decode to; with a registry, what they may be written with."""

    value: StructType
    key: DataType
    value_writers: WriterSchemas | None = None
    key_writers: WriterSchemas | None = None


def schemas(session: SparkSession, topic: Topic, registry_schemas: RegistrySchemas | None = None) -> Schemas:
    """The schemas of a topic; raises what `value_schema` and `key_type` raise."""
    value, key = value_schema(session, topic), key_type(session, topic)
    if registry_schemas is None or not topic.registry:
        return Schemas(value, key)
    return Schemas(value, key, *registry_schemas.writers(topic))


def metadata_schema(key: DataType) -> StructType:
    """The columns that every record has beside the fields of its value."""
    return StructType(
        [
            StructField("_key", key),
            StructField("_topic", StringType()),
            StructField("_partition", IntegerType()),
            StructField("_offset", LongType()),
            StructField(TIMESTAMP, TimestampType()),
            StructField("_headers", MapType(StringType(), StringType())),
        ]
    )


def value_schema(session: SparkSession, topic: Topic) -> StructType:
    """The fields of a topic's value.

    Raises Spark's ParseException where `value` is no DDL, and SchemaUnusable for an Avro schema.
    """
    if topic.format != "avro":
        return session.createDataFrame([], topic.value or "").schema
    schema = _avro_type(session, avro_schema(topic))
    if not isinstance(schema, StructType):
        raise SchemaUnusable(f"it is a {schema.simpleString()}, not a record")
    return schema


def key_type(session: SparkSession, topic: Topic) -> DataType:
    """What the record key decodes to; raises as `value_schema` does."""
    if topic.key_format == "json":
        return session.createDataFrame([], topic.key_schema or "").schema
    if topic.key_format == "avro":
        return _avro_type(session, avro_key_schema(topic))
    return PLAIN_TYPES.get(topic.key_format, StringType())


def _avro_type(session: SparkSession, schema: object) -> DataType:
    empty = session.createDataFrame([], "value binary")
    try:
        decoded = empty.select(from_avro("value", enveloped(schema)).alias(_PARSED)).schema[_PARSED].dataType
    except Py4JJavaError as error:
        reason = str(error.java_exception.getMessage() or error.java_exception.getClass().getName())
        raise SchemaUnusable(" ".join(reason.split())) from None
    return decoded["value"].dataType if isinstance(decoded, StructType) else decoded


def avro_schema(topic: Topic) -> object:
    """The declared Avro schema as plain data; raises SchemaUnusable if it can't be read.

    A file is read once per process: a query that is started again decodes as it did before.
    """
    schema = _plain_data(topic, topic.schema)
    if not isinstance(schema, dict) or schema.get("type") != "record":
        raise SchemaUnusable("its type is not record")
    return schema


def avro_key_schema(topic: Topic) -> object:
    """The declared Avro schema of the key as plain data; raises SchemaUnusable if it can't be read."""
    return _plain_data(topic, topic.key_schema)


def _plain_data(topic: Topic, schema: str | None) -> object:
    text = (schema or "").strip()
    if not text.startswith(("{", "[", '"')):
        text = _file_text(Path(topic.place.file).parent / text)
    try:
        found: object = json.loads(text)
    except ValueError as error:
        raise SchemaUnusable(f"it is not JSON: {error}") from None
    return found


@cache
def _file_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise SchemaUnusable(f"can't read {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise SchemaUnusable(f"{path} is not UTF-8 text") from None


def decode(
    records: DataFrame, schemas: Schemas, topic: Topic, *, lenient: bool = False, raw: bool = False
) -> DataFrame:
    """The fields of each record's value, its metadata, and why it is skipped.

    lenient: take what Spark itself writes, where JSON has no number for NaN and infinity.
    raw: carry key, value and headers along as they came.
    """
    # Projections upon each other: what is computed once in one is used many times in the next. Spark leaves out what
    # nobody uses, such as the headers of most views.
    # A source that nobody wants headers of has no column for them.
    given = F.col("headers") if "headers" in records.columns else F.lit(None).cast(HEADERS)
    newest_first = F.reverse(F.coalesce(given, F.array().cast(HEADERS)))
    listed = records.withColumns(
        {_NAMES: newest_first.getField("key"), _VALUES: newest_first.getField("value")},
    )
    schema = schemas.value
    carried = [F.struct("key", "value", "headers").alias(RAW)] if raw else []
    parsed = listed.select(
        "value", *carried, *_metadata(topic, schemas), _parse(schemas, topic, lenient).alias(_PARSED)
    )
    value = _value(topic)
    reason = F.when(F.col("value").isNull(), NULL_VALUE).when(_malformed(schema, topic), MALFORMED)
    return parsed.select(
        *(_field(value, field, topic).alias(field.name) for field in schema.fields),
        *metadata_schema(schemas.key).fieldNames(),
        reason.alias(SKIPPED),
        *([RAW] if raw else []),
    )


def _parse(schemas: Schemas, topic: Topic, lenient: bool) -> Column:
    """The fields of the value; of Avro, a struct whose `value` holds them, and what `_malformed` looks at."""
    if topic.format == "json":
        return functions.json(F.col("value"), schemas.value, lenient=lenient)
    if topic.format == "avro":
        return _avro(F.col("value"), avro_schema(topic), schemas.value_writers)
    (name,) = schemas.value.fieldNames()
    return F.struct(_plain(F.col("value"), topic.format).alias(name))


def _value(topic: Topic) -> Column:
    """The fields of the value, in what was parsed."""
    return F.col(_PARSED).getField("value") if topic.format == "avro" else F.col(_PARSED)


def _field(value: Column, field: StructField, topic: Topic) -> Column:
    found = value.getField(field.name)
    return narrowed(found, field.dataType) if topic.format == "avro" else found


def _avro(data: Column, schema: object, writers: WriterSchemas | None) -> Column:
    """What was read, with wider decimals than declared; see `avro_decimals`."""
    schema = widened(schema)
    if writers is not None:
        return wire.decode(
            data,
            json.dumps(schema),
            writers.known,
            writers.malformed,
            subject=writers.subject,
            lenient=writers.lenient,
        )
    return from_avro(F.concat(data, F.lit(MARK)), enveloped(schema), _PERMISSIVE)


def _malformed(schema: StructType, topic: Topic) -> Column:
    value = _value(topic)
    if topic.format == "json":
        return value.isNull()
    if topic.format == "avro":
        malformed = _malformed_avro(F.col(_PARSED)) | beyond(value, schema)
        for field in schema.fields:
            if isinstance(field.dataType, StringType):
                malformed = malformed | F.coalesce(~F.is_valid_utf8(value.getField(field.name)), F.lit(False))
        return malformed
    (name,) = schema.fieldNames()
    return value.getField(name).isNull()


def _malformed_avro(parsed: Column) -> Column:
    return ~parsed.getField("whole").eqNullSafe(F.lit(MARK))


def _key(topic: Topic, schemas: Schemas) -> Column:
    """The record key, null if it is not what was declared."""
    data, type = F.col("key"), schemas.key
    if topic.key_format == "json" and isinstance(type, StructType):
        return functions.json(data, type)
    if topic.key_format == "avro":
        parsed = _avro(data, avro_key_schema(topic), schemas.key_writers)
        held = parsed.getField("value")
        value = F.when(~(_malformed_avro(parsed) | beyond(held, type)), narrowed(held, type))
        return F.try_validate_utf8(value) if isinstance(type, StringType) else value
    return _plain(data, topic.key_format)


def _plain(data: Column, format: str) -> Column:
    """Bytes as one value, null if they are none; numbers as Kafka's own serializers write them."""
    if format == "string":
        return F.try_validate_utf8(data.cast("string"))
    if format == "long":
        # A negative base to convert to makes the result a signed number.
        return F.when(F.length(data) == 8, F.conv(F.hex(data), 16, -10).cast("bigint"))
    if format == "double":
        # Avro has the bytes of a double in the other order, and nothing else.
        return F.when(F.length(data) == 8, from_avro(F.reverse(data), '"double"', _PERMISSIVE))
    return data


def _metadata(topic: Topic, schemas: Schemas) -> list[Column]:
    return [
        _key(topic, schemas).alias("_key"),
        F.col("topic").alias("_topic"),
        F.col("partition").alias("_partition"),
        F.col("offset").alias("_offset"),
        F.col("timestamp").alias(TIMESTAMP),
        _headers().alias("_headers"),
    ]


def _headers() -> Column:
    """Headers by name; the last of a name counts.

    Spark's map functions take each name once and fail for a second, so the names are made distinct first.
    """
    names, values = F.col(_NAMES), F.col(_VALUES)
    distinct = F.array_distinct(names)

    def text(name: Column) -> Column:
        return _plain(F.get(values, (F.array_position(names, name) - 1).cast("int")), "string")

    return F.map_from_arrays(distinct, F.transform(distinct, text))

"""Decoding: from the bytes of a Kafka record to columns.

The fields of the value stand first, then the record's metadata, then why the record is skipped (null where it is not).
Nothing here can fail for what a record holds: bytes that are not what was declared make the record malformed, and a key
or header that is not what was declared is null. Every format is a native Spark expression.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped, unused-ignore]
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import from_avro
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
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

from tailrace.pipeline.wrapping import MARK, wrapped
from tailrace.topics import Topic

# No field or column of a user can have a name that starts with _; these are hidden from their SQL by the analysis.
SKIPPED = "__skipped"
_PARSED = "__parsed"
_CORRUPT = "__corrupt"
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

_JSON = {
    "mode": "PERMISSIVE",
    "columnNameOfCorruptRecord": _CORRUPT,
    "allowNonNumericNumbers": "false",
    "allowSingleQuotes": "false",
}
_HEADERS = "array<struct<key:string,value:binary>>"
_PERMISSIVE = {"mode": "PERMISSIVE"}


class SchemaUnusable(Exception):
    """An Avro schema that can't be read or used; the text says why."""


def metadata_schema(topic: Topic) -> StructType:
    """The columns that every record has beside the fields of its value."""
    return StructType(
        [
            StructField("_key", PLAIN_TYPES.get(topic.key_format, StringType())),
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
    empty = session.createDataFrame([], "value binary")
    try:
        decoded = empty.select(from_avro("value", _wrapped(topic)).alias(_PARSED)).schema[_PARSED].dataType
    except Py4JJavaError as error:
        reason = str(error.java_exception.getMessage() or error.java_exception.getClass().getName())
        raise SchemaUnusable(" ".join(reason.split())) from None
    schema = decoded["value"].dataType if isinstance(decoded, StructType) else decoded
    if not isinstance(schema, StructType):
        raise SchemaUnusable(f"it is a {schema.simpleString()}, not a record")
    return schema


def avro_schema(topic: Topic) -> object:
    """The declared Avro schema as plain data; raises SchemaUnusable where it can't be read.

    A file is read once per process: a query that is started again decodes as it did before.
    """
    text = (topic.schema or "").strip()
    if not text.startswith(("{", "[", '"')):
        text = _file_text(Path(topic.place.file).parent / text)
    try:
        schema: object = json.loads(text)
    except ValueError as error:
        raise SchemaUnusable(f"it is not JSON: {error}") from None
    if not isinstance(schema, dict) or schema.get("type") != "record":
        raise SchemaUnusable("its type is not record")
    return schema


@cache
def _file_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise SchemaUnusable(f"can't read {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise SchemaUnusable(f"{path} is not UTF-8 text") from None


def decode(records: DataFrame, schema: StructType, topic: Topic) -> DataFrame:
    """The fields of each record's value, its metadata, and why it is skipped."""
    # Projections upon each other: what is computed once in one is used many times in the next. Spark leaves out what
    # nobody uses, such as the headers of most views.
    newest_first = F.reverse(F.coalesce(F.col("headers"), F.array().cast(_HEADERS)))
    listed = records.withColumns(
        {_NAMES: newest_first.getField("key"), _VALUES: newest_first.getField("value")},
    )
    parsed = listed.select("value", *_metadata(topic), _parse(schema, topic).alias(_PARSED))
    value = F.col(f"{_PARSED}.value")
    reason = F.when(F.col("value").isNull(), NULL_VALUE).when(_malformed(schema, topic), MALFORMED)
    return parsed.select(
        *(value.getField(name).alias(name) for name in schema.fieldNames()),
        *metadata_schema(topic).fieldNames(),
        reason.alias(SKIPPED),
    )


def _parse(schema: StructType, topic: Topic) -> Column:
    """A struct whose `value` holds the fields; `_malformed` knows what else is in it."""
    if topic.format == "json":
        # Spark's parser stops after the first JSON value. Wrapped like this, whatever follows it spoils `whole`.
        wrapped = F.concat(F.lit('{"value":'), F.col("value").cast("string"), F.lit(',"whole":true}'))
        wrapper = StructType([StructField("value", schema), StructField("whole", BooleanType())])
        return F.from_json(wrapped, wrapper.add(_CORRUPT, StringType()), _JSON)
    if topic.format == "avro":
        return from_avro(F.concat(F.col("value"), F.lit(MARK)), _wrapped(topic), _PERMISSIVE)
    (name,) = schema.fieldNames()
    return F.struct(F.struct(_plain(F.col("value"), topic.format).alias(name)).alias("value"))


def _malformed(schema: StructType, topic: Topic) -> Column:
    value = F.col(f"{_PARSED}.value")
    if topic.format == "json":
        whole, corrupt = F.col(f"{_PARSED}.whole"), F.col(f"{_PARSED}.{_CORRUPT}")
        utf8 = F.is_valid_utf8(F.col("value").cast("string"))
        return value.isNull() | whole.isNull() | corrupt.isNotNull() | ~utf8
    if topic.format == "avro":
        malformed = ~F.col(f"{_PARSED}.whole").eqNullSafe(F.lit(MARK))
        for field in schema.fields:
            if isinstance(field.dataType, StringType):
                malformed = malformed | F.coalesce(~F.is_valid_utf8(value.getField(field.name)), F.lit(False))
        return malformed
    (name,) = schema.fieldNames()
    return value.getField(name).isNull()


def _plain(data: Column, format: str) -> Column:
    """Bytes as one value, null where they are none; numbers as Kafka's own serializers write them."""
    if format == "string":
        return F.try_validate_utf8(data.cast("string"))
    if format == "long":
        # A negative base to convert to makes the result a signed number.
        return F.when(F.length(data) == 8, F.conv(F.hex(data), 16, -10).cast("bigint"))
    if format == "double":
        # Avro has the bytes of a double in the other order, and nothing else.
        return F.when(F.length(data) == 8, from_avro(F.reverse(data), '"double"', _PERMISSIVE))
    return data


def _metadata(topic: Topic) -> list[Column]:
    return [
        _plain(F.col("key"), topic.key_format).alias("_key"),
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


def _wrapped(topic: Topic) -> str:
    return wrapped(avro_schema(topic))

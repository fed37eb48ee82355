"""A dry run: a view on records that a test gives, in one batch and without Kafka.

From the decoded record on, the plan is that of the pipeline.
"""

from __future__ import annotations

import base64
import json
import struct
from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import date, datetime
from functools import cache
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, DoubleType, LongType, StructType

from tailrace.contracts.catalog import Column
from tailrace.declarations.given_records import Given, Record
from tailrace.declarations.topics import Topic
from tailrace.declarations.views import Changelog, Feed, Source, View
from tailrace.dev import jars
from tailrace.pipeline.changelog.changelog import changes, row_columns
from tailrace.pipeline.source import decoding
from tailrace.pipeline.source.decoding import SKIPPED, Schemas
from tailrace.pipeline.source.reading import Reading, reading
from tailrace.pipeline.spark.jvm_parts import chosen
from tailrace.pipeline.spark.overflow import checked
from tailrace.pipeline.spark.session import start_session
from tailrace.pipeline.view import events
from tailrace.pipeline.view.plan import Decoded, rows_of
from tailrace.settings import Settings

# Longer than any timestamp is ahead of another.
_EVER = "5000000 days"
_KAFKA = (
    "key binary, value binary, topic string, partition int, offset long, timestamp timestamp, "
    "headers array<struct<key: string, value: binary>>"
)


def rows(output: View | Feed, given: Given, *, batches: bool = False, spread: int = 0) -> list[dict[str, Any]]:
    """See `tailrace.testing.rows`; by the plan of micro-batches, if that is asked for. For `spread` see `Reading`."""
    _known(output, given)
    found = changes(_rows(output, given, batches=batches, spread=spread), output.row_key, 1)
    taken = [(row.key, int(_header(row.headers, "v")), row.value) for row in found.collect()]
    if isinstance(output, Feed):
        return [json.loads(value) for _, _, value in sorted(taken, key=lambda change: change[1])]
    newest: dict[str, tuple[int, str | None]] = {}
    for key, version, value in taken:
        if key not in newest or version > newest[key][0]:
            newest[key] = (version, value)
    return [json.loads(value) for _, (_, value) in sorted(newest.items()) if value is not None]


def skipped(output: View | Feed, given: Given) -> dict[str, int]:
    """See `tailrace.testing.skipped`."""
    _known(output, given)
    output, total = _timeless(output), dict[str, int]()
    for _, source in output.sources:
        found = _decoded(source, given)
        key = found.reading.key or (output.key if output.transform is None else ())
        window = output.window if isinstance(output, View) else None
        marked = checked(events.unusable(found.frame, key, window, table=found.reading.is_table))
        for row in marked.groupBy(SKIPPED).count().collect():
            if row[SKIPPED] is not None:
                total[row[SKIPPED]] = total.get(row[SKIPPED], 0) + row["count"]
    return total


def _rows(output: View | Feed, given: Given, *, batches: bool = False, spread: int = 0) -> DataFrame:
    sources = []
    for alias, source in output.sources:
        found = _decoded(source, given)
        sources.append(replace(found, alias=alias, reading=replace(found.reading, spread=spread)))
    return rows_of(_timeless(output), sources, batches=batches)


def _timeless(output: View | Feed) -> View | Feed:
    """Given records have no clock: none of them is ahead of it."""
    if not isinstance(output, View) or output.window is None:
        return output
    return replace(output, window=replace(output.window, ahead=_EVER))


def _decoded(source: Source, given: Given) -> Decoded:
    session = _session()
    if isinstance(source, Changelog):
        parent = _rows(source.view, given)
        types = tuple(Column(name, parent.schema[name].dataType.simpleString()) for name in row_columns(parent))
        found = reading(source, {source.view.name: types})
        records = changes(parent, source.view.row_key, 1).select(
            F.col("key").cast("binary"),
            F.col("value").cast("binary"),
            F.lit(found.topic.name).alias("topic"),
            F.lit(0).alias("partition"),
            F.monotonically_increasing_id().alias("offset"),
            F.timestamp_millis(F.lit(0)).alias("timestamp"),
            "headers",
        )
        return Decoded("", found, events.decode(records, decoding.schemas(session, found.topic), found))
    found = reading(source, {})
    schemas = decoding.schemas(session, found.topic)
    listed = [one if isinstance(one, Record) else Record(one) for one in given.get(found.topic.name, ())]
    if any(isinstance(record.value, bytes) for record in listed):
        topic = found.topic
    else:
        topic = replace(found.topic, format="json", **_key_as(schemas.key, found.topic))
    lines = list(_encoded(listed, found, schemas, topic))
    frame = session.createDataFrame(lines, _KAFKA)
    # Bytes are taken as from Kafka; rows were written as JSON here, by a library that has a NaN.
    decoded = decoding.decode(frame, schemas, topic, lenient=topic is not found.topic)
    return Decoded("", found, events.stepped(decoded, found))


def _encoded(records: Sequence[Record], found: Reading, schemas: Schemas, topic: Topic) -> Iterator[tuple[Any, ...]]:
    for offset, record in enumerate(records):
        key = record.key
        if key is None and found.is_table and isinstance(record.value, Mapping):
            values = [record.value.get(name) for name in found.key]
            plain = len(found.key) == 1 and not isinstance(schemas.key, StructType)
            key = values[0] if plain else dict(zip(found.key, values, strict=True))
        headers = [(name, value.encode()) for name, value in record.headers.items()]
        yield (
            _key_bytes(key, topic.key_format),
            _value_bytes(record.value, found, schemas.value),
            topic.name,
            record.partition,
            offset,
            record.timestamp,
            headers,
        )


def _value_bytes(value: Mapping[str, Any] | bytes | None, found: Reading, schema: StructType) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    known = {*schema.fieldNames(), *found.key}
    if unknown := sorted(set(value) - known):
        raise ValueError(
            f"topic {found.topic.name!r}: expected the fields {', '.join(sorted(known))}, got {', '.join(unknown)}"
        )
    return json.dumps(dict(value), default=_plain).encode()


def _key_bytes(key: Any, format: str) -> bytes | None:
    if key is None or isinstance(key, bytes):
        return key
    if format == "long":
        return struct.pack(">q", key)
    if format == "double":
        return struct.pack(">d", key)
    if format == "json":
        return json.dumps(key, default=_plain).encode()
    return str(key).encode()


def _key_as(type: DataType, topic: Topic) -> dict[str, Any]:
    """How a key that is given as a Python value is written, if its own format is Avro."""
    if topic.key_format != "avro":
        return {}
    if isinstance(type, StructType):
        return {"key_format": "json"}
    plain = "long" if isinstance(type, LongType) else "double" if isinstance(type, DoubleType) else "string"
    return {"key_format": plain}


def _plain(value: Any) -> Any:
    if isinstance(value, datetime | date):
        return value.isoformat()
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return str(value)


def _header(headers: Sequence[Any], name: str) -> bytes:
    return next(bytes(header["value"]) for header in headers if header["key"] == name)


def _known(output: View | Feed, given: Given) -> None:
    """Raise ValueError for a topic that the output does not read."""
    read: set[str] = set()
    waiting = list(output.sources)
    while waiting:
        _, source = waiting.pop()
        if isinstance(source, Changelog):
            waiting += source.view.sources
        else:
            read.add(source.name)
    if unknown := sorted(set(given) - read):
        raise ValueError(
            f"{output.name!r}: expected records of {', '.join(sorted(read))}, got some of {', '.join(unknown)}"
        )


@cache
def _session() -> SparkSession:
    """One session for the process; its JVM ends with it. TAILRACE_JVM_PARTS counts here, too."""
    parts = chosen(Settings.read(Namespace()).text("jvm-parts"))
    return start_session("testing", slots=1, state_partitions=1, jars=jars.ensure("spark"), quiet=True, parts=parts)

"""Readings: what a view or feed is computed from, ready to be read from Kafka.

A topic gives events. A table gives the latest value per record key. A view gives its rows: its changelog is read as a
table whose value is the row and whose order is that of versions, because a replay puts older versions at newer offsets.
Of a view, one generation is read: the one that a build was made for.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StructType

from tailrace.contracts.catalog import Column as CatalogColumn
from tailrace.declarations.topics import Dedupe, Table, Topic, Where
from tailrace.declarations.views import Changelog, Feed, Source, View
from tailrace.pipeline.source.registry_schemas import RegistrySchemas
from tailrace.pipeline.spark.spark_kafka import SparkKafka

# After each fetch Spark asks where the partition begins and ends, and throws away what was fetched and not taken: so a
# fetch is large, and taken whole. A larger one costs more than it saves, in the garbage collector.
_FETCHED_WHOLE = {"kafka.max.poll.records": "50000", "kafka.max.partition.fetch.bytes": str(2 * 1024 * 1024)}

# The column of metadata that holds the headers.
HEADERS = "_headers"

# The types of a view's columns, key columns first.
RowTypes = Mapping[str, tuple[CatalogColumn, ...]]


@dataclass(frozen=True)
class Reading:
    """One source: the Kafka topic with its steps, and, for a table, the columns that its record key becomes.

    `ranked` holds the types of the key columns if the topic is the changelog of a view, and `generation` is the build
    of that view to read; all of them if it is None. `spread` is 0 as long as the records of a key are in one
    partition; after partitions were added to the topic, it is how many there are.
    """

    topic: Topic
    key: tuple[str, ...] = ()
    ranked: tuple[CatalogColumn, ...] = ()
    generation: int | None = None
    spread: int = 0

    @property
    def is_table(self) -> bool:
        """Whether records are values of a key, and no events."""
        return bool(self.key)


@dataclass(frozen=True)
class Ground:
    """What a build stands on beside its declaration: generations by view, and spreads by topic; see `Reading`."""

    parents: Mapping[str, int] = field(default_factory=dict)
    spread: Mapping[str, int] = field(default_factory=dict)


def readings(
    output: View | Feed, types: RowTypes, registry_schemas: RegistrySchemas | None = None, ground: Ground | None = None
) -> list[tuple[str, Reading]]:
    """The sources of a view or feed, by the names that it gives them; as a build reads them that stands on a ground."""
    found = []
    for alias, source in output.sources:
        one = reading(source, types, registry_schemas, output.name)
        if ground is not None and isinstance(source, Changelog):
            one = replace(one, generation=ground.parents.get(source.view.name))
        elif ground is not None:
            one = replace(one, spread=ground.spread.get(source.name, 0))
        found.append((alias, one))
    return found


def reading(
    source: Source, types: RowTypes, registry_schemas: RegistrySchemas | None = None, output: str | None = None
) -> Reading:
    """How a source is read, for an output; `types` are those of the views that are sources themselves."""
    if isinstance(source, Changelog):
        return _changelog(source, types)
    topic, key = (source.records, source.key) if isinstance(source, Table) else (source, ())
    return Reading(registry_schemas.resolve(topic, output) if registry_schemas is not None else topic, key)


def _changelog(source: Changelog, types: RowTypes) -> Reading:
    view = source.view
    # Before the analysis, types are not known and do not matter.
    columns = types.get(view.name) or tuple(CatalogColumn(name, "string") for name in view.row_key)
    key = tuple(column for column in columns if column.name in view.row_key)
    topic = Topic(
        name=view.changelog,
        value=", ".join(f"`{column.name}` {column.type}" for column in columns),
        format="json",
        key_format="string",
        schema=None,
        expect=None,
        steps=source.steps,
        place=view.place,
    )
    return Reading(topic, tuple(column.name for column in key), key)


def read(
    session: SparkSession,
    kafka: SparkKafka,
    topic: str,
    group: str,
    *,
    starts: Mapping[str, int] | None = None,
    newest: bool = False,
    at_most: int | None = None,
    headers: bool = True,
) -> DataFrame:
    """The records of a topic, from the earliest on, from offsets by partition, or only those still to come.

    at_most: how many a micro-batch takes; real-time mode knows no such limit.
    headers: with those of each record; Spark would convert them even if nobody reads them.
    """
    start = "latest" if newest else json.dumps({topic: starts}) if starts else "earliest"
    source = session.readStream.format("kafka").options(**_source_options(kafka, topic, group))
    source = source.option("startingOffsets", start).option("includeHeaders", headers)
    if at_most is not None:
        source = source.option("maxOffsetsPerTrigger", at_most)
    return source.load()


def read_between(
    session: SparkSession, kafka: SparkKafka, topic: str, group: str, starts: Mapping[int, int], ends: Mapping[int, int]
) -> DataFrame:
    """The records of a topic from the first offsets on, up to and without the second; each has all partitions."""
    source = session.read.format("kafka").options(**_source_options(kafka, topic, group))
    source = source.option("includeHeaders", True)
    for name, offsets in (("startingOffsets", starts), ("endingOffsets", ends)):
        source = source.option(name, json.dumps({topic: {str(p): offset for p, offset in offsets.items()}}))
    return source.load()


def _source_options(kafka: SparkKafka, topic: str, group: str) -> dict[str, str]:
    return {
        **_FETCHED_WHOLE,
        **kafka.source(),
        "subscribe": topic,
        "kafka.isolation.level": "read_committed",
        # Lost records are found and told by the pipeline itself; here they would end the query at every start.
        "failOnDataLoss": "false",
        "groupIdPrefix": group,
    }


def looks_at_headers(output: View | Feed, reading: Reading) -> bool:
    """Whether a view or feed may look at the headers of a source; of what is declared as functions nothing is known."""
    if reading.ranked or output.transform is not None or callable(output.columns):
        return True
    texts = [reading.topic.expect or "", *(output.columns or {}).values()]
    for step in reading.topic.steps:
        if isinstance(step, Dedupe):
            texts.append(HEADERS if step.header is not None else "")
        else:
            texts += [step.condition] if isinstance(step, Where) else [sql for _, sql in step.columns]
    # With case: so are column names compared.
    return any(HEADERS in text for text in texts)


def key_columns(reading: Reading, type: DataType) -> dict[str, Column]:
    """The columns that the record key of a table becomes; the key decodes to this type."""
    key = F.col("_key")
    if reading.ranked:
        if len(reading.ranked) == 1:
            return {column.name: key.cast(column.type) for column in reading.ranked}
        parts = F.from_json(key, "array<string>")
        return {c.name: F.get(parts, F.lit(n)).cast(c.type) for n, c in enumerate(reading.ranked)}
    if not isinstance(type, StructType):
        return {reading.key[0]: key}
    return {name: key.getField(name) for name in reading.key}


def order(reading: Reading, here: Column) -> Column:
    """A number that is higher the newer a value of a key is, among those of its partition; starts at 1.

    here: whether the record holds a value.
    """
    if not reading.ranked:
        return F.col("_offset") + 1
    # Of one version, a row stands above a tombstone; see `Change.rank`.
    version = F.coalesce(F.col(HEADERS).getItem("v").cast("bigint"), F.lit(0))
    return version * 2 + here.cast("int") + 1

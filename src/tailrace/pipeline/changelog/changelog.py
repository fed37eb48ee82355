"""From source topics to a changelog: the whole query of a view or feed, ready to be started."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.readwriter import DataStreamWriter
from pyspark.sql.types import TimestampType

from tailrace.declarations.views import LATEST, Feed, View
from tailrace.kafka.topics import LONGEST
from tailrace.pipeline.lifecycle.generations import Build
from tailrace.pipeline.source import decoding
from tailrace.pipeline.source.decoding import TIMESTAMP
from tailrace.pipeline.source.reading import Reading, RowTypes, looks_at_headers, read, readings
from tailrace.pipeline.source.registry_schemas import RegistrySchemas
from tailrace.pipeline.spark.functions import kafka_partition
from tailrace.pipeline.spark.jvm_parts import SINK, active
from tailrace.pipeline.spark.spark_kafka import SparkKafka
from tailrace.pipeline.view import events
from tailrace.pipeline.view.plan import Decoded, rows_of, state_stages
from tailrace.pipeline.view.rows import EXPIRES, PARTITION, PRESENT, VERSION

# How many records a micro-batch takes. One with state is sorted and shuffled as a whole; one without only costs what a
# crash repeats.
_BATCH = 2_000_000
_BATCH_WITHOUT_STATE = 8_000_000
# What Kafka and our headers add to key and value of a change, at most.
_ROOM = 512
# A producer's own; more where records may be longer.
_BUFFER = 32 * 1024 * 1024
# A producer that gives a record up goes on with later ones. Of a feed, these would stand in the changelog as if
# everything before them did, and the repetition would be taken for a replay: so its producer waits for the brokers.
_NEVER = 2**31 - 1
# In real time a record goes out as soon as it is there, with those that came while the last request was under way. In a
# micro-batch it waits for others to go with it: the end of the batch sends all that still wait.
_AT_ONCE = {"kafka.linger.ms": "0", "kafka.batch.size": str(64 * 1024)}
_TOGETHER = {"kafka.linger.ms": "50", "kafka.batch.size": str(256 * 1024)}


@dataclass(frozen=True)
class QueryContext:
    """What a query needs to know: Kafka, consumer group prefix, length of a batch, types of views, schemas."""

    kafka: SparkKafka
    group: str
    batch_seconds: float
    types: RowTypes = field(default_factory=dict)
    registry_schemas: RegistrySchemas | None = None


def changelog_writer(
    session: SparkSession,
    build: Build,
    context: QueryContext,
    *,
    rehearsal: bool = False,
    batches: bool = False,
    longest: int = LONGEST,
    base: int = 0,
) -> DataStreamWriter:
    """The whole query, from the source topics to the changelog, without a trigger.

    rehearsal: read the newest records only and write nothing.
    batches: for micro-batches, which take a limited number of records each.
    longest: how many bytes of a record the changelog takes.
    base: what is added to versions.
    """
    output = build.output
    changelog = changelog_frame(session, build, context, rehearsal=rehearsal, batches=batches, base=base)
    if batches and SINK in active(session):
        conflate = isinstance(output, View) and output.kind == LATEST and _stateless(build, context)
        writer = write_batches(changelog, context.kafka, build, conflate=conflate, longest=longest)
    else:
        writer = write(changelog, context.kafka, build, longest, batches=batches)
    writer = writer.option("checkpointLocation", str(build.checkpoint))
    if isinstance(output, Feed):
        writer = writer.option("kafka.delivery.timeout.ms", str(_NEVER))
    # Two generations of a view may run side by side.
    return writer.queryName(f"{observed_as(output, rehearsal=rehearsal)}, generation {build.generation}")


def observed_as(output: View | Feed, *, rehearsal: bool) -> str:
    """What the counts of a query are observed under."""
    return f"rehearsal of {output.name}" if rehearsal else output.name


def changelog_frame(
    session: SparkSession,
    build: Build,
    context: QueryContext,
    *,
    rehearsal: bool = False,
    batches: bool = False,
    base: int = 0,
) -> DataFrame:
    """What is written to the changelog of a view or feed; the arguments are those of `changelog_writer`."""
    output = build.output
    at_most = _BATCH_WITHOUT_STATE if _stateless(build, context) else _BATCH
    sources = []
    for alias, reading in build_readings(build, context):
        records = read(
            session,
            context.kafka,
            reading.topic.name,
            f"{context.group}.{output.name}",
            starts=build.starts.get(reading.topic.name),
            newest=rehearsal,
            at_most=at_most if batches else None,
            headers=looks_at_headers(output, reading),
        )
        decoded = events.decode(records, decoding.schemas(session, reading.topic, context.registry_schemas), reading)
        sources.append(Decoded(alias, reading, decoded))
    name = observed_as(output, rehearsal=rehearsal)
    found = rows_of(output, sources, observed_as=name, batches=batches)
    if base:
        found = found.withColumn(VERSION, F.col(VERSION) + F.lit(base))
    if rehearsal:
        found = found.where(_never())
    if batches and SINK in active(session):
        return unwritten_changes(found, output.row_key)
    return changes(found, output.row_key, build.generation, build.origin)


def build_readings(build: Build, context: QueryContext) -> list[tuple[str, Reading]]:
    """How a build reads its sources."""
    return readings(build.output, context.types, context.registry_schemas, build.ground)


def _stateless(build: Build, context: QueryContext) -> bool:
    return state_stages(build.output, build_readings(build, context)) == 0


def real_time(writer: DataStreamWriter, batch_seconds: float) -> DataStreamWriter:
    """Run in real-time mode, with batches of a length."""
    interval = f"{round(batch_seconds * 1000)} milliseconds"
    # PySpark takes this keyword; its types do not know it yet.
    return writer.trigger(realTime=interval)  # type: ignore[call-overload, no-any-return]


def _never() -> Column:
    """A condition that no row meets, and that the optimizer can't see through."""
    return F.col(VERSION) < 0


def changes(rows: DataFrame, key: tuple[str, ...], generation: int, origin: str = "") -> DataFrame:
    """The changelog records of rows; those of a feed say which source topic they come from."""
    row: Column = F.to_json(F.struct(*row_columns(rows)), {"ignoreNullFields": "false"})
    headers = {"g": F.lit(generation), **_numbers(rows)} | ({"s": F.lit(origin)} if origin else {})
    return rows.select(
        key_text(rows, key).alias("key"),
        _unless_gone(rows, row).alias("value"),
        F.array(*(_header(name, text) for name, text in headers.items())).alias("headers"),
    )


def fitting(changes: DataFrame, longest: int) -> DataFrame:
    """Changes that a topic takes: of a row that is too long only that it is, so that the key holds none."""
    size = F.octet_length("key") + F.coalesce(F.octet_length("value"), F.lit(0))
    fits = size <= longest - _ROOM
    headers = F.col("headers")
    return changes.select(
        "key",
        F.when(fits, F.col("value")).alias("value"),
        F.when(fits, headers).otherwise(F.concat(headers, F.array(_header("o", size)))).alias("headers"),
    )


def unwritten_changes(rows: DataFrame, key: tuple[str, ...]) -> DataFrame:
    """The same before it is text; `Changelog.java` makes records of them."""
    return rows.select(
        key_text(rows, key).alias("key"),
        _unless_gone(rows, F.struct(*row_columns(rows))).alias("row"),
        *(number.cast("long").alias(name) for name, number in _numbers(rows).items()),
    )


def _unless_gone(rows: DataFrame, row: Column) -> Column:
    return F.when(F.col(PRESENT), row) if PRESENT in rows.columns else row


def _numbers(rows: DataFrame) -> dict[str, Column]:
    """The headers that differ from change to change."""
    timestamp = F.greatest(F.unix_millis(F.col(TIMESTAMP)), F.lit(0))
    further = {name: F.col(column) for name, column in (("x", EXPIRES), ("p", PARTITION)) if column in rows.columns}
    return {"v": F.col(VERSION), "t": timestamp, **further}


def row_columns(rows: DataFrame) -> list[str]:
    """The columns that clients see: those with names that a user can give."""
    return [name for name in rows.columns if not name.startswith("_")]


def key_text(rows: DataFrame, key: tuple[str, ...]) -> Column:
    """The key as text; several columns as a JSON array."""
    if len(key) == 1:
        if isinstance(rows.schema[key[0]].dataType, TimestampType):
            # As in the row's JSON.
            return F.get_json_object(F.to_json(F.array(F.col(key[0]))), "$[0]")
        return F.col(key[0]).cast("string")
    parts: list[Column] = []
    for name in key:
        # to_json(array(x)) spells one value as JSON between two brackets, whatever its type.
        alone = F.to_json(F.array(F.col(name)))
        parts += [F.lit(",") if parts else F.lit("["), F.substring(alone, F.lit(2), F.length(alone) - 2)]
    return F.concat(*parts, F.lit("]"))


def _header(name: str, text: Column) -> Column:
    return F.struct(F.lit(name).alias("key"), text.cast("string").cast("binary").alias("value"))


def write(
    changes: DataFrame, kafka: SparkKafka, build: Build, longest: int = LONGEST, *, batches: bool = False
) -> DataStreamWriter:
    """Changes to Kafka, by Spark's own sink."""
    found, partitions = fitting(changes, longest), build.partitions
    if partitions and SINK not in active(changes.sparkSession):
        # Without `Layout.java` the plan itself says where a row belongs.
        found, partitions = found.withColumn("partition", kafka_partition(F.col("key"), partitions)), 0
    usual = _TOGETHER if batches else _AT_ONCE
    options = sink_options(kafka, build.output.changelog, longest, partitions, usual)
    return found.writeStream.format("kafka").outputMode("update").options(**options)


def write_batches(
    changes: DataFrame, kafka: SparkKafka, build: Build, *, conflate: bool, longest: int = LONGEST
) -> DataStreamWriter:
    """Unwritten changes of micro-batches to Kafka.

    conflate: of the changes of a key that a task of a batch makes, write the one of the highest version.
    """
    of_build: dict[str, int | str | bool] = {
        "generation": build.generation,
        "origin": build.origin,
        "conflate": conflate,
        "longest": longest - _ROOM,
    }
    options = sink_options(kafka, build.output.changelog, longest, build.partitions, _TOGETHER)
    return changes.writeStream.format("tailrace.Changelog").outputMode("update").options(**options, **of_build)


def sink_options(
    kafka: SparkKafka, topic: str, longest: int, partitions: int = 0, usual: Mapping[str, str] = _AT_ONCE
) -> dict[str, str]:
    """The options of the Kafka sink, for every writer; a record has so many bytes at most.

    partitions: how many of the topic are used, the first ones; all if 0. See `Layout.java`.
    usual: what the user's own configuration of Kafka may replace.
    """
    layout = {"kafka.partitioner.class": "tailrace.Layout", "kafka.tailrace.partitions": str(partitions)}
    return {
        "kafka.buffer.memory": str(max(2 * longest, _BUFFER)),
        **usual,
        **kafka.sink(),
        **(layout if partitions else {}),
        "topic": topic,
        "includeHeaders": "true",
        # Of one request to a broker, also one with many records.
        "kafka.max.request.size": str(max(longest, LONGEST)),
    }

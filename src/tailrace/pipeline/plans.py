"""Plans: how declarations become Spark data frames.

    read      Kafka records, as the Kafka source gives them
    decode    the value's fields, the record's metadata, what the topic's steps make of them, and why a record is
              skipped (null where it is not)
    observe   count what is skipped, by reason
    events    what is left: not skipped, not repeated, and every condition of the topic holds
    rows      one row per key with version and source timestamp: the view
    changes   changelog records: key, value, headers

Every step is a native Spark expression; nothing runs in Python per row.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.readwriter import DataStreamWriter
from pyspark.sql.types import StructType

from tailrace.pipeline import decoding
from tailrace.pipeline.decoding import MALFORMED, NULL_VALUE, SKIPPED, TIMESTAMP, value_schema
from tailrace.topics import Dedupe, Step, Topic, Where
from tailrace.views import View

__all__ = [
    "REASONS",
    "SKIPPED",
    "VERSION",
    "changes",
    "decode",
    "events",
    "key_text",
    "never",
    "observe",
    "read",
    "rows",
    "state_stages",
    "value_schema",
    "write",
]

VERSION = "_version"
_KEPT = "__kept"
# Where a topic is deduplicated: what was kept until then, and what tells an event from others.
_SEEN = "__seen"
_IDENTITY = "__identity"

# Why a record is skipped; the words that metrics show.
BROKEN_RULE = "broken-rule"
NO_KEY = "no-key"
REASONS = (NULL_VALUE, MALFORMED, BROKEN_RULE, NO_KEY)


def read(
    session: SparkSession, servers: str, topic: Topic, group: str, *, newest: bool = False, at_most: int | None = None
) -> DataFrame:
    """The records of a topic, from the earliest on, or only those still to come.

    at_most: how many a micro-batch takes; real-time mode knows no such limit.
    """
    source = (
        session.readStream.format("kafka")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", topic.name)
        .option("startingOffsets", "latest" if newest else "earliest")
        .option("kafka.isolation.level", "read_committed")
        # Lost records are found and told by the pipeline itself; here they would end the query at every start.
        .option("failOnDataLoss", "false")
        .option("groupIdPrefix", group)
        .option("includeHeaders", "true")
    )
    return (source.option("maxOffsetsPerTrigger", at_most) if at_most is not None else source).load()


def decode(records: DataFrame, schema: StructType, view: View) -> DataFrame:
    """The columns of each record after the topic's steps, and why it is skipped.

    Conditions are kept as a flag, so that what is skipped can be counted where all columns are known. An expression is
    computed only for records that all conditions before it let through.
    """
    topic = view.source
    decoded = decoding.decode(records, schema, topic)
    if topic.expect is not None:
        met = F.coalesce(F.expr(topic.expect), F.lit(False))
        broken = F.when(F.col(SKIPPED).isNull() & ~met, BROKEN_RULE)
        decoded = decoded.withColumn(SKIPPED, F.coalesce(F.col(SKIPPED), broken))
    decoded = decoded.withColumn(_KEPT, F.col(SKIPPED).isNull())
    for step in topic.steps:
        decoded = _after(decoded, step)
    keyless = F.lit(False)
    for name in view.key:
        keyless = keyless | F.col(name).isNull()
    return decoded.withColumn(SKIPPED, F.when(F.col(_KEPT) & keyless, NO_KEY).otherwise(F.col(SKIPPED)))


def _after(decoded: DataFrame, step: Step) -> DataFrame:
    if isinstance(step, Where):
        return decoded.withColumn(_KEPT, F.when(F.col(_KEPT), F.expr(step.condition)).eqNullSafe(F.lit(True)))
    if isinstance(step, Dedupe):
        return decoded.withColumns({_SEEN: F.col(_KEPT), _IDENTITY: F.when(F.col(_KEPT), _identity(step))})
    return decoded.withColumns({name: F.when(F.col(_KEPT), F.expr(sql)) for name, sql in step.columns})


def _identity(step: Dedupe) -> Column:
    """What repeated events have in common; an event that lacks some of it has an identity of its own."""
    lacking = F.lit(False)
    for name in step.by:
        lacking = lacking | F.col(name).isNull()
    alone = F.when(lacking, F.struct("_topic", "_partition", "_offset"))
    return F.struct(*(F.col(name).alias(f"by_{place}") for place, name in enumerate(step.by)), alone.alias("alone"))


def observe(decoded: DataFrame, name: str) -> DataFrame:
    """Count the records, and those that are skipped by reason, under a name."""
    counts = [F.count_if(F.col(SKIPPED).eqNullSafe(F.lit(reason))).alias(reason) for reason in REASONS]
    return decoded.observe(name, F.count(F.lit(1)).alias("inputs"), *counts)


def events(decoded: DataFrame) -> DataFrame:
    """The records that are not skipped and meet every condition of the topic, repeated ones once."""
    kept = decoded.where(F.col(SKIPPED).isNull())
    if _IDENTITY in decoded.columns:
        kept = kept.where(F.col(_SEEN)).dropDuplicates([_IDENTITY])
    return kept.where(F.col(_KEPT))


def state_stages(view: View) -> int:
    """How many times real-time mode needs a task slot per state partition for a view."""
    return 1 + sum(isinstance(step, Dedupe) for step in view.source.steps)


def rows(kept: DataFrame, view: View) -> DataFrame:
    """One row per key: key columns, the view's columns, version and source timestamp."""
    columns = [F.expr(sql).alias(name) for name, sql in view.columns.items()]
    return kept.groupBy(*view.key).agg(*columns, F.count(F.lit(1)).alias(VERSION), F.max(TIMESTAMP).alias(TIMESTAMP))


def never() -> Column:
    """A condition that no row meets, and that the optimizer can't see through."""
    return F.col(VERSION) < 0


def changes(view_rows: DataFrame, view: View, generation: int) -> DataFrame:
    """The changelog records of a view."""
    row = F.struct(*view.key, *view.columns)
    timestamp = F.greatest(F.unix_millis(F.col(TIMESTAMP)), F.lit(0))
    headers = F.array(_header("g", F.lit(generation)), _header("v", F.col(VERSION)), _header("t", timestamp))
    return view_rows.select(
        key_text(view.key).alias("key"),
        F.to_json(row, {"ignoreNullFields": "false"}).alias("value"),
        headers.alias("headers"),
    )


def key_text(key: tuple[str, ...]) -> Column:
    """The key as text; several columns as a JSON array."""
    if len(key) == 1:
        return F.col(key[0]).cast("string")
    parts: list[Column] = []
    for name in key:
        # to_json(array(x)) spells one value as JSON between two brackets, whatever its type.
        alone = F.to_json(F.array(F.col(name)))
        parts += [F.lit(",") if parts else F.lit("["), F.substring(alone, F.lit(2), F.length(alone) - 2)]
    return F.concat(*parts, F.lit("]"))


def _header(name: str, number: Column) -> Column:
    return F.struct(F.lit(name).alias("key"), number.cast("string").cast("binary").alias("value"))


def write(changelog: DataFrame, servers: str, topic: str) -> DataStreamWriter:
    """The Kafka sink of a view."""
    return (
        changelog.writeStream.format("kafka")
        .outputMode("update")
        .option("kafka.bootstrap.servers", servers)
        .option("topic", topic)
        .option("includeHeaders", "true")
        .option("kafka.linger.ms", "0")
        .option("kafka.max.request.size", str(8 * 1024 * 1024))
    )

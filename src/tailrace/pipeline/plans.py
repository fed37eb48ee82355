"""Plans: how declarations become Spark data frames.

    read      Kafka records, as the Kafka source gives them
    decode    the value's fields, and why a record is skipped (null where it is not)
    observe   count what is skipped, by reason
    events    what is left after the topic's conditions
    rows      one row per key with version and source timestamp: the view
    changes   changelog records: key, value, headers

Every step is a native Spark expression; nothing runs in Python per row.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.readwriter import DataStreamWriter
from pyspark.sql.types import BooleanType, StringType, StructField, StructType

from tailrace.topics import Topic
from tailrace.views import View

_CORRUPT = "_corrupt_record"
_JSON = {
    "mode": "PERMISSIVE",
    "columnNameOfCorruptRecord": _CORRUPT,
    "allowNonNumericNumbers": "false",
    "allowSingleQuotes": "false",
}
SKIPPED = "_skipped"
VERSION = "_version"
TIMESTAMP = "_timestamp"

# Why a record is skipped; the words that metrics show.
NULL_VALUE = "null-value"
MALFORMED = "malformed"
NO_KEY = "no-key"
REASONS = (NULL_VALUE, MALFORMED, NO_KEY)


def value_schema(session: SparkSession, topic: Topic) -> StructType:
    """The declared schema of a topic's value; raises Spark's ParseException where it is no DDL."""
    return session.createDataFrame([], topic.value).schema


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
    )
    return (source.option("maxOffsetsPerTrigger", at_most) if at_most is not None else source).load()


def decode(records: DataFrame, schema: StructType, view: View) -> DataFrame:
    """The fields of each record's value, its timestamp, and why it is skipped."""
    text = F.col("value").cast("string")
    # Spark's parser stops after the first JSON value. Wrapped like this, whatever follows it spoils `whole`.
    wrapped = F.concat(F.lit('{"value":'), text, F.lit(',"whole":true}'))
    wrapper = StructType([StructField("value", schema), StructField("whole", BooleanType())])
    parsed = F.from_json(wrapped, wrapper.add(_CORRUPT, StringType()), _JSON).alias("_json")
    fields = records.select(F.col("value"), F.col("timestamp").alias(TIMESTAMP), parsed)
    malformed = (
        F.col("_json.value").isNull()
        | F.col("_json.whole").isNull()
        | F.col(f"_json.{_CORRUPT}").isNotNull()
        | ~F.is_valid_utf8(text)
    )
    keyless = F.lit(False)
    for name in view.key:
        keyless = keyless | F.col("_json.value").getField(name).isNull()
    reason = F.when(F.col("value").isNull(), NULL_VALUE).when(malformed, MALFORMED).when(keyless, NO_KEY)
    return fields.select(
        *(F.col("_json.value").getField(name).alias(name) for name in schema.fieldNames()),
        TIMESTAMP,
        reason.alias(SKIPPED),
    )


def observe(decoded: DataFrame, name: str) -> DataFrame:
    """Count the records, and those that are skipped by reason, under a name."""
    counts = [F.count_if(F.col(SKIPPED).eqNullSafe(F.lit(reason))).alias(reason) for reason in REASONS]
    return decoded.observe(name, F.count(F.lit(1)).alias("inputs"), *counts)


def events(decoded: DataFrame, topic: Topic) -> DataFrame:
    """The records that are not skipped and meet every condition of the topic."""
    kept = decoded.where(F.col(SKIPPED).isNull())
    for condition in topic.conditions:
        kept = kept.where(condition)
    return kept


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

"""Dead letters: every record that can't be used, byte for byte, on `<topic>.dead-letters` with where from and why.

A search decodes a range of a topic as the views do, and keeps what they skip. A record that some views can use and
others can't is among them, too, with the names of those that can't.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from tailrace.declarations.views import Feed, View
from tailrace.kafka.dead_letters import NOT_HELD, ROOM, ROOM_OF_HEADER, dead_letter_topic
from tailrace.pipeline.changelog.changelog import QueryContext, sink_options
from tailrace.pipeline.dead_letters.search import SearchResult
from tailrace.pipeline.dead_letters.search_plan import Offsets
from tailrace.pipeline.source import decoding
from tailrace.pipeline.source.decoding import RAW, SKIPPED, Schemas
from tailrace.pipeline.source.reading import Reading, read_between
from tailrace.pipeline.spark.overflow import checked
from tailrace.pipeline.view import events
from tailrace.pipeline.view.events import KEPT, ORDER

_BASE = "__base"
_VIEWS = "__views"
_CAME = "__came"
_SAID = "__said"


def write_dead_letters(
    session: SparkSession,
    declared: Reading,
    outputs: Sequence[tuple[View | Feed, Reading]],
    context: QueryContext,
    starts: Offsets,
    ends: Offsets,
    longest: int,
) -> SearchResult:
    """Write the dead letters of one topic between offsets; `outputs` are computed from it, each with its own steps.

    longest: how many bytes of a record the topic of dead letters takes.
    """
    name = dead_letter_topic(declared.topic.name)
    records = read_between(session, context.kafka, declared.topic.name, f"{context.group}.{name}", starts, ends)
    schemas = decoding.schemas(session, declared.topic, context.registry_schemas)
    decoded = decoding.decode(records, schemas, declared.topic, raw=True)
    # What is observed is computed once; a condition alone would be evaluated where records are read, and again after.
    marked = checked(events.observe(bad_for(decoded, declared, outputs), name))
    found = dead_letters(marked, declared, schemas, longest).persist(StorageLevel.MEMORY_AND_DISK)
    try:
        counts = {row[SKIPPED]: row["count"] for row in found.groupBy(SKIPPED).count().collect()}
        if counts:
            found.drop(SKIPPED).write.format("kafka").options(**sink_options(context.kafka, name, longest)).save()
    finally:
        found.unpersist()
    return SearchResult(sum(end - starts[p] for p, end in ends.items()), counts)


def bad_for(decoded: DataFrame, declared: Reading, outputs: Sequence[tuple[View | Feed, Reading]]) -> DataFrame:
    """Mark every record that the topic's format or rule, or one of the outputs, has no use for."""
    frame = events.unusable(events.stepped(decoded, declared), declared.key, None, table=declared.is_table)
    frame = frame.withColumn(_VIEWS, F.array().cast("array<string>")).drop(KEPT, ORDER)
    for output, reading in outputs:
        if output.transform is not None or reading.is_table:
            # What a transform makes of a record is not the record any more; a table's key is known already.
            continue
        frame = _bad_for_one(frame, output, reading)
    return frame


def _bad_for_one(frame: DataFrame, output: View | Feed, reading: Reading) -> DataFrame:
    """Steps may rename and replace columns, so each output starts from the columns as they were."""
    base = frame.columns
    window = output.window if isinstance(output, View) else None
    stepped = frame.withColumn(_BASE, F.struct(*base)).withColumn(KEPT, F.col(SKIPPED).isNull())
    for step in reading.topic.steps:
        stepped = events.after(stepped, step)
    marked = events.unusable(stepped, output.key, window).select(_BASE, F.col(SKIPPED).alias("__why"))
    kept = {name: F.col(f"{_BASE}.{name}") for name in base}
    why = F.col("__why")
    news = why.isin(events.NO_KEY, events.NO_TIME, events.AHEAD)
    kept[SKIPPED] = F.coalesce(kept[SKIPPED], F.when(news, why))
    kept[_VIEWS] = F.when(news, F.array_append(kept[_VIEWS], F.lit(output.name))).otherwise(kept[_VIEWS])
    return marked.select(*(column.alias(name) for name, column in kept.items()))


def dead_letters(marked: DataFrame, declared: Reading, schemas: Schemas, longest: int) -> DataFrame:
    """The records to write, and why: key, value and headers as they came, and headers that say where from and why.

    Of a record that does not fit, the latter alone.
    """
    error = _error(declared, schemas)
    came = F.coalesce(F.col(f"{RAW}.headers"), F.array().cast(decoding.HEADERS))
    bad = marked.where(F.col(SKIPPED).isNotNull()).withColumns({_CAME: came, _SAID: _said(error)})
    fits = _size() <= longest
    headers = F.when(fits, F.concat(_CAME, _SAID)).otherwise(_said(F.concat(error, F.lit(NOT_HELD))))
    return bad.select(
        F.when(fits, F.col(f"{RAW}.key")).alias("key"),
        F.when(fits, F.col(f"{RAW}.value")).alias("value"),
        headers.alias("headers"),
        SKIPPED,
    )


def _size() -> Column:
    """How long a dead letter is that holds its record."""

    def length(part: Column) -> Column:
        return F.coalesce(F.octet_length(part), F.lit(0))

    def after(sum: Column, header: Column) -> Column:
        return sum + length(header.getField("key")) + length(header.getField("value")) + ROOM_OF_HEADER

    start = length(F.col(f"{RAW}.key")) + length(F.col(f"{RAW}.value")) + ROOM
    return F.aggregate(F.concat(_CAME, _SAID), start, after)


def _said(error: Column) -> Column:
    """The headers that say where a record comes from, and why it is a dead letter."""
    said: dict[str, Column] = {
        "error": error,
        "topic": F.col("_topic"),
        "partition": F.col("_partition"),
        "offset": F.col("_offset"),
        "timestamp": F.unix_millis("_timestamp"),
        "views": F.array_join(_VIEWS, ","),
    }
    return F.array(
        *(
            F.struct(F.lit(f"tailrace.{name}").alias("key"), column.cast("string").cast("binary").alias("value"))
            for name, column in said.items()
        )
    )


def _error(declared: Reading, schemas: Schemas) -> Column:
    topic = declared.topic
    expected = f"{topic.format} of {_fields(schemas.value)}"
    texts = {
        decoding.NULL_VALUE: f"expected {expected}, got a record without a value",
        decoding.MALFORMED: f"expected {expected}, each number within the range of its type",
        events.BROKEN_RULE: f"expected {topic.expect}",
        events.NO_KEY: f"expected a value in every key column, of {events.LONGEST_KEY} bytes at most together",
        events.NO_TIME: "expected a value in the time column",
        events.AHEAD: "expected a time that is not in the future: `ahead=` says how far it may be ahead of its record",
    }
    found = F.col(SKIPPED)
    for reason, text in texts.items():
        found = F.when(F.col(SKIPPED) == reason, F.lit(f"{reason}: {text}")).otherwise(found)
    return found


def _fields(schema: StructType) -> str:
    text = ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in schema.fields)
    return text if len(text) <= 500 else text[:500] + "…"

"""Events: from decoded records to what a view is computed from.

    decode    the value's fields, the record's metadata, what the steps make of them, and why a record is skipped
              (null if it is not)
    observe   count what is skipped, by reason
    events    what is left of a topic: not skipped, not repeated, and every condition holds
    values    what is left of a table: the value of each record, or that the key is gone

Every step is a native Spark expression; nothing runs in Python per row.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StringType

from tailrace.declarations import durations
from tailrace.declarations.topics import Dedupe, Step, Where
from tailrace.declarations.views import Window
from tailrace.pipeline.source import decoding
from tailrace.pipeline.source.decoding import MALFORMED, NULL_VALUE, SKIPPED, TIMESTAMP, Schemas
from tailrace.pipeline.source.reading import HEADERS, Reading, key_columns, order

# What conditions have let through so far; of a table, whether the key holds a row.
KEPT = "__kept"
# How new a value of a table is.
ORDER = "__order"
# Whether a record of a table says what its key holds.
USABLE = "__usable"
# Of a topic with a dedupe: what was kept until then, and the identity of an event.
_SEEN = "__seen"
_IDENTITY = "__identity"

# Why a record is skipped; the words that metrics, status and dead letters show.
BROKEN_RULE = "broken-rule"
NO_KEY = "no-key"
NO_TIME = "no-time"
# Says that it was in the future: it would make everything that comes now too late.
AHEAD = "ahead"
REASONS = (NULL_VALUE, MALFORMED, BROKEN_RULE, NO_KEY, NO_TIME, AHEAD)
# How far the timestamp of a record may be ahead of the clock, which is read once per batch, where time counts.
_LONGEST_AHEAD = "1 day"
# Bytes of a key, of all its columns together: as many as clients may ask for.
LONGEST_KEY = 65_535
# Too old for a window or for what a dedupe remembers. Only Spark knows; see `query`.
LATE = "late"


def decode(records: DataFrame, schemas: Schemas, reading: Reading) -> DataFrame:
    """The columns of each record after the steps, and why it is skipped."""
    return stepped(decoding.decode(records, schemas, reading.topic, lenient=bool(reading.ranked)), reading)


def stepped(decoded: DataFrame, reading: Reading) -> DataFrame:
    """Apply the rule and the steps of a topic.

    Conditions are kept as a flag, so that what is skipped can be counted where all columns are known. An expression is
    computed only for records that all conditions before it let through.
    """
    topic = reading.topic
    if reading.generation is not None:
        decoded = decoded.where(F.col(HEADERS).getItem("g") == str(reading.generation))
    if reading.is_table:
        here = ~F.col(SKIPPED).eqNullSafe(F.lit(NULL_VALUE))
        decoded = decoded.withColumns({KEPT: here, ORDER: order(reading, here)})
        decoded = decoded.withColumn(SKIPPED, F.when(F.col(KEPT), F.col(SKIPPED)))
        decoded = decoded.withColumns(key_columns(reading, decoded.schema["_key"].dataType))
    else:
        decoded = decoded.withColumn(KEPT, F.lit(True))
    if topic.expect is not None:
        met = F.coalesce(F.expr(topic.expect), F.lit(False))
        broken = F.when(F.col(SKIPPED).isNull() & F.col(KEPT) & ~met, BROKEN_RULE)
        decoded = decoded.withColumn(SKIPPED, F.coalesce(F.col(SKIPPED), broken))
    decoded = decoded.withColumn(KEPT, F.col(KEPT) & F.col(SKIPPED).isNull())
    for step in topic.steps:
        decoded = after(decoded, step)
    return decoded


def after(decoded: DataFrame, step: Step) -> DataFrame:
    """The columns after one more step."""
    if isinstance(step, Where):
        return decoded.withColumn(KEPT, F.when(F.col(KEPT), F.expr(step.condition)).eqNullSafe(F.lit(True)))
    if isinstance(step, Dedupe):
        if not step.remembers:
            return decoded
        if step.within is not None:
            early = F.when(F.col(KEPT) & _is_ahead(), AHEAD)
            decoded = decoded.withColumn(SKIPPED, F.coalesce(F.col(SKIPPED), early))
            decoded = decoded.withColumn(KEPT, F.col(KEPT) & F.col(SKIPPED).isNull())
        return decoded.withColumns({_SEEN: F.col(KEPT), _IDENTITY: F.when(F.col(KEPT), _identity(step))})
    return decoded.withColumns({name: F.when(F.col(KEPT), F.expr(sql)) for name, sql in step.columns})


def _identity(step: Dedupe) -> Column:
    """The identity of an event: repeated ones share it; an event that lacks a part of it has one of its own."""
    ids = [F.col(name) for name in step.by] or [F.col("_headers").getItem(step.header)]
    lacking = F.lit(False)
    for column in ids:
        lacking = lacking | column.isNull()
    alone = F.when(lacking, F.struct("_topic", "_partition", "_offset"))
    return F.struct(*(column.alias(f"by_{place}") for place, column in enumerate(ids)), alone.alias("alone"))


def _is_ahead() -> Column:
    """Whether a record has a timestamp that no clock shows yet."""
    return F.unix_micros(TIMESTAMP) > F.unix_micros(F.current_timestamp()) + _micros(_LONGEST_AHEAD)


def _micros(duration: str) -> Column:
    return F.lit(round(durations.seconds(duration) * 1_000_000))


def unusable(decoded: DataFrame, key: Sequence[str], window: Window | None, *, table: bool = False) -> DataFrame:
    """Mark what has no value in a key column or too long ones, or no time that can be, where one is needed."""
    keyless = _keyless(decoded, key)
    considered = F.col(SKIPPED).isNull() if table else F.col(KEPT)
    reason = F.when(considered & keyless, NO_KEY)
    if window is not None:
        at = F.col(window.at)
        # By the record's own timestamp, and not by the clock: that is the same whenever it is read.
        later = F.unix_micros(at) > F.unix_micros(TIMESTAMP) + _micros(window.ahead)
        reason = reason.when(considered & at.isNull(), NO_TIME).when(considered & (later | _is_ahead()), AHEAD)
    return decoded.withColumn(SKIPPED, reason.otherwise(F.col(SKIPPED)))


def _keyless(decoded: DataFrame, key: Sequence[str]) -> Column:
    """Whether a key column has no value, or they are too long together."""
    keyless, length = F.lit(False), F.lit(0)
    for name in key:
        keyless = keyless | F.col(name).isNull()
    texts = [name for name in key if isinstance(decoded.schema[name].dataType, StringType)]
    for name in texts:
        length = length + F.octet_length(F.col(name))
    return keyless | (length > LONGEST_KEY) if texts else keyless


def remarked(events: DataFrame, key: Sequence[str], window: Window | None) -> DataFrame:
    """Events that went through a transform, marked anew."""
    kept = events.withColumns({KEPT: F.lit(True), SKIPPED: F.lit(None).cast("string")})
    return unusable(kept, key, window)


def observe(decoded: DataFrame, name: str) -> DataFrame:
    """Count the records, and those that are skipped by reason, under a name."""
    counts = [F.count_if(F.col(SKIPPED).eqNullSafe(F.lit(reason))).alias(reason) for reason in REASONS]
    return decoded.observe(name, F.count(F.lit(1)).alias("inputs"), *counts)


def events(decoded: DataFrame, reading: Reading) -> DataFrame:
    """The records that are not skipped and meet every condition of the topic, repeated ones once."""
    kept = decoded.where(F.col(SKIPPED).isNull())
    if _IDENTITY in decoded.columns:
        kept = _first_of_each(kept.where(F.col(_SEEN)), dedupe(reading))
    return kept.where(F.col(KEPT)).drop(SKIPPED, KEPT, _SEEN, _IDENTITY)


def _first_of_each(kept: DataFrame, step: Dedupe | None) -> DataFrame:
    # In a dry run nothing is late, and nothing is forgotten.
    if step is None or step.within is None or not kept.isStreaming:
        return kept.dropDuplicates([_IDENTITY])
    return kept.withWatermark(TIMESTAMP, durations.spark_text(step.within)).dropDuplicatesWithinWatermark([_IDENTITY])


def dedupe(reading: Reading) -> Dedupe | None:
    """The step of a topic that remembers events, if it has one."""
    return next((step for step in reading.topic.steps if isinstance(step, Dedupe) and step.remembers), None)


def values(decoded: DataFrame) -> DataFrame:
    """The records of a table that are not skipped, with whether the key holds a row from then on."""
    return decoded.where(F.col(SKIPPED).isNull()).drop(SKIPPED)


def all_values(decoded: DataFrame, key: Sequence[str]) -> DataFrame:
    """The same with records that are skipped but have a key: they say nothing, and yet they are the newest of the key.

    Compaction keeps them, and removes what the key held before.
    """
    return decoded.where(~_keyless(decoded, key)).withColumn(USABLE, F.col(SKIPPED).isNull()).drop(SKIPPED)

"""Rows: what each kind of view makes of its events. One function per kind, each a native Spark plan.

Every frame of rows has the key columns, the view's columns, and, under names that no user's column can have: the
version, the source timestamp, where a key may be gone whether it holds a row, and where rows expire when they do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tailrace import durations
from tailrace.pipeline.conflation import conflated
from tailrace.pipeline.decoding import TIMESTAMP
from tailrace.pipeline.events import KEPT, ORDER
from tailrace.pipeline.reading import Reading
from tailrace.topics import WithColumns
from tailrace.views import LATEST, WINDOW_END, WINDOW_START, Feed, View, Window

VERSION = "_version"
PRESENT = "__present"
EXPIRES = "__expires"
PARTITION = "__partition"
_WINDOW = "__window"
_ROW = "__row"
# How many records a row stands for.
_COUNT = "__count"


def aggregate(events: DataFrame, view: View) -> DataFrame:
    """One row per key; the version counts the events of the key."""
    return events.groupBy(*view.key).agg(*_named(view), *_versioned())


def window(events: DataFrame, view: View, declared: Window) -> DataFrame:
    """One row per key and window that an event falls into."""
    size, slide = (durations.spark_text(text) for text in (declared.size, declared.slide or declared.size))
    # The metadata's own timestamp stays as it is: the watermark is that of a copy.
    at = "__at"
    timed = events.withColumn(at, F.col(declared.at)).withWatermark(at, durations.spark_text(declared.late))
    grouped = timed.groupBy(*view.key, F.window(at, size, slide).alias(_WINDOW)).agg(*_named(view), *_versioned())
    found = grouped.select(
        *view.key,
        F.col(f"{_WINDOW}.start").alias(WINDOW_START),
        F.col(f"{_WINDOW}.end").alias(WINDOW_END),
        *(name for name in grouped.columns if name not in (*view.key, _WINDOW)),
    )
    if declared.keep is None:
        return found
    keep = round(durations.seconds(declared.keep) * 1000)
    return found.withColumn(EXPIRES, F.greatest(F.unix_millis(WINDOW_END) + keep, F.lit(0)))


def latest_value(values: DataFrame, view: View) -> DataFrame:
    """The value of each record of a table: no state, because a key's records come in order from one partition."""
    columns = [F.when(F.col(KEPT), column).alias(name) for name, column in one_event(values, view)]
    return values.select(*view.key, *columns, F.col(ORDER).alias(VERSION), TIMESTAMP, F.col(KEPT).alias(PRESENT))


def latest_keyed(events: DataFrame, view: View) -> DataFrame:
    """Each event as the row of its key, in the order of offsets; no state."""
    columns = [column.alias(name) for name, column in one_event(events, view)]
    return events.select(*view.key, *columns, (F.col("_offset") + 1).alias(VERSION), TIMESTAMP)


def latest_event(events: DataFrame, view: View, *, batches: bool = False) -> DataFrame:
    """The newest event per key by timestamp; events of one key may come from several partitions."""
    columns = one_event(events, view)
    row = F.struct(*(column.alias(name) for name, column in columns)).alias(_ROW)
    places = (TIMESTAMP, "_partition", "_offset")
    rows = events.select(*view.key, row, F.struct(*places).alias(ORDER), TIMESTAMP, _one())
    if batches:
        order = [F.unix_micros(TIMESTAMP), *(F.col(ORDER).getField(name).cast("long") for name in places[1:])]
        rows = conflated(rows, view.key, order=order, count=_COUNT, highest=[TIMESTAMP])
    grouped = rows.groupBy(*view.key).agg(F.max_by(_ROW, ORDER).alias(_ROW), *_summed())
    fields = [F.col(_ROW).getField(name).alias(name) for name, _ in columns]
    return grouped.select(*view.key, *fields, VERSION, TIMESTAMP)


def feed(events: DataFrame, declared: Feed) -> DataFrame:
    """Each event by its key; the source's partition and offset tell it from every other."""
    columns = [column.alias(name) for name, column in one_event(events, declared)]
    version = (F.col("_offset") + 1).alias(VERSION)
    return events.select(*declared.key, *columns, version, TIMESTAMP, F.col("_partition").alias(PARTITION))


def keyed_by_record(view: View, reading: Reading) -> bool:
    """Whether the key of a view of latest events is the record key: then events of one key are in order."""
    if view.kind != LATEST or len(view.key) != 1 or view.transform is not None:
        return False
    found = None
    for step in reading.topic.steps:
        if isinstance(step, WithColumns):
            found = dict(step.columns).get(view.key[0], found)
    return found is not None and found.strip() == "_key" and reading.topic.key_format == "string"


def join(tables: Sequence[tuple[str, DataFrame, tuple[str, ...]]], view: View, *, batches: bool = False) -> DataFrame:
    """One row per key that the tables have, as `how` says; each table is (name, values, its key columns).

    The tables are put under each other, and per key the newest value of each is kept.
    """
    first, *others = (_tagged(alias, values, key, view, batches=batches) for alias, values, key in tables)
    tagged = first
    for other in others:
        tagged = tagged.unionByName(other, allowMissingColumns=True)
    names = [alias for alias, _, _ in tables]
    newest = [F.max_by(alias, _order(alias)).alias(alias) for alias in names]
    seen = [F.max(_seen(alias)).alias(_seen(alias)) for alias in names]
    grouped = tagged.groupBy(*view.key).agg(*newest, *seen, *_summed())
    # A key that never had a row needs no tombstone.
    had = _holds(view.how, [F.col(_seen(alias)) for alias in names])
    present = _holds(view.how, [F.col(alias).isNotNull() for alias in names])
    columns = [column.alias(name) for name, column in joined(grouped, view, names)]
    return grouped.where(had).select(*view.key, *columns, VERSION, TIMESTAMP, present.alias(PRESENT))


def _tagged(alias: str, values: DataFrame, key: tuple[str, ...], view: View, *, batches: bool) -> DataFrame:
    fields = [F.col(name) for name in value_columns(values, key)] or [F.lit(True).alias("_here")]
    tagged = values.select(
        *(F.col(own).alias(name) for own, name in zip(key, view.key, strict=True)),
        F.when(F.col(KEPT), F.struct(*fields)).alias(alias),
        F.col(ORDER).alias(_order(alias)),
        F.col(KEPT).alias(_seen(alias)),
        TIMESTAMP,
        _one(),
    )
    if not batches:
        return tagged
    # A value that is gone again in the same batch may have been a row before: a batch that is repeated must retract it.
    highest = [TIMESTAMP, _seen(alias)]
    return conflated(tagged, view.key, order=[F.col(_order(alias))], count=_COUNT, highest=highest)


def joined(grouped: DataFrame, view: View, names: Sequence[str]) -> list[tuple[str, Column]]:
    """The columns of a join over the struct of each table."""
    if view.columns is not None:
        return named_columns(view)
    found: list[tuple[str, Column]] = []
    for alias in names:
        fields = grouped.schema[alias].dataType.fieldNames()  # type: ignore[attr-defined]
        found += [(name, F.col(alias).getField(name)) for name in fields if not name.startswith("_")]
    return found


def one_event(events: DataFrame, output: View | Feed) -> list[tuple[str, Column]]:
    """The columns of a row that is one event: those that are declared, or all."""
    if output.columns is not None:
        return named_columns(output)
    return [(name, F.col(name)) for name in value_columns(events, output.key)]


def value_columns(frame: DataFrame, key: Sequence[str]) -> list[str]:
    """The columns that a user has declared, without those of the key."""
    return [name for name in frame.columns if not name.startswith("_") and name not in key]


def named_columns(output: View | Feed) -> list[tuple[str, Column]]:
    """The declared columns, from SQL text or from the user's function."""
    columns = output.columns
    if columns is None:
        return []
    if isinstance(columns, Mapping):
        return [(name, F.expr(sql)) for name, sql in columns.items()]
    return list(columns().items())


def _named(view: View) -> list[Column]:
    return [column.alias(name) for name, column in named_columns(view)]


def _versioned() -> list[Column]:
    return [F.count(F.lit(1)).alias(VERSION), F.max(TIMESTAMP).alias(TIMESTAMP)]


def _one() -> Column:
    return F.lit(1).cast("long").alias(_COUNT)


def _summed() -> list[Column]:
    """As `_versioned`, of rows that may stand for several."""
    return [F.sum(_COUNT).alias(VERSION), F.max(TIMESTAMP).alias(TIMESTAMP)]


def _holds(how: str, conditions: list[Column]) -> Column:
    """Whether a key has a row, where each condition says whether one table has the key."""
    if how == "left":
        return conditions[0]
    found = conditions[0]
    for condition in conditions[1:]:
        found = found & condition if how == "inner" else found | condition
    return found


def _order(alias: str) -> str:
    return f"__order_{alias}"


def _seen(alias: str) -> str:
    return f"__seen_{alias}"

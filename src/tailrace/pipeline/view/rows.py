"""Rows: what each kind of view makes of its events. One function per kind, each a native Spark plan.

Every frame of rows has the key columns, the view's columns, and, under names that no user's column can have: the
version, the source timestamp, where a key may be gone whether it holds a row, and where rows expire when they do.

A version rises with what a row has absorbed. For tables it follows from the newest record of each, which compaction
keeps; for events it counts them. `docs/decisions/0034-versions.md` says why a replay never falls behind.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, DoubleType, FloatType, MapType, StructType

from tailrace.declarations import durations
from tailrace.declarations.topics import WithColumns
from tailrace.declarations.views import LATEST, WINDOW_END, WINDOW_START, Feed, View, Window
from tailrace.pipeline.source.decoding import TIMESTAMP
from tailrace.pipeline.source.reading import Reading
from tailrace.pipeline.view.conflation import conflated
from tailrace.pipeline.view.events import KEPT, ORDER, USABLE

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
    return _finite(events.groupBy(*view.key).agg(*_named(view), *_versioned()), view)


def window(events: DataFrame, view: View, declared: Window) -> DataFrame:
    """One row per key and window that an event falls into."""
    size, slide = (durations.spark_text(text) for text in (declared.size, declared.slide or declared.size))
    # The metadata's own timestamp stays as it is: the watermark is that of a copy.
    at = "__at"
    timed = events.withColumn(at, F.col(declared.at)).withWatermark(at, durations.spark_text(declared.late))
    grouped = timed.groupBy(*view.key, F.window(at, size, slide).alias(_WINDOW)).agg(*_named(view), *_versioned())
    found = _finite(grouped, view).select(
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


def latest_spread(values: DataFrame, view: View, partitions: int, *, batches: bool = False) -> DataFrame:
    """The newest value per key of a topic whose keys have moved to other partitions: see `_Newest`."""
    columns = one_event(values, view)
    row = F.struct(*([column.alias(name) for name, column in columns] or [F.lit(True).alias("_here")]))
    if KEPT in values.columns:
        row, order, usable = F.when(F.col(KEPT), row), F.col(ORDER), F.col(USABLE)
    else:
        order, usable = F.col("_offset") + 1, F.lit(True)
    tagged = values.select(*view.key, *_tags(_ROW, row, order, usable, spread=True))
    if batches:
        tagged = _conflated_table(tagged, view, _ROW, spread=True)
    newest = _Newest(_ROW, partitions)
    found = tagged.groupBy(*view.key).agg(*newest.aggregates(), F.max(TIMESTAMP).alias(TIMESTAMP))
    found = found.select(*view.key, newest.value().alias(_ROW), newest.version().alias(VERSION), TIMESTAMP)
    shown = [F.col(_ROW).getField(name).alias(name) for name, _ in columns]
    return found.select(*view.key, *shown, VERSION, TIMESTAMP, F.col(_ROW).isNotNull().alias(PRESENT))


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


@dataclass(frozen=True)
class JoinedTable:
    """One table of a join: its name there, its values and key columns; for `spread` see `Reading`."""

    alias: str
    values: DataFrame
    key: tuple[str, ...]
    spread: int = 0


def join(tables: Sequence[JoinedTable], view: View, *, batches: bool = False) -> DataFrame:
    """One row per key that the tables have, as `how` says.

    The tables are put under each other, and per key the newest value of each is kept. The version adds up how new
    these are: it rises with each record, and is the same however many others were read before.
    """
    first, *others = (_tagged(table, view, batches=batches) for table in tables)
    tagged = first
    for other in others:
        tagged = tagged.unionByName(other, allowMissingColumns=True)
    names = [table.alias for table in tables]
    newest = [_Newest(table.alias, table.spread) for table in tables]
    aggregates = [column for one in newest for column in one.aggregates()]
    grouped = tagged.groupBy(*view.key).agg(*aggregates, F.max(TIMESTAMP).alias(TIMESTAMP))
    # A key that can't have had a row needs no tombstone. One that a table has a record of may have had a value there:
    # the record before may have been compacted away since.
    had = _holds(view.how, [one.seen() for one in newest])
    version = newest[0].version()
    for one in newest[1:]:
        version = version + one.version()
    found = grouped.where(had).select(
        *view.key, *(one.value().alias(one.name) for one in newest), version.alias(VERSION), TIMESTAMP
    )
    present = _holds(view.how, [F.col(alias).isNotNull() for alias in names])
    columns = [column.alias(name) for name, column in joined(found, view, names)]
    return found.select(*view.key, *columns, VERSION, TIMESTAMP, present.alias(PRESENT))


def _tagged(table: JoinedTable, view: View, *, batches: bool) -> DataFrame:
    alias, values, key = table.alias, table.values, table.key
    fields = [F.col(name) for name in value_columns(values, key)] or [F.lit(True).alias("_here")]
    value = F.when(F.col(KEPT), F.struct(*fields))
    tagged = values.select(
        *(F.col(own).alias(name) for own, name in zip(key, view.key, strict=True)),
        *_tags(alias, value, F.col(ORDER), F.col(USABLE), spread=table.spread > 0),
    )
    return _conflated_table(tagged, view, alias, spread=table.spread > 0) if batches else tagged


def _tags(name: str, value: Column, order: Column, usable: Column, *, spread: bool) -> list[Column]:
    """A value of a table, and how new it is: a record that can't be used counts for the version alone.

    If keys have moved, the value goes with its record's own time: rows that are left out may be later than it.
    """
    if spread:
        value = F.struct(value.alias("value"), F.unix_micros(TIMESTAMP).alias("time"))
    return [
        value.alias(name),
        F.when(usable, order).otherwise(F.lit(0)).alias(_order(name)),
        order.alias(_number(name)),
        *([F.col("_partition").alias(_at(name))] if spread else []),
        F.col(TIMESTAMP),
        _one(),
    ]


def _conflated_table(tagged: DataFrame, view: View, name: str, *, spread: bool) -> DataFrame:
    """Of the values of a key that a task has, the newest; if keys have moved, that of each partition."""
    key = [*view.key, _at(name)] if spread else view.key
    highest = [TIMESTAMP, _number(name)]
    return conflated(tagged, key, order=[F.col(_order(name))], count=_COUNT, highest=highest)


class _Newest:
    """The newest value of a key in one table, as aggregates and what is made of them.

    In one partition, offsets say which value is the newest. Once keys have moved to other partitions, a key has a
    newest value in each partition, and the one with the latest timestamp counts: the order of a producer's records.
    Each partition has an aggregate of its own, so that the result does not depend on which is read first.
    """

    def __init__(self, name: str, spread: int) -> None:
        self.name = name
        self._places = [f"{name}__{number}" for number in range(spread)]

    def aggregates(self) -> list[Column]:
        order, number = F.col(_order(self.name)), F.col(_number(self.name))
        if not self._places:
            return [F.max_by(self.name, order).alias(self.name), F.max(number).alias(_number(self.name))]
        found = []
        for partition, place in enumerate(self._places):
            here = F.col(_at(self.name)) == partition
            found.append(F.max_by(self.name, F.when(here & (order > 0), order)).alias(place))
            found.append(F.max(F.when(here, number)).alias(_number(place)))
        return found

    def value(self) -> Column:
        if not self._places:
            return F.col(self.name)
        dated = [F.when(F.col(place).isNotNull(), _dated(place, n)) for n, place in enumerate(self._places)]
        newest = (F.greatest(*dated) if len(dated) > 1 else dated[0]).getField("number")
        found = F.when(newest == 0, F.col(self._places[0]).getField("value"))
        for number, place in enumerate(self._places[1:], 1):
            found = found.when(newest == number, F.col(place).getField("value"))
        return found

    def version(self) -> Column:
        """The sum of the newest records' numbers: it rises with each record that is read."""
        names = self._places or [self.name]
        found = F.coalesce(F.col(_number(names[0])), F.lit(0))
        for name in names[1:]:
            found = found + F.coalesce(F.col(_number(name)), F.lit(0))
        return found

    def seen(self) -> Column:
        """Whether the table has, or had, a record of the key."""
        return self.version() > 0


def _dated(place: str, number: int) -> Column:
    return F.struct(F.col(place).getField("time").alias("time"), F.lit(number).alias("number"))


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


def _finite(grouped: DataFrame, view: View) -> DataFrame:
    """Aggregates with null for what is no finite number: a sum that no double holds, or one of infinities."""
    own = {name for name, _ in named_columns(view)}
    checked = {field.name: finite(F.col(field.name), field.dataType) for field in grouped.schema if field.name in own}
    changed = {name: column for name, column in checked.items() if column is not None}
    return grouped.withColumns(changed) if changed else grouped


def finite(value: Column, type: DataType) -> Column | None:
    """A value with null for each number in it that is not finite; None if its type has no such numbers."""
    if isinstance(type, DoubleType | FloatType):
        # Spark has NaN above infinity.
        return F.when(F.abs(value) < F.lit(math.inf), value)
    if isinstance(type, StructType):
        fields = [(one.name, finite(value.getField(one.name), one.dataType)) for one in type]
        if all(column is None for _, column in fields):
            return None
        found = [(value.getField(name) if column is None else column).alias(name) for name, column in fields]
        return F.when(value.isNotNull(), F.struct(*found))
    if isinstance(type, ArrayType) and _fractional(element := type.elementType):
        return F.transform(value, lambda one: _checked(one, element))
    if isinstance(type, MapType) and _fractional(held := type.valueType):
        return F.transform_values(value, lambda _, one: _checked(one, held))
    return None


def _checked(value: Column, type: DataType) -> Column:
    found = finite(value, type)
    return value if found is None else found


def _fractional(type: DataType) -> bool:
    return finite(F.lit(None), type) is not None


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
    """The column that says which value is the newest."""
    return f"__order_{alias}"


def _number(alias: str) -> str:
    """The column that says how new a record is, also one without a value that can be used."""
    return f"__number_{alias}"


def _at(alias: str) -> str:
    """The column that says which partition a value comes from."""
    return f"__at_{alias}"

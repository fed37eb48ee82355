"""Conflation: of the rows of a key that a task of a micro-batch has, only the newest goes on; see `Conflation.java`."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tailrace.pipeline.spark.functions import pack, unpack
from tailrace.pipeline.spark.jvm_parts import CONFLATION, active
from tailrace.pipeline.spark.overflow import checked

_KEY = "key"
_NEWEST = "newest"
_COUNT = "count"
# As the encoder of bytes calls its one column.
_DATA = "value"


def conflated(
    rows: DataFrame, key: Sequence[str], *, order: Sequence[Column], count: str, highest: Sequence[str]
) -> DataFrame:
    """Rows with the same columns of the same types, fewer of them; all of them if the part `conflation` is off.

    order: which row of a key is the newest, as longs that are never null; of equal ones the later.
    count: the column that says how many rows one stands for; it adds up.
    highest: columns of which the highest value stays, whichever row it comes from; fixed in size and never null.
    """
    session = rows.sparkSession
    if CONFLATION not in active(session):
        return rows
    # Rows are packed by their types: whether a column may be null must be known before.
    rows = checked(rows)
    others = [name for name in rows.columns if name not in (*key, count, *highest)]
    fields = [
        F.struct(*key).alias(_KEY),
        F.struct(*others).alias(_NEWEST),
        F.col(count).alias(_COUNT),
        *(column.alias(f"order_{place}") for place, column in enumerate(order)),
        *(F.col(name) for name in highest),
    ]
    row = F.struct(*fields)
    schema = rows.select(row.alias(_DATA)).select(f"{_DATA}.*").schema
    jvm = session._jvm
    assert jvm is not None  # noqa: S101
    conflation = jvm.tailrace.Conflation(len(key), len(order), len(highest))
    packed = rows.select(pack(row).alias(_DATA))
    data = jvm.org.apache.spark.sql.Encoders.BINARY()
    # Its name is a keyword of Python's.
    fewer = getattr(packed._jdf, "as")(data).mapPartitions(conflation, data).toDF()
    found = DataFrame(fewer, session).select(unpack(F.col(_DATA), schema).alias(_DATA))
    row = F.col(_DATA)
    places = {name: row.getField(_KEY).getField(name) for name in key}
    places |= {name: row.getField(_NEWEST).getField(name) for name in others}
    places |= {count: row.getField(_COUNT)} | {name: row.getField(name) for name in highest}
    return found.select(*(places[name].alias(name) for name in rows.columns))

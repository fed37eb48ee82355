"""Of the rows of a key that a task has, the newest goes on, and stands for the others."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tailrace.pipeline.view.conflation import conflated

KEYS = ("", "a", "ü 🐢", "a" * 40, "a" * 39 + "b")
ROWS = st.tuples(
    st.sampled_from(KEYS),
    st.sampled_from((0, -1, 7)),
    st.none() | st.text(max_size=10),
    st.integers(-3, 3),
    st.integers(-3, 3),
    st.integers(1, 9),
    st.integers(-(2**62), 2**62),
    st.booleans(),
)
DDL = (
    "k string, n int, value string, first long not null, second long not null, `a count` long not null, "
    "high long not null, seen boolean not null"
)


def newest(rows: DataFrame) -> DataFrame:
    order = [F.col("first"), F.col("second")]
    return conflated(rows, ["k", "n"], order=order, count="a count", highest=["high", "seen"])


def folded(rows: list[tuple[Any, ...]]) -> dict[tuple[str, int], tuple[Any, ...]]:
    found: dict[tuple[str, int], tuple[Any, ...]] = {}
    for k, n, value, first, second, count, high, seen in rows:
        old = found.get((k, n), (None, -9, -9, 0, -(2**63), False))
        kept = (value, first, second) if (first, second) >= old[1:3] else old[:3]
        found[k, n] = (*kept, old[3] + count, max(old[4], high), old[5] or seen)
    return found


@settings(max_examples=4, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(ROWS, min_size=30, max_size=150))
def test_the_newest_row_of_each_key_brings_the_count_and_the_highest_values_of_all(
    spark: SparkSession, rows: list[tuple[Any, ...]]
) -> None:
    given = spark.createDataFrame(rows, DDL).coalesce(1)
    found = [tuple(row) for row in newest(given).collect()]
    assert {row[:2]: row[2:] for row in found} == folded(rows)
    assert len(found) == len(folded(rows))


def test_columns_keep_their_names_their_types_and_whether_they_may_be_null(spark: SparkSession) -> None:
    inner = "struct<a: int not null, b: array<string>, `c.d`: decimal(30, 2)>"
    ddl = f"k date, more {inner} not null, plain {inner}, o long not null, n long not null, at timestamp not null"
    rows = spark.createDataFrame([], ddl)
    for key in (["k"], ["k", "more"]):
        assert conflated(rows, key, order=[F.col("o")], count="n", highest=["at"]).schema == rows.schema


def filling(spark: SparkSession, keys: int, times: int) -> DataFrame:
    """Rows of 6 KB; each key comes so many times, one after the other."""
    rows = spark.range(0, keys * times, numPartitions=1)
    return rows.select(
        (F.col("id") / times).cast("long").cast("string").alias("k"),
        F.lit(0).alias("n"),
        F.repeat(F.lit("x"), 6000).alias("value"),
        F.col("id").alias("first"),
        F.lit(0).cast("long").alias("second"),
        F.lit(1).cast("long").alias("a count"),
        F.col("id").alias("high"),
        F.lit(True).alias("seen"),
    )


@pytest.mark.parametrize(("keys", "times", "at_most"), [(40_000, 1, 40_000), (30_000, 3, 31_000)])
def test_more_keys_than_memory_has_room_for_are_all_there_with_their_counts(
    spark: SparkSession, keys: int, times: int, at_most: int
) -> None:
    found = newest(filling(spark, keys, times))
    told = found.agg(F.sum("a count"), F.countDistinct("k"), F.count("k"), F.min("a count")).head()
    assert told is not None
    total, distinct, rows, fewest = told
    assert (total, distinct) == (keys * times, keys)
    # Where keys come again, most of their rows are conflated, also after the memory was full once.
    assert rows <= at_most
    assert fewest == 1 or times > 1


def test_a_task_that_ends_early_gives_its_memory_back(spark: SparkSession) -> None:
    for _ in range(3):
        assert len(newest(filling(spark, 40_000, 1)).take(1)) == 1
    (row,) = newest(filling(spark, 1, 100)).collect()
    assert row["a count"] == 100

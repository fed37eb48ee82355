"""Aggregates and arithmetic that overflow: a row shows null, never a wrong number, by both plans."""

from __future__ import annotations

import json
import math
import struct
from typing import Any

import pytest
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F

from tailrace import App
from tailrace.declarations.views import View
from tailrace.pipeline.view.dry_run import rows
from tailrace.testing import Record

MOST = 2**63 - 1
VALUE = "k string, n long, i int, b tinyint, d double, f float, m decimal(38,0)"
GREAT = {"n": MOST, "i": 2**31 - 1, "b": 127, "d": 1.7e308, "f": 3e38, "m": 10**38 - 1}
# What the SQL gives for two events of the highest numbers, and for an event of ones.
AGGREGATES: list[tuple[str, Any, Any]] = [
    ("sum(n)", None, 1),
    ("sum(distinct n)", MOST, 1),
    ("sum(n) + 1", None, 2),
    ("sum(i)", 2**32 - 2, 1),
    ("sum(d)", None, 1.0),
    ("sum(-d)", None, -1.0),
    ("avg(d)", None, 1.0),
    ("sum(d) - sum(d)", None, 0.0),
    ("sum(f)", 3e38 * 2, 1.0),
    ("cast(sum(f) as float)", None, 1.0),
    ("avg(n)", float(MOST), 1.0),
    ("sum(m)", None, 1),
    ("avg(m)", None, 1),
    ("named_struct('s', sum(d), 'n', sum(n), 'c', count(*))", {"s": None, "n": None, "c": 2}, {"s": 1, "n": 1, "c": 1}),
    ("array(sum(d), max(d))", [None, 1.7e308], [1.0, 1.0]),
    ("map('x', array(sum(d)))", {"x": [None]}, {"x": [1.0]}),
    ("sum(n * 2)", None, 2),
    ("sum(i * i)", None, 1),
    ("max(n + 1)", None, 2),
    ("max(b + b)", None, 2),
    ("max(n - -1L)", None, 2),
    ("max(-(-n - 1))", None, 2),
    ("max(abs(-n - 1))", None, 2),
    ("max((-n - 1) div -1)", None, 2),
    ("max(cast(n as int))", None, 1),
    ("max(int(d))", None, 1),
    ("max(floor(d))", None, 1),
    ("max(ceil(-d))", None, -1),
    ("max(floor(m))", 10**38 - 1, 1),
    ("max(round(i, -1))", None, 0),
    ("max(bround(b, -1))", None, 0),
    ("max(round(n, 2))", MOST, 1),
    ("max(m div 1)", None, 1),
    ("max(m div 1000000000000000000000)", 10**17 - 1, 0),
    ("max(timestamp_millis(n))", None, "1970-01-01T00:00:00.001Z"),
    ("max(timestamp_seconds(n))", None, "1970-01-01T00:00:01.000Z"),
    ("max(aggregate(array(n, n), 0L, (a, x) -> a + x))", None, 2),
]


def great(k: str = "great") -> Record:
    return Record(json.dumps({"k": k, **GREAT}).encode())


ONES = Record(json.dumps({"k": "ones", **dict.fromkeys(GREAT, 1)}).encode())


def view(columns: Any, **options: Any) -> View:
    return App("sums").view("sums", App("sums").topic("events", value=VALUE), key="k", columns=columns, **options)


def by_key(spark: SparkSession, of: View, *records: Record, batches: bool = False) -> dict[str, dict[str, Any]]:
    return {row["k"]: row for row in rows(of, {"events": records}, batches=batches)}


@pytest.mark.parametrize("batches", [False, True], ids=["real-time", "micro-batch"])
def test_what_overflows_is_null_in_the_row_and_all_else_is_right(spark: SparkSession, batches: bool) -> None:
    columns = {f"c{number}": sql for number, (sql, _, _) in enumerate(AGGREGATES)}
    found = by_key(spark, view(columns), great(), great(), ONES, batches=batches)
    for number, (sql, beyond, held) in enumerate(AGGREGATES):
        wanted = pytest.approx(beyond) if isinstance(beyond, float) else beyond
        assert found["great"][f"c{number}"] == wanted, sql
        assert found["ones"][f"c{number}"] == held, sql


def test_columns_of_a_function_a_window_and_a_step_are_held_to_the_same(spark: SparkSession) -> None:
    def columns() -> dict[str, Column]:
        return {"s": F.sum("n"), "d": F.sum("d"), "p": F.max(F.col("n") * F.col("i")), "c": F.count("*")}

    nothing = {"s": None, "d": None, "p": None, "c": 2}
    for of in (view(columns), view(columns, window="1 hour")):
        found = by_key(spark, of, great(), great())["great"]
        assert {name: found[name] for name in nothing} == nothing
    topic = App("sums").topic("events", value=VALUE).with_columns(twice="n * 2").where("i + 1 > 0 or k = 'great'")
    stepped = App("sums").latest("last", topic, key="k")
    assert by_key(spark, stepped, great())["great"]["twice"] is None


def test_an_infinity_that_a_producer_has_sent_is_shown_as_it_is_and_no_average(spark: SparkSession) -> None:
    topic = App("sums").topic("events", value="d double", format="double").with_columns(k="'all'")
    records = [Record(struct.pack(">d", number)) for number in (1.0, math.inf)]
    (latest,) = rows(App("sums").latest("last", topic, key="k"), {"events": records})
    assert latest == {"k": "all", "d": "Infinity"}
    (average,) = rows(App("sums").view("avg", topic, key="k", columns={"d": "avg(d)"}), {"events": records})
    assert average == {"k": "all", "d": None}

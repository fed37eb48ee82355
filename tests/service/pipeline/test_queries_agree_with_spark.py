"""A query means of a row what Spark SQL means: random queries on random rows, as Spark computes and writes them."""

from __future__ import annotations

import json
from typing import Any, TypeVar

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from querying import NOW, Sql, conditions, maybe, operators, put, rows, same, words
from tailrace.contracts.catalog import Column
from tailrace.queries import QueryError, parse, row_decoder

T = TypeVar("T")

SCHEMA = """
    n int, big bigint, d double, s string, `other text` string, ok boolean, t timestamp, u timestamp,
    e double, m decimal(10,2), w decimal(38,18), day date, l timestamp_ntz, c struct<name:string,x:struct<n:int>>
"""
_AT_ONCE = 100

doubles = st.sampled_from([0.1, -0.0, 1.5, 1e300, 5e-324, "NaN", "Infinity", "-Infinity"])
decimals = st.sampled_from(["0.10", "-0.10", "1.50", "3", "99999999.99"])
wide = st.sampled_from(
    ["0.1", "12345678901234567890.123456789012345678", "12345678901234567890.123456789012345679", "3"]
)
days = st.sampled_from(["2026-09-21", "2026-09-22", "1969-12-31"])
locals_ = st.sampled_from(["2026-09-21T14:13:20.123", "2026-09-21T00:00:00.000", "2026-09-22T00:00:00.000"])
structs = st.fixed_dictionaries(
    {"name": maybe(words), "x": maybe(st.fixed_dictionaries({"n": maybe(st.integers(0, 2))}))}
)


@st.composite
def wide_rows(draw: st.DrawFn) -> dict[str, Any]:
    """Rows with columns of the types that SQLite does not have."""
    return {
        **draw(rows),
        "e": draw(maybe(doubles)),
        "m": draw(maybe(decimals)),
        "w": draw(maybe(wide)),
        "day": draw(maybe(days)),
        "l": draw(maybe(locals_)),
        "c": draw(maybe(structs)),
    }


@st.composite
def typed_tests(draw: st.DrawFn) -> Sql:
    """Tests of those columns."""
    operator = draw(operators)
    exact = st.sampled_from(
        ["m", "w", "n", "0.1", "1.50", "3", "m + 0.1", "m * 3", "m - n", "w - m", "-m", "n * 1.5", "m % 3"]
    )
    inexact = st.sampled_from(["e", "d", "m", "0.1", "1e-1", "1e300", "e + d", "e * 2", "e / 4", "m * e", "n", "w"])
    times = st.sampled_from(["day", "t", "l", "date '2026-09-21'", "timestamp '2026-09-21T14:13:20.123Z'", "now()"])
    kind = draw(st.integers(0, 4))
    if kind == 0:
        return same(f"{draw(exact)} {operator} {draw(exact)}")
    if kind == 1:
        return same(f"{draw(inexact)} {operator} {draw(inexact)}")
    if kind == 2:
        first, second = draw(times), draw(times)
        ours = f"{first} {operator} {second}"
        return Sql(ours, ours, ours.replace("now()", f"timestamp_millis({NOW})"))
    if kind == 3:
        listed = draw(st.sampled_from(["m in (0.1, 3, null)", "e in (0.1, 1.5)", "e not in (0.1, 3)", "w in (0.1, 3)"]))
        return same(draw(st.sampled_from([listed, "m between 0 and 1.5", "e between -1e300 and 2", "c.x.n in (1, 2)"])))
    text = put(f"c.name {operator} {{}}", same("'a'"))
    return draw(
        st.sampled_from([text, same("c.x.n > 0"), same("c.x is null"), same("c is not null"), same("c.name is null")])
    )


@st.composite
def typed_conditions(draw: st.DrawFn) -> Sql:
    """Tests of all columns, joined."""
    joined = put("({}) " + draw(st.sampled_from(["and", "or"])) + " not ({})", draw(typed_tests()), draw(conditions(1)))
    return draw(st.sampled_from([joined, draw(typed_tests())]))


def collected(strategy: st.SearchStrategy[T], count: int) -> list[T]:
    """So many examples at once: what is asked of Spark is asked in few jobs."""
    found: list[T] = []

    @settings(
        max_examples=count,
        database=None,
        phases=[Phase.generate],
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def collect(value: T) -> None:
        found.append(value)

    collect()
    return found


def frame_of(spark: SparkSession, given_rows: list[dict[str, Any]]) -> DataFrame:
    values = [(json.dumps({"i": i, **row}),) for i, row in enumerate(given_rows)]
    found = spark.createDataFrame(values, "value string").select(F.from_json("value", "i int," + SCHEMA).alias("r"))
    return found.select("r.*").orderBy("i")


def test_a_query_means_what_spark_means(spark: SparkSession, examples: int) -> None:
    # To compile so many expressions takes longer than to interpret them for so few rows.
    spark = spark.newSession()
    spark.conf.set("spark.sql.codegen.wholeStage", "false")
    spark.conf.set("spark.sql.codegen.factoryMode", "NO_CODEGEN")
    frame = frame_of(spark, collected(wide_rows(), 60))
    columns = [Column(field.name, field.dataType.simpleString()) for field in frame.schema.fields]
    decode = row_decoder(columns)
    written = frame.select(F.to_json(F.struct("*"), {"ignoreNullFields": "false"}).alias("value")).collect()
    found_rows = [decode(row["value"].encode()) or {} for row in written]
    assert len(found_rows) > 40
    queries = list(
        dict.fromkeys(collected(conditions(2), 75 * examples) + collected(typed_conditions(), 75 * examples))
    )
    differences, asked = [], 0
    for start in range(0, len(queries), _AT_ONCE):
        taken = [(query, found) for query in queries[start : start + _AT_ONCE] if (found := _parsed(query, columns))]
        said = frame.selectExpr(*(f"coalesce({query.spark}, false) as q{i}" for i, (query, _) in enumerate(taken)))
        for row, answers in zip(found_rows, said.collect(), strict=True):
            asked += len(taken)
            for (query, predicate), answer in zip(taken, answers, strict=True):
                if predicate.matches(row, NOW) is not answer:
                    differences.append((query.ours, predicate.text, row, answer))
    assert not differences, differences[:3]
    assert asked > 40 * 100


def _parsed(query: Sql, columns: list[Column]) -> Any:
    try:
        return parse(query.ours, columns)
    except QueryError as error:
        if error.expected.startswith("each side of a comparison of times"):
            return None
        raise

"""Functions of our own in Spark's JVM."""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from parts_off import without
from tailrace.contracts.partitions import partition_of
from tailrace.pipeline.spark import functions

UNDER_A_COLON = """
import sys
from pathlib import Path
from pyspark.sql import functions as F
from tailrace.pipeline.spark import functions
from tailrace.pipeline.spark.session import start_session
session = start_session("functions", slots=1, state_partitions=1, jars=(), quiet=True, scratch=Path(sys.argv[1]))
schema = session.createDataFrame([], "n long").schema
print(session.range(1).select(functions.json(F.lit('{"n":7}').cast("binary"), schema).alias("it")).collect())
"""
IN_A_SESSION_OF_THE_USER = """
from pyspark.sql import SparkSession
SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
from tailrace import App, testing
app = App("shop")
columns = {"n": "count(*)", "twice": "max(id * 2)"}
view = app.view("counts", app.topic("events", value="id long"), key="id", columns=columns)
print(testing.rows(view, {"events": [{"id": 2**63 - 1}, {"id": 2**63 - 1}]}))
"""


def read(spark: SparkSession, ddl: str, *texts: bytes, lenient: bool = False) -> list[Row | None]:
    schema = schema_of(spark, ddl)
    given = spark.createDataFrame([(number, bytearray(text)) for number, text in enumerate(texts)], "n int, it binary")
    found = given.select("n", functions.json(F.col("it"), schema, lenient=lenient).alias("it"))
    return [row.it for row in found.orderBy("n").collect()]


def schema_of(spark: SparkSession, ddl: str) -> StructType:
    return spark.createDataFrame([], ddl).schema


def test_functions_are_found_also_below_a_directory_that_no_class_path_can_hold(tmp_path: Path) -> None:
    scratch = tmp_path / "check:points"
    scratch.mkdir()
    done = subprocess.run(
        [sys.executable, "-c", UNDER_A_COLON, scratch], capture_output=True, text=True, timeout=300, check=False
    )
    assert "[Row(it=Row(n=7))]" in done.stdout, done.stderr


def test_a_test_that_has_a_spark_session_already_can_run_views_in_it(tmp_path: Path) -> None:
    command = [sys.executable, "-c", IN_A_SESSION_OF_THE_USER]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, cwd=tmp_path)
    assert "'n': 2" in done.stdout, done.stderr
    # The session was started without the rule for overflows.
    assert "'twice': None" in done.stdout, done.stderr


def test_a_value_that_is_taken_as_text_is_compact(spark: SparkSession) -> None:
    texts = (b'{"it": { "a" : [ 1 , "\xc3\xbc" ] } }', b'{"it": 1.50}', b'{"it":"a b"}', b'{"it":null}')
    assert [row and row.it for row in read(spark, "it string", *texts)] == ['{"a":[1,"ü"]}', "1.5", "a b", None]


def test_a_field_that_must_not_be_null_may_be_missing(spark: SparkSession) -> None:
    assert read(spark, "a long not null, b struct<c: int not null> not null", b"{}", b'{"a":1,"b":{}}') == [
        Row(a=None, b=None),
        Row(a=1, b=Row(c=None)),
    ]


def test_what_spark_writes_for_numbers_without_a_name_in_json_is_read_only_where_asked(spark: SparkSession) -> None:
    assert read(spark, "it double", b'{"it":NaN}') == [None]
    (row,) = read(spark, "it double", b'{"it":NaN}', lenient=True)
    assert row is not None and row.it != row.it


# A type, numbers that are its largest and smallest, and numbers that it can't hold.
RANGES = [
    ("tinyint", ["127", "-128"], ["128", "-129", "200", "255", "256", "1e2"]),
    ("smallint", ["32767", "-32768"], ["32768", "-32769", "65535"]),
    ("int", ["2147483647", "-2147483648"], ["2147483648", "-2147483649", "4294967295"]),
    ("bigint", [str(2**63 - 1), str(-(2**63))], [str(2**63), str(-(2**63) - 1), str(2**64), "9" * 400]),
    ("float", ["3.4028235e38", "-3.4028235e38", "1e-50"], ["3.5e38", "-1e39", "1e400", "4" + "0" * 38]),
    ("double", ["1.7976931348623157e308", "1e-400"], ["1.8e308", "-1e309", "1e400", "1" + "0" * 309, "1e99999999999"]),
    ("decimal(5,2)", ["999.99", "-999.99", "1e2", "0e999999999"], ["1000", "-1e3", "1e40", "1e500000000", "999.995"]),
    ("decimal(38,0)", ["9" * 38, "1e37"], ["1e38", "1" + "0" * 400, "-1e2147483647"]),
]


@pytest.mark.parametrize(("type", "held", "beyond"), RANGES, ids=[type for type, _, _ in RANGES])
def test_a_number_that_its_type_cannot_hold_is_malformed_wherever_it_stands(
    spark: SparkSession, type: str, held: list[str], beyond: list[str]
) -> None:
    ddl = f"a {type}, b struct<c: {type}>, d array<{type}>, e map<string, {type}>, f array<struct<g: {type}>>"
    places = ('{"a":%s}', '{"b":{"c":%s}}', '{"d":[0,%s]}', '{"e":{"x":%s}}', '{"f":[{},{"g":%s}]}')
    texts = [(number, (place % number).encode()) for number in (*held, *beyond) for place in places]
    # One plain field alone is read by the other reader, as far as it goes.
    alone = read(spark, f"a {type}", *(text for _, text in texts if text.startswith(b'{"a"')))
    found = read(spark, ddl, *(text for _, text in texts))
    assert [row is not None for row in found] == [number in held for number, _ in texts]
    assert [row is not None for row in alone] == [True] * len(held) + [False] * len(beyond)


def test_a_decimal_with_an_enormous_exponent_takes_no_time(spark: SparkSession) -> None:
    texts = (b'{"a":1e999999999}', b'{"a":-1e-999999999}', b'{"a":0e-999999999}', b'{"a":1.239}')
    zero, rounded = Row(a=Decimal("0.00")), Row(a=Decimal("1.24"))
    assert read(spark, "a decimal(5,2)", *texts) == [None, zero, zero, rounded]


def test_a_decimal_that_is_written_as_a_string_is_held_to_the_same(spark: SparkSession) -> None:
    texts = [
        "1e999999999",
        "-1e-999999999",
        "1.239",
        "1,00.5",
        "1e2",
        "x",
        "1e",
        "0" * 900 + "1",
        "9" * 100_000,
        ",1e9999",
    ]
    found = read(spark, "a decimal(5,2), b string", *(b'{"a":"%b","b":"1e999"}' % text.encode() for text in texts))
    numbers = [None, "0.00", "1.24", "100.50", "100.00", None, None, "1.00", None, None]
    assert [row and str(row.a) for row in found] == numbers
    assert {row.b for row in found if row} == {"1e999"}


def test_a_number_of_seconds_that_no_timestamp_holds_is_malformed(spark: SparkSession) -> None:
    most = (2**63 - 1) // 10**6
    texts = [b'{"n":%d,"at":[{"x":%d}]}' % (2**63 - 1, second) for second in (7, most + 1, -most - 1, 2**63 - 1)]
    found = read(spark, "n long, at array<map<string, timestamp>>", *texts)
    assert [row and row["at"][0]["x"].timestamp() for row in found] == [7, None, None, None]


def test_a_number_that_is_taken_as_text_is_never_an_infinity(spark: SparkSession) -> None:
    found = read(spark, "it string", b'{"it":1e400}', b'{"it":{"a":[-1e400, 2.5]}}', b'{"it":1e999999999}')
    assert [row and row.it for row in found] == ["1E+400", '{"a":[-1E+400,2.5]}', "1E+999999999"]


def test_a_number_that_is_taken_as_text_is_the_number(spark: SparkSession) -> None:
    texts = (b"12345678901234567.89", b"1e-400", b"2.50", b"100000.0", b"1e5", b"12345678901234567890", b"[0.1,1e-400]")
    found = read(spark, "it string", *(b'{"it":%b}' % text for text in texts))
    wanted = ["12345678901234567.89", "1E-400", "2.5", "100000.0", "100000.0", "12345678901234567890", "[0.1,1E-400]"]
    assert [row and row.it for row in found] == wanted


def test_infinity_is_a_word_and_no_number_that_is_too_large(spark: SparkSession) -> None:
    texts = (b'{"it":Infinity}', b'{"it":"-Infinity"}', b'{"it":1e400}')
    assert read(spark, "it double", *texts) == [None] * 3
    assert read(spark, "it double", *texts, lenient=True) == [Row(it=math.inf), Row(it=-math.inf), None]


def test_other_encodings_are_no_json(spark: SparkSession) -> None:
    texts = ['{"it":1}'.encode(name) for name in ("utf-16-be", "utf-16-le", "utf-32-be", "utf-8-sig")]
    assert read(spark, "it long", *texts) == [None] * 4


def test_json_is_nested_as_deep_as_spark_allows_and_no_deeper(spark: SparkSession) -> None:
    deep = [b'{"more":' + b"[" * depth + b"]" * depth + b',"it":1}' for depth in (900, 1100, 100_000)]
    assert [row and row.it for row in read(spark, "it long", *deep)] == [1, None, None]


def test_a_plan_names_the_function_and_takes_two_of_one_schema_for_the_same(spark: SparkSession) -> None:
    schema = schema_of(spark, "a long, b long")
    one, same, other = (functions.json(F.col("it"), it) for it in (schema, schema, schema_of(spark, "a long")))
    given = spark.createDataFrame([(bytearray(b"{}"),)], "it binary")
    plans = [given.select(column.alias("x"))._jdf.queryExecution().analyzed() for column in (one, same, other)]
    assert "tailrace.json" in str(plans[0].toString())
    assert [plans[0].sameResult(plan) for plan in plans[1:]] == [True, False]


# Spellings that JSON knows, and some that it does not.
ODD = st.sampled_from(
    (
        *("-0", "-0.0", "01", "00", "1.", ".5", "-", "+1", "1e3", "1E-3", "NaN", "1" * 101, "0." + "1" * 101),
        *(
            "2147483648",
            "-2147483649",
            "1234567890123456789",
            "9223372036854775808",
            "5e-324",
            "1.7976931348623157e308",
        ),
        *("1.8e308", "-1e400", "1e99999999999", "1e-400", "1" + "0" * 99, "1" + "0" * 400, "-9223372036854775809"),
        *("tru", "nul", "truex", "True", r'"\u0041"', r'"\n"', '"\n"', '"\x00"', '"a', r'"\"', "'a'", '"7"', "/**/1"),
        *("[]", "[1,2]", "{}", '{"a":1}', "", " ", "\x00", "nullx"),
    )
)
INTEGERS = st.integers(-(2**63), 2**63 - 1).map(str)
DECIMALS = st.from_regex(r"-?(0|[1-9][0-9]{0,17})(\.[0-9]{1,20})?", fullmatch=True)
# About as many digits as a double holds.
LONG_DECIMALS = st.builds(lambda n, at: f"{str(n)[:at]}.{str(n)[at:]}", st.integers(10**13, 10**18), st.integers(1, 13))
HUGE = st.integers(10**17, 10**40).map(str)
FLOATS = st.floats(allow_nan=False, allow_infinity=False).map(repr)
TEXTS = st.text(max_size=8).map(lambda text: json.dumps(text, ensure_ascii=False))
ZEROS = st.sampled_from(("0", "-0", "0.0", "-0.0", "-0.00"))
NULL, TRUTH = st.just("null"), st.sampled_from(("true", "false"))
SPACES = st.sampled_from(("", "", "", " ", "\n\t\r "))
AS_DECLARED = st.one_of(
    *(
        st.tuples(st.just(name), values)
        for name, values in (
            ('"a"', INTEGERS | ZEROS | NULL),
            ('"b"', ZEROS | DECIMALS | LONG_DECIMALS | HUGE | FLOATS | INTEGERS | NULL),
            ('"c"', TEXTS | NULL),
            ('"d"', TRUTH | NULL),
            ('"e"', st.integers(-(2**31), 2**31 - 1).map(str)),
            ('"more"', INTEGERS | DECIMALS | TEXTS | TRUTH),
        )
    )
)
OTHERWISE = st.tuples(st.sampled_from(('"a"', '"b"', '"c"', '"d"', '"e"', '""', r'"\u0061"', '"A"', '"a', "a")), ODD)


def objects(fields: st.SearchStrategy[tuple[str, str]], after: st.SearchStrategy[str]) -> st.SearchStrategy[bytes]:
    pair = st.builds(
        lambda it, *spaces: "{}{}{}:{}{}{}".format(spaces[0], it[0], *spaces[1:3], it[1], spaces[3]),
        fields,
        *[SPACES] * 4,
    )
    return st.builds("{}{{{}}}{}".format, SPACES, st.lists(pair, max_size=7).map(",".join), after).map(str.encode)


WELL_FORMED = objects(AS_DECLARED, SPACES)
OBJECTS = WELL_FORMED | objects(AS_DECLARED | OTHERWISE, SPACES | st.sampled_from(("x", "{}", ",", "\x00", "\x0b")))


def damaged(text: bytes, place: int, other: int) -> bytes:
    place %= len(text)
    return text[:place] + bytes([other]) + text[place + 1 :]


HOSTILE = st.one_of(
    OBJECTS, OBJECTS, st.builds(damaged, WELL_FORMED, st.integers(0, 200), st.integers(0, 255)), st.binary(max_size=20)
)


@settings(max_examples=10, deadline=None)
@given(st.lists(HOSTILE, min_size=100, max_size=300), st.booleans())
def test_plain_objects_are_read_as_by_the_parser_of_all_json(
    spark: SparkSession, texts: list[bytes], lenient: bool
) -> None:
    plain = "a long, b double, c string, d boolean, e int"
    found = read(spark, plain, *texts, lenient=lenient)
    # A field of another type, which no text has, leaves everything to the other parser.
    expected = read(spark, f"{plain}, nobody array<int>", *texts, lenient=lenient)
    for text, one, other in zip(texts, found, expected, strict=True):
        # As text: zero has a sign.
        assert repr(one) == repr(other).replace(", nobody=None", ""), text


def test_of_two_fields_with_one_name_the_last_counts(spark: SparkSession) -> None:
    assert read(spark, "a long", b'{"a":1,"a":2}', b'{"a":1,"a":null}') == [Row(a=2), Row(a=None)]


def test_a_long_record_is_read_like_a_short_one(spark: SparkSession) -> None:
    texts = [b'{"a":1,"more":"' + b"x" * size + b'"}' for size in (1_000, 2_000_000)]
    assert read(spark, "a long", *texts) == [Row(a=1)] * 2


TYPES = (
    "a long, b double, c string, d boolean, e int, f tinyint, g decimal(5,2), h timestamp, i array<struct<g: float>>, "
    "j map<string, decimal(5,2)>, k array<struct<c: string, h: timestamp, f: tinyint>>"
)
WORDS = '"7" "1e2" "1e999999999" "2026-02-03" null 0 127 -128 128 200 1e400 -1e39 999.99 999.995 1e999999999'
NUMBERS = st.sampled_from(
    (*WORDS.split(), "1e-999999999", "1.5e1", *map(str, (9223372036854, 9223372036855, 2**63 - 1)))
)
NUMBERED = st.builds(
    lambda pairs, after: ("{" + ",".join(f'"{name}":{value}' for name, value in pairs) + "}" + after).encode(),
    st.lists(
        st.tuples(st.sampled_from("abefgh"), NUMBERS)
        | st.tuples(st.just("i"), NUMBERS.map(lambda number: f'[{{}},{{"g":{number}}}]'))
        | st.tuples(st.just("j"), NUMBERS.map(lambda number: f'{{"x":1,"y":{number}}}'))
        | st.tuples(st.just("k"), NUMBERS.map(lambda it: f'[{{"c":"1e99999"}},null,{{"h":{it}}},{{"f":{it}}}]')),
        max_size=3,
    ),
    st.sampled_from(("", "", "", " ", "}", ",{}", "]", '],"list":[{}', ',"value":{}', ',"whole":true')),
)
# Of these Spark's own reader may cut one that is taken as text: see the next test.
MANY_DIGITS = re.compile(rb"[0-9.]{16}|[eE][+-]?[0-9]{3}")


@settings(max_examples=3, deadline=None, phases=(Phase.generate,), suppress_health_check=list(HealthCheck))
@given(st.lists(HOSTILE | NUMBERED | NUMBERED, min_size=150, max_size=300), st.booleans())
def test_json_is_read_by_expressions_of_spark_as_by_ours(
    spark: SparkSession, texts: list[bytes], lenient: bool
) -> None:
    wanted = read(spark, TYPES, *texts, lenient=lenient)
    with without(spark, "json"):
        found = read(spark, TYPES, *texts, lenient=lenient)
    for text, one, other in zip(texts, found, wanted, strict=True):
        if one is not None and other is not None and one.c is None and MANY_DIGITS.search(text):
            other = Row(**{**other.asDict(), "c": None})
        assert repr(one) == repr(other), text


def test_a_number_in_a_text_field_is_the_same_by_expressions_or_there_is_none(spark: SparkSession) -> None:
    """What no double holds is the one thing that Spark's own reader cuts, so it is null."""
    numbers = (b"1.50", b'{"a":[1,2.5]}', b"100000.0", b"0.30000000000000004", b"12345678901234567890", b'"1e400"')
    cut = (b"12345678901234567.89", b"1e-400", b"1e400", b'{"a":[-1e400,2.5]}')
    texts = [b'{"it":%b}' % number for number in (*numbers, *cut)]
    wanted = [row and row.it for row in read(spark, "it string", *texts)]
    with without(spark, "json"):
        found = [row and row.it for row in read(spark, "it string", *texts)]
    assert found == [*wanted[: len(numbers)], *[None] * len(cut)]


@settings(max_examples=5, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(st.text(max_size=13), min_size=20, max_size=60), st.integers(1, 1000))
def test_a_partition_that_a_plan_chooses_is_the_one_that_kafka_would(
    spark: SparkSession, keys: list[str], partitions: int
) -> None:
    keys = [key for key in keys if key.isascii() or key.encode(errors="ignore").decode() == key]
    rows = spark.createDataFrame([(key,) for key in keys], "key string")
    found = rows.select("key", functions.kafka_partition(F.col("key"), partitions).alias("p")).collect()
    assert [row.p for row in found] == [partition_of(row.key.encode(), partitions) for row in found]

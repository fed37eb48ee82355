"""The one spelling of a query: read again, it is the same query, with the same digest."""

from __future__ import annotations

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tailrace.contracts.catalog import Column
from tailrace.queries import QueryError, parse

COLUMNS = (
    Column("n", "int"),
    Column("d", "double"),
    Column("m", "decimal(38,10)"),
    Column("s", "string"),
    Column("t", "timestamp"),
    Column("now", "int"),
    Column("interval", "bigint"),
    Column('q"x y', "string"),
    Column("at", "struct<city:string,x:double>"),
)

_WIDE = "1234567890123456789012345678.9012345678"


def check(text: str) -> None:
    """A query that can be read is spelled so that it is read as the same again."""
    predicate = parse(text, COLUMNS)
    again = parse(predicate.text, COLUMNS)
    assert (again.text, again.digest, again.tree) == (predicate.text, predicate.digest, predicate.tree)


@pytest.mark.parametrize(
    "text",
    ["d > -1 % 0.5", "d >= -1 * 0.0", "m = -(1 * 0.0)", f"m = -1 * {_WIDE}", f"m in (0 - {_WIDE}, 1)", "d = -0e0"],
)
def test_a_computed_number_is_spelled_as_it_is_read(text: str) -> None:
    check(text)


def test_the_sign_of_a_decimal_costs_no_digits() -> None:
    predicate = parse(f"m = -{_WIDE}", COLUMNS)
    assert predicate.text == f"m = -{_WIDE}"


_literals = st.sampled_from(["0", "1", "-1", "3", "0.0", "0.1", "1.50", "-0.0", "1e0", "-0e0", "2.5e-3", "1e300"])
_literals |= st.sampled_from([_WIDE, "0.3333333333333333333333333333333333333", "9" * 38, str(2**63)])
_literals |= st.decimals(allow_nan=False, allow_infinity=False, min_value=-(10**20), max_value=10**20).map(
    "{:f}".format
)
_literals |= st.floats(allow_nan=False, allow_infinity=False).map(lambda number: f"{number!r}".replace("e+", "e"))
_columns = st.sampled_from(["n", "d", "m", "now", "interval", "at.x"])
_numbers = st.recursive(
    _columns | _literals,
    lambda inner: (
        st.builds("({} {} {})".format, inner, st.sampled_from("+-*/%"), inner) | inner.map(lambda one: f"-({one})")
    ),
    max_leaves=4,
)
_operators = st.sampled_from(["=", "<>", "<", "<=", ">", ">="])
_texts = st.text(alphabet="a%_\\'é ", max_size=4).map(lambda text: "'" + text.replace("'", "''") + "'")
_text_columns = st.sampled_from(["s", '"q""x y"', "at.city"])
_times = st.sampled_from(["t", "now()", "timestamp '2026-01-01T00:00:00Z'", "date '2026-01-02'"])
_shifts = st.sampled_from(["", " + interval '5 minutes'", " - interval 90 seconds", " + interval '-3 ms'"])
_tests = (
    st.builds("{} {} {}".format, _numbers, _operators, _numbers)
    | st.builds("{} in ({}, {})".format, _numbers, _literals, _numbers)
    | st.builds("{} between {} and {}".format, _numbers, _literals, _numbers)
    | st.builds("{} {} {}".format, _text_columns, _operators | st.sampled_from(["like", "not like"]), _texts)
    | st.builds("{}{} {} {}{}".format, _times, _shifts, _operators, _times, _shifts)
    | _numbers.map("{} is null".format)
)
_conditions = st.recursive(
    _tests,
    lambda inner: (
        st.builds("({} {} {})".format, inner, st.sampled_from(["and", "or"]), inner) | inner.map("not ({})".format)
    ),
    max_leaves=4,
)


@settings(max_examples=300)
@given(
    st.recursive(_literals, lambda inner: st.builds("({} {} {})".format, inner, st.sampled_from("+-*/%"), inner)),
    st.sampled_from("ndm"),
)
def test_every_number_that_is_computed_reads_as_the_same_number(number: str, column: str) -> None:
    try:
        parse(f"{column} = {number}", COLUMNS)
    except QueryError:
        assume(False)
    check(f"{column} = {number}")


@given(_conditions)
def test_the_text_of_every_query_reads_as_the_same_query(text: str) -> None:
    try:
        parse(text, COLUMNS)
    except QueryError:
        assume(False)
    check(text)

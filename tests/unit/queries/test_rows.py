"""Predicates on rows as Spark writes them: numbers exactly, text by code point, times in UTC, null never true."""

from __future__ import annotations

import re
from decimal import Decimal

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tailrace.contracts.catalog import Column
from tailrace.queries import parse, row_decoder
from tailrace.queries.pattern import read_pattern

COLUMNS = (
    Column("i", "bigint"),
    Column("j", "bigint"),
    Column("d", "double"),
    Column("e", "double"),
    Column("m", "decimal(10,2)"),
    Column("w", "decimal(38,18)"),
    Column("s", "string"),
    Column("p", "boolean"),
    Column("t", "timestamp"),
    Column("l", "timestamp_ntz"),
    Column("day", "date"),
    Column("b", "binary"),
    Column("a", "array<int>"),
    Column("c", "struct<name:string,in:struct<x:int,t:timestamp>>"),
)
decode = row_decoder(COLUMNS)


def match(query: str, row: str, now_ms: int = 0) -> bool:
    return parse(query, COLUMNS).matches(decode(row.encode()) or {}, now_ms)


@pytest.mark.parametrize(
    ("query", "row"),
    [
        ("i = 9223372036854775807", '{"i":9223372036854775807}'),
        ("i > 9007199254740992", '{"i":9007199254740993}'),
        ("i <> d", '{"i":9007199254740993,"d":9007199254740992.0}'),
        ("i > -9223372036854775808", '{"i":-9223372036854775807}'),
        ("i < 99999999999999999999999999999999999999", '{"i":9223372036854775807}'),
        ("i in (9223372036854775807, 1)", '{"i":9223372036854775807}'),
        ("d = 0.1", '{"d":0.1}'),
        ("d in (0.1, 0.2)", '{"d":0.1}'),
        ("d = 1", '{"d":1.0}'),
        ("d > 1e300 and d = e", '{"d":"Infinity","e":"Infinity"}'),
        ("d = e and d > 1e308 and d <> 1 and d >= e", '{"d":"NaN","e":"NaN"}'),
        ("d > e", '{"d":"NaN","e":"Infinity"}'),
        ("d < -1e308", '{"d":"-Infinity"}'),
        ("d = e", '{"d":-0.0,"e":0.0}'),
        ("d < 1e308 * 10 and d > -1e308 * 10", '{"d":1.0}'),
        ("m = 0.1", '{"m":0.10}'),
        ("m * 3 = 0.3", '{"m":0.10}'),
        ("m + 0.1 = 0.3", '{"m":0.20}'),
        ("m = 3", '{"m":3}'),
        ("w = 12345678901234567890.123456789012345678", '{"w":12345678901234567890.123456789012345678}'),
        ("w > 12345678901234567890.123456789012345677", '{"w":12345678901234567890.123456789012345678}'),
        ("w = 0.000000000000000001", '{"w":1E-18}'),
        ("m = d", '{"m":0.1,"d":0.1}'),
        ("m = 1e-1 and m in (1e-1, 5)", '{"m":0.1}'),
        ("i / j = 2.5", '{"i":5,"j":2}'),
        ("i % j = -1", '{"i":-5,"j":2}'),
        ("(i / j) is null and (i % j) is null and (d / j) is null", '{"i":5,"j":0,"d":1.0}'),
        ("(i + j) is null", '{"i":9223372036854775807,"j":1}'),
        ("s > 'Z' and s < 'b'", '{"s":"a"}'),
        ("s > '￿'", '{"s":"𐍈"}'),
        ("s = 'é'", '{"s":"\\u00e9"}'),
        ("s like 'a%b_c'", '{"s":"a\\n%%bxc"}'),
        ("s like '_'", '{"s":"𐍈"}'),
        ("s like '' or s like '%'", '{"s":""}'),
        ("s like '100\\%'", '{"s":"100%"}'),
        ("p and not (not p)", '{"p":true}'),
        ("p is false and p < true", '{"p":false}'),
        ("t = timestamp '2026-01-31 10:30:00+01:00'", '{"t":"2026-01-31T09:30:00.000Z"}'),
        ("t = '2026-01-31T09:30:00.001'", '{"t":"2026-01-31T10:30:00.001+01:00"}'),
        ("t > date '9999-12-31'", '{"t":"+10000-01-01T00:00:00.000Z"}'),
        ("t < date '0001-01-01'", '{"t":"-0044-03-15T00:00:00.000Z"}'),
        ("l = timestamp '2026-01-31T09:30:00Z'", '{"l":"2026-01-31T09:30:00.000"}'),
        ("day = date '2026-01-31' and day = '2026-01-31'", '{"day":"2026-01-31"}'),
        ("day < t and t - day < interval '1 day'", '{"day":"2026-01-31","t":"2026-01-31T09:30:00.000Z"}'),
        ("c.name = 'x' and c.in.x = 1", '{"c":{"name":"x","in":{"x":1}}}'),
        ("c.in.t < now()", '{"c":{"in":{"t":"1969-12-31T23:59:59.999Z"}}}'),
        ("c.in.x is null and c.name is null", '{"c":{"in":null}}'),
        ("a is not null and b is not null", '{"a":[],"b":"AA=="}'),
        ("i is null and s is null and t is null and a is null", "{}"),
        ("i is null and p is null and t is null and s is null", '{"i":"1","p":1,"t":"yesterday","s":5}'),
        ("i is null and d is null and m is null", '{"i":true,"d":true,"m":true}'),
        ("t = l", '{"t":"+10000-01-01T01:00:00.000+01:00","l":"+10000-01-01T00:00:00.000"}'),
        ("i not in (2, 3) and s not in ('b', 'c') and m not in (1e-1, 2)", '{"i":1,"s":"a","m":0.2}'),
    ],
)
def test_a_row_matches(query: str, row: str) -> None:
    assert match(query, row)


@pytest.mark.parametrize(
    "query",
    [
        "i = 1",
        "i <> 1",
        "not i = 1",
        "i in (1, 2)",
        "i not in (1, 2)",
        "i between 1 and 2",
        "not i between 1 and 2",
        "s like '%'",
        "s not like '%'",
        "p",
        "not p",
        "i = j",
        "i <> j",
        "d <> e",
        "t < now()",
        "not t < now()",
        "t - l > interval '1 day'",
        "c.in.x <> 1",
        "i + 1 > 0",
        "not (i = 1 and s = 'a')",
        "i = null",
        "i <> null",
        "null",
        "not null",
        "s not in ('a', null)",
    ],
)
def test_nothing_but_is_null_is_true_of_nulls(query: str) -> None:
    assert not match(query, '{"i":null,"j":null,"d":null,"e":null,"s":null,"p":null,"t":null,"l":null,"c":null}')
    assert not match(query, "{}")


def test_one_known_term_decides_where_the_other_is_unknown() -> None:
    assert match("i = 1 or s = 'a'", '{"i":1,"s":null}')
    assert match("not (i = 1 and s = 'a')", '{"i":2,"s":null}')
    assert not match("not (i = 1 and s = 'a')", '{"i":1,"s":null}')
    assert not match("i not in (1, null)", '{"i":2}')


def test_wide_decimals_stay_exact_and_narrow_ones_cost_nothing() -> None:
    assert (decode(b'{"w":1.000000000000000001}') or {})["w"] == Decimal("1.000000000000000001")
    narrow, wide = row_decoder([Column("m", "decimal(10,2)")]), row_decoder([Column("c", "struct<w:decimal(38,2)>")])
    assert type((narrow(b'{"m":1.5}') or {})["m"]) is float
    assert type((wide(b'{"m":1.5}') or {})["m"]) is Decimal


@pytest.mark.parametrize(
    "value", [b"", b"[1]", b"{", b"\xff", b"[" * 100_000, b"null", b'{"m":1e99999999999999999999}']
)
def test_what_is_no_row_is_told_as_such(value: bytes) -> None:
    assert row_decoder([Column("m", "decimal(38,2)")])(value) is None


@settings(max_examples=300, deadline=None)
@given(st.text("ab", max_size=5), st.lists(st.sampled_from(["%", "_", "a", "b"]), max_size=6))
@example("a", ["a", "%", "a"])
@example("aaa", ["%", "a", "a", "%", "a", "a", "%"])
@example("a\nb", ["a", "%", "_"])
def test_like_matches_as_a_regular_expression_does(text: str, pattern: list[str]) -> None:
    expression = "".join({"%": ".*", "_": "."}.get(c, re.escape(c)) for c in pattern)
    found = read_pattern("".join(pattern), "\\").matches(text)
    assert found is bool(re.fullmatch(expression, text, re.DOTALL))


def test_a_hostile_pattern_comes_to_an_end() -> None:
    text = "a" * 100_000
    # With backtracking, each would take longer than the run may.
    for pattern in ("%a" * 120 + "b", "%a_" * 80 + "%b", "%" + "_a" * 60 + "b%"):
        assert not read_pattern(pattern, "\\").matches(text)

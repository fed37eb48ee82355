"""Queries as text: what is taken, its one spelling, and what is refused with where, what and the remedy."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from querying import COLUMNS as RANDOM_COLUMNS
from querying import Sql, conditions
from tailrace.contracts.catalog import Column
from tailrace.queries import Predicate, QueryError, parse
from tailrace.queries.limits import MAX_COST, MAX_LIST, MAX_PATTERN, MAX_TEXT
from tailrace.queries.parser import syntax

COLUMNS = (
    Column("order_id", "bigint"),
    Column("status", "string"),
    Column("total", "double"),
    Column("price", "decimal(10,2)"),
    Column("paid", "boolean"),
    Column("starts_at", "timestamp"),
    Column("local", "timestamp_ntz"),
    Column("day", "date"),
    Column("blob", "binary"),
    Column("tags", "array<string>"),
    Column("client", "struct<name:string,address:struct<city:string,zip:decimal(5,0)>,since:timestamp>"),
    Column("in", "int"),
    Column("date", "string"),
    Column("Größe", "int"),
)


def parsed(text: str) -> Predicate:
    return parse(text, COLUMNS)


def refused(text: str) -> QueryError:
    with pytest.raises(QueryError) as caught:
        parsed(text)
    error = caught.value
    assert error.expected in str(error) and error.got in str(error) and error.remedy in str(error)
    return error


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("STATUS is null".replace("STATUS", "status"), "status is null"),
        ("  status='open'\n AND total>5 ", "status = 'open' and total > 5"),
        ("total > 5 and status = 'open'", "status = 'open' and total > 5"),
        ("5 < total and 'open' = status and 5 < total", "status = 'open' and total > 5"),
        ("status in ('b', 'a', 'b')", "status in ('a', 'b')"),
        ("status in ('a')", "status = 'a'"),
        ("not status in ('a', 'b')", "status not in ('a', 'b')"),
        ("order_id in (2, 1.0, 1, null)", "order_id in (1, 2)"),
        ("order_id = 1.00", "order_id = 1"),
        ("price in (2, 1e0, 1)", "price in (1, 2)"),
        ("price in (1, 1e0, 2)", "price in (1, 2)"),
        ("order_id == 1 or order_id != 2", "order_id <> 2 or order_id = 1"),
        ("not (status = 'a' and (total < 1 or paid))", "paid = false and total >= 1 or status <> 'a'"),
        ("(status = 'a' or paid) and total < 1", "(paid = true or status = 'a') and total < 1"),
        ("total between 1 and 2", "total <= 2 and total >= 1"),
        ("not total between 1 and 2", "total < 1 or total > 2"),
        ("paid", "paid = true"),
        ("not paid", "paid = false"),
        ("paid is not true", "paid = false or paid is null"),
        ("status like 'abc'", "status = 'abc'"),
        ("status not like 'a!%_%%' escape '!'", "status not like 'a\\%_%'"),
        ("total + 1 * -2 > 3 - (4 - 5)", "total + -2 > 4"),
        ("total - (1 - order_id) > 3", "total - (1 - order_id) > 3"),
        ("(total - 1) - order_id > 3", "total - 1 - order_id > 3"),
        ("total = 1e1 or total = 2.50", "total = 10.0e0 or total = 2.5"),
        ("total > 1.50 * 2", "total > 3.0"),
        ("price + 1.50 * 2 > 0.10 + 0.2", "price + 3.0 > 0.3"),
        ("price + 2.5 * 0.4 > 0", "price + 1.0 > 0"),
        ("total < 1e308 * 10", "1e+308 * 10 > total"),
        ("total > 1e300", "total > 1e+300"),
        (f"price > 0.{'0' * 30}1 * 0.{'0' * 30}1", f"0.{'0' * 30}1 * 0.{'0' * 30}1 < price"),
        (f"price < {'9' * 38}.", f"price < {'9' * 38}.0"),
        ("total > 1 / 0", "false"),
        ("starts_at - now() < interval '5 minutes'", "starts_at < now() + interval '5 minutes'"),
        ("now() + interval 300 seconds > starts_at", "starts_at < now() + interval '5 minutes'"),
        ("current_timestamp - starts_at > interval '1' hour", "starts_at < now() - interval '1 hour'"),
        ("current_timestamp() >= starts_at", "starts_at <= now()"),
        ("starts_at < now() + interval '1.5 hours'", "starts_at < now() + interval '90 minutes'"),
        ("starts_at < now() - interval '-5 minutes'", "starts_at < now() + interval '5 minutes'"),
        ("now() > timestamp '2026-01-31 09:30:00+01:00'", "now() > timestamp '2026-01-31T08:30:00.000Z'"),
        ("starts_at > '2026-01-31'", "starts_at > date '2026-01-31'"),
        ("day = date '2026-01-31'", "day = date '2026-01-31'"),
        ("local < starts_at - interval '1 day 2 hours'", "local < starts_at - interval '26 hours'"),
        ("now() - interval '1 day' < now()", "true"),
        (
            "client.address.city = 'Bern' and `client`.\"name\" is null",
            "client.address.city = 'Bern' and client.name is null",
        ),
        ("\"in\" > 1 and date = 'x'", "\"in\" > 1 and date = 'x'"),
        ("Größe > 1", '"Größe" > 1'),
        ("order_id = null or paid", "paid = true"),
        ("status = 'it''s -- no comment /* at all */'", "status = 'it''s -- no comment /* at all */'"),
        ("1 = 1", "true"),
    ],
)
def test_a_query_has_one_spelling(text: str, canonical: str) -> None:
    predicate = parsed(text)
    assert predicate.text == canonical
    assert parsed(canonical) == predicate
    assert hash(parsed(canonical)) == hash(predicate)
    assert len(predicate.digest) == 16 and parsed(canonical).digest == predicate.digest


def test_the_same_text_on_columns_of_another_type_is_another_predicate() -> None:
    assert parse("a = 1", [Column("a", "int")]) != parse("a = 1", [Column("a", "double")])


@pytest.mark.parametrize(
    ("text", "equal"),
    [
        ("status = 'a'", {"status": {"a"}}),
        ("status in ('a', 'b') and total > 1", {"status": {"a", "b"}}),
        ("status in ('a', 'b') and status in ('b', 'c')", {"status": {"b"}}),
        ("status = 'a' and total > 1 or status = 'b' and paid", {"status": {"a", "b"}}),
        ("status = 'a' or total > 1", {}),
        ("not status <> 'a'", {"status": {"a"}}),
        ("status like 'a'", {"status": {"a"}}),
        ("status <> 'a'", {}),
        ("order_id = 9223372036854775807", {"order_id": {2**63 - 1}}),
    ],
)
def test_equality_terms_are_told(text: str, equal: dict[str, set[object]]) -> None:
    assert parsed(text).equal == equal


@pytest.mark.parametrize(
    ("text", "at", "part"),
    [
        ("statsu = 'open'", 0, "Did you mean status?"),
        ("total > 1 and STATUS = 'a'", 14, "Did you mean status?"),
        ("status = open", 9, "one of the columns order_id, status"),
        ("client.nmae = 'a'", 0, "Did you mean name?"),
        ("status.name = 'a'", 0, "a struct before .name"),
        ("status = 5", 0, "status of type string and the integer 5"),
        ("total = '5'", 0, "total of type double and the text '5'"),
        ("paid = 1", 0, "paid of type boolean and the integer 1"),
        ("starts_at > 5", 0, "a time and the integer 5"),
        ("starts_at > 'soon'", 0, "a time such as 2026-01-31T09:30:00Z"),
        ("starts_at = timestamp '2026-02-30'", 22, "a time such as"),
        ("day = date '2026-01-31 10:00'", 11, "a time such as"),
        ("starts_at = timestamp '2026-01-31T00:00:00.0001Z'", 22, "at most milliseconds"),
        ("starts_at < now() + interval '1 month'", 29, "write days"),
        ("starts_at < now() + interval '5 minutes ago'", 29, "got '5 minutes ago'"),
        ("starts_at < now() + interval '5 minutes' hours", 41, "got 'hours'"),
        ("starts_at < now() + interval '5'", 29, "an interval such as"),
        ("starts_at < now() + interval 5 and paid", 29, "an interval such as"),
        ("starts_at < interval '1 day'", 0, "a time and an interval"),
        ("starts_at + local > now()", 0, "the difference of two times"),
        ("starts_at - local < now() - day", 0, "put the difference into a column"),
        ("now() - starts_at < local - now()", 8, "put the difference into a column"),
        ("starts_at - starts_at < interval '1 day'", 0, "the same twice"),
        ("status = 'a' 'b'", 13, "and, or, or an operator, got 'b'"),
        ("tags = 'a'", 0, "Only is null and is not null"),
        ("client = 1", 0, "Only is null and is not null"),
        ("blob = 'a'", 0, "Only is null and is not null"),
        ("status + 1 > 2", 0, "numbers around +"),
        ("status", 0, "a condition, got status of type string"),
        ("total = (paid = true)", 9, "a condition"),
        ("(total > 1) is null", 1, "a condition"),
        ("total is paid", 0, "is null"),
        ("status like total", 0, "only a literal can be a pattern"),
        ("null like 'a'", 10, "a column of text before like, got null"),
        ("total + 1 = 'a'", 0, "the computed double and the text 'a'"),
        ("total like 'a'", 0, "a column of text before like"),
        ("status like 'a\\b'", 12, "after the escape"),
        ("status like 'a' escape 'bc'", 0, "one character"),
        ("status = 'open", 9, "each closed"),
        ("status = 'open' and", 19, "got the end"),
        ("status = 'open' total > 1", 16, "got 'total'"),
        ("total > 1 or = 2", 13, "got '='"),
        ("status = '" + "a" * 200 + "'\n and paid and\n  = 2", 228, "got '='"),
        ("(total > 1", 10, "a closing parenthesis"),
        ("total > 1)", 9, "an opening parenthesis"),
        ("status in ()", 11, "a value, got"),
        ("status in ('a',)", 15, "a value, got"),
        ("", None, "Omit the query"),
        ("order_id = 1; total = 1", 12, "got ';'"),
        ("order_id = 1 -- and", 13, "a comment"),
        ("order_id = 1 --1", 13, "a comment"),
        ("order_id /* x */ = 1", 9, "a comment"),
        ("order_id = {# x #} 1", 9, "a comment"),
        ("order_id::int = 1", 8, "got '::'"),
        ("upper(status) = 'A'", 0, "the function upper"),
        ("count(*) > 1", 0, "the function count"),
        ("cast(total as int) = 1", 0, "the function cast"),
        ("exists(select 1)", 0, "the function exists"),
        ("order_id in (select 1)", 20, "got '1'"),
        ("(select 1) = 1", 8, "got '1'"),
        ("case when paid then 1 end = 1", 5, "got 'when'"),
        ("status ilike 'a'", 7, "got 'ilike'"),
        ("status = ?", 9, "got '?'"),
        ("status = :name", 9, "got ':'"),
        ("status = $1", 9, "got '$1'"),
        ("tags[0] = 'a'", 4, "got '['"),
        ("status || 'a' = 'b'", 7, "got '||'"),
        ("order_id <=> 1", 9, "got '<=>'"),
        ("! paid", 0, "got '!'"),
        ("status = N'a'", 9, "got \"N'a'\""),
        ("order_id = 0x1f", 12, "got 'x1f'"),
        ("total = 1e400", 8, "a number that a double holds"),
        ("order_id = " + "9" * 39, 11, "at most 38 digits"),
        ("(order_id, total) = (1, 2)", 1, "a list"),
        ("client.* is null", 7, "got '*'"),
    ],
)
def test_what_is_not_supported_is_refused_with_its_place_and_a_remedy(text: str, at: int | None, part: str) -> None:
    error = refused(text)
    assert part in str(error)
    assert error.at == at


def test_a_flag_that_a_newer_parser_may_set_is_refused_and_not_overlooked() -> None:
    tree = syntax.read("total between 1 and 2")
    tree.set("symmetric", True)
    with pytest.raises(QueryError):
        syntax.check_shapes(tree)


@pytest.mark.parametrize(
    "text",
    [
        "status = '" + "a" * MAX_TEXT + "'",
        "(" * 17 + "paid" + ")" * 17,
        "(" * 5000 + "paid" + ")" * 5000,
        "not " * 9 + "paid",
        "not " * 4000 + "paid",
        "total = " + "- " * 4000 + "1",
        "total" + " + total" * 65 + " > 1",
        " or ".join(f"order_id > {i}" for i in range(MAX_COST + 1)),
        "order_id in (" + ", ".join(str(i) for i in range(MAX_LIST + 1)) + ")",
        "status like '" + "a" * MAX_PATTERN + "%'",
    ],
    ids=lambda text: text[:20],
)
def test_what_costs_too_much_is_refused(text: str) -> None:
    refused(text)


def test_as_much_as_the_limits_allow_is_taken() -> None:
    assert parsed("(" * 16 + "not not not not not not not not paid" + ")" * 16).text == "paid = true"
    listed = parsed("order_id in (" + ", ".join(str(i) for i in range(MAX_LIST)) + ")")
    assert listed.cost == 1 and len(listed.equal["order_id"]) == MAX_LIST
    assert parsed(" or ".join(f"order_id > {i}" for i in range(MAX_COST))).cost == MAX_COST


_PIECES = [
    *"()'\"`,.;:-+*/%=<>!?$@#{}[]\\|&^~ \n\0é",
    "--",
    "/*",
    "*/",
    "{#",
    "{{",
    "::",
    "<=>",
    "1",
    "1e5",
    ".5",
    "''",
]
_PIECES += [
    "n",
    "s",
    "d",
    "t",
    "ok",
    "and",
    "or",
    "not",
    "in",
    "between",
    "like",
    "escape",
    "is",
    "null",
    "true",
    "false",
]
_PIECES += [
    "now()",
    "current_timestamp",
    "interval",
    "date",
    "timestamp",
    "minutes",
    "'a'",
    "'5 minutes'",
    "'2026-01-31'",
]
_PIECES += ["select", "case", "when", "cast(", "as", "exists(", "distinct", "from", "any", "all", "over", "with"]


def check_any(text: str) -> None:
    """A text is refused with a place in it, or taken and spelled so that it is taken again."""
    try:
        predicate = parse(text, RANDOM_COLUMNS)
    except QueryError as error:
        at = error.at
    else:
        at = None
        assert parse(predicate.text, RANDOM_COLUMNS) == predicate
    assert at is None or 0 <= at <= len(text)


@settings(max_examples=300, deadline=None)
@given(st.text(max_size=40) | st.lists(st.sampled_from(_PIECES), max_size=25).map(" ".join))
def test_no_text_raises_anything_but_a_query_error(text: str) -> None:
    check_any(text)


@settings(max_examples=150, deadline=None)
@given(conditions(2), st.data())
def test_a_damaged_query_raises_nothing_but_a_query_error(query: Sql, data: st.DataObject) -> None:
    text = query.ours
    at = data.draw(st.integers(0, len(text)))
    piece = data.draw(st.sampled_from(_PIECES))
    damaged = text[:at] + piece + text[at + data.draw(st.integers(0, 3)) :]
    check_any(damaged)

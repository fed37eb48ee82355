"""Rights: from claims to views, keys, feeds and filters."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tailrace.access.extents import Unfit, exact_key, extent
from tailrace.access.filters import both, read_filter
from tailrace.access.patterns import ColumnPatterns, KeyPattern, Pattern, read_pattern
from tailrace.access.rights import Grant, Rights, RightsError, read_document, read_documents, rights_of
from tailrace.access.templates import MOST, TemplateError, Unusable, fill, read_template
from tailrace.contracts.catalog import Column
from tailrace.queries import QueryError, parse

COLUMNS = (Column("order_id", "bigint"), Column("customer", "string"), Column("open", "boolean"))
# Whatever JSON can say, half a surrogate pair excepted, which no row can hold.
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
HOSTILE = st.lists(
    st.sampled_from(["'", "''", '"', "`", "\\", "%", "_", "--", "/*", "*/", ";", "\n", "\0", "{", "}", "{sub}", " or "])
    | TEXTS
).map("".join)


def rights(document: dict[str, Any], **claims: object) -> Rights:
    return Rights(read_document(document), claims)


NAME = (Column("name", "string"),)
PAIR = (Column("name", "string"), Column("number", "bigint"))


def allows(grant: Grant | None, key: str, columns: tuple[Column, ...] = NAME) -> bool:
    return grant is not None and extent(grant.keys, columns).allows(key)


def matches_any(patterns: list[KeyPattern], key: str, columns: tuple[Column, ...] = PAIR) -> bool:
    return extent(tuple(patterns), columns).allows(key)


def matches(where: str | None, **row: object) -> bool:
    assert where is not None
    return parse(where, COLUMNS).matches(row, 0)


def test_what_is_not_named_is_not_allowed() -> None:
    found = rights({"views": {"orders": True}}, sub="c7")
    assert found.view("orders") is not None
    assert found.view("order") is None and found.view("orders2") is None and found.view("*") is None
    assert found.feed("orders") is None and not found.topic("orders") and not found.operations
    assert rights({}).view("orders") is None


def test_templates_are_filled_from_claims_and_missing_ones_allow_nothing() -> None:
    document = {
        "views": {
            "orders": {"keys": ["{sub}", "{org.id}/*"], "where": "customer = {sub}"},
            "tenants": {"where": "customer = {tenant}"},
        },
        "feeds": {"notices": ["clients/{sub}"], "all": True},
        "topics": ["ratings", "clicks-*"],
        "operations": True,
    }
    found = rights(document, sub="c7", org={"id": 12})
    orders = found.view("orders")
    assert orders is not None
    assert [allows(orders, key) for key in ("c7", "c77", "12/1", "12/", "12", "1")] == [
        True,
        False,
        True,
        True,
        False,
        False,
    ]
    assert orders.where == "customer = 'c7'"
    assert found.view("tenants") is None
    assert allows(found.feed("notices"), "clients/c7") and not allows(found.feed("notices"), "clients/c8")
    assert allows(found.feed("all"), "anyone")
    assert found.topic("ratings") and found.topic("clicks-a") and not found.topic("rating")
    assert found.operations


def test_the_exact_name_counts_before_the_longest_pattern() -> None:
    document = {"views": {"*": True, "a-*": ["1"], "a-b-*": ["2"], "a-b-c": ["3"]}}
    found = rights(document)
    allowed = {name: found.view(name) for name in ("x", "a-x", "a-b-x", "a-b-c")}
    assert {name: grant.keys for name, grant in allowed.items() if grant} == {
        "x": None,
        "a-x": (Pattern("1"),),
        "a-b-x": (Pattern("2"),),
        "a-b-c": (Pattern("3"),),
    }
    for kind in ("views", "feeds", "topics"):
        found = rights({kind: {"*": True, "secret": False, "a-*": False, "a-b": True}})
        named = {name for name in ("secret", "secrets", "a-x", "a-b") if found.names(kind[:-1], name)}  # type: ignore[arg-type]
        assert named == {"secrets", "a-b"}
    assert rights({"views": True}).view("any") is not None


def test_a_claim_with_several_values_allows_each() -> None:
    found = rights(
        {"views": {"orders": {"keys": ["{teams}/*"], "where": "customer in ({teams})"}}}, teams=["a", "b", 3]
    )
    grant = found.view("orders")
    assert grant is not None
    assert [allows(grant, key) for key in ("a/1", "b/1", "3/1", "c/1")] == [True, True, True, False]
    grant = rights({"views": {"orders": {"where": "customer in ({teams})"}}}, teams=["a", "b"]).view("orders")
    assert grant is not None
    assert matches(grant.where, customer="b") and not matches(grant.where, customer="c")


@pytest.mark.parametrize("value", [None, True, 1.5, [], {}, {"a": 1}, [None], "", [""], "\ud800"])
def test_a_claim_that_is_no_text_fills_no_key(value: object) -> None:
    with suppress(Unusable):
        assert fill(read_template("{sub}*"), {"sub": value}) == []
    assert rights({"views": {"orders": ["{sub}*"]}}, sub=value).view("orders") is None


def test_a_claim_is_found_by_its_whole_name_or_by_its_path() -> None:
    claims = {"https://example.com/a.b": "x", "a": {"b": {"c": "y"}}, "a.b": "z"}
    for template, text in (("{https://example.com/a.b}", "x"), ("{a.b.c}", "y"), ("{a.b}", "z"), ("{{{a.b}}}", "{z}")):
        assert fill(read_template(template), claims) == [text]


@pytest.mark.parametrize("text", ["{", "}", "{}", "{ sub}", "{a{b}}", "a}b", "{sub"])
def test_a_template_that_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(TemplateError, match="expected"):
        read_template(text)


@settings(max_examples=40, deadline=None)
@given(HOSTILE)
@example("*")
@example('","')
def test_no_claim_makes_a_key_pattern_match_more_than_itself(text: str) -> None:
    found = list(read_pattern("clients/{sub}").patterns({"sub": text}))
    assert found == ([Pattern("clients/" + text)] if text else [])
    several = list(read_pattern(["{sub}", "*"]).patterns({"sub": text}))
    if text:
        assert matches_any(several, json.dumps([text, 1]))
        assert not matches_any(several, json.dumps([text + "x", 1]))
        assert not matches_any(several, json.dumps([text]))
        assert not matches_any(several, json.dumps([text, 1, 2]))
        assert not matches_any(several, f'["{text}')


def test_a_claim_that_cannot_be_understood_whole_allows_nothing() -> None:
    many, fewer = [f"c{n}" for n in range(MOST + 1)], [f"c{n}" for n in range(40)]
    for odd in (many, ["a", None], ["a", ""], ["a", {}], ["a", ["b"]], {"a": 1}, [float("nan")], "\ud800"):
        document = {"orders": ["fixed", "{odd}"], "rows": {"where": "customer not in ({odd})"}}
        found = rights({"views": document, "feeds": {"notices": ["fixed", "x/{odd}"]}}, odd=odd)
        assert found.view("orders") is None and found.view("rows") is None and found.feed("notices") is None, odd
    # Together they come to more than is looked at.
    for keys in (["{a}/{a}"], [["{a}", "{a}"]]):
        assert rights({"views": {"orders": keys}}, a=fewer).view("orders") is None
    # What is missing allows nothing by itself, and takes nothing from what stands beside it.
    assert allows(rights({"views": {"orders": ["fixed", "{none}"]}}).view("orders"), "fixed")
    assert rights({"views": {"orders": ["{n:integer}"]}}, n="0007").view("orders") == Grant((Pattern("7"),))
    assert rights({"views": {"orders": ["{n:integer}"]}}, n="x").view("orders") is None


def test_a_text_pattern_may_not_spell_an_array_around_a_claim() -> None:
    with pytest.raises(RightsError, match=r"views\.orders: expected an array"):
        read_document({"views": {"orders": ['["{sub}",*']}})
    assert read_document({"views": {"orders": ['["c7",*']}})


@settings(max_examples=40, deadline=None)
@given(HOSTILE, HOSTILE)
@example("x", "x' or '1'='1")
@example("", "")
@example("a", "a\0")
@example("\\", "\\'")
def test_a_filter_means_exactly_equality_with_the_claim(other: str, text: str) -> None:
    templates = ("customer = {sub}", "customer = '{sub}'", "{sub} = customer", "customer in ({sub})")
    if not text:
        assert [read_filter(template).text({"sub": text}) for template in templates] == [None] * 4
        return
    for template in templates:
        where = read_filter(template).text({"sub": text})
        assert matches(where, customer=text)
        assert matches(where, customer=other) is (other == text)
        assert not matches(where, customer=None)
    within = read_filter("customer = 'a/{sub}/b' and not (customer <> 'a/{sub}/b')").text({"sub": text})
    assert matches(within, customer=f"a/{text}/b")
    assert matches(within, customer=f"a/{other}/b") is (other == text)


@settings(max_examples=40, deadline=None)
@given(HOSTILE, HOSTILE)
@example("order_id = 1) or (true", "x")
@example("order_id = 1 or true", "x")
def test_no_query_of_a_client_gets_past_the_filter(asked: str, text: str) -> None:
    restriction = parse(str(read_filter("customer = {sub}").text({"sub": text or "-"})), COLUMNS)
    for query in (asked, f"order_id = 1 or {asked}", "true", "customer <> 'x' or true"):
        try:
            found = both(parse(query, COLUMNS), restriction)
        except QueryError:
            continue
        assert not found.matches({"order_id": 1, "customer": text + "x", "open": True}, 0)
        again = parse(found.text, COLUMNS)
        assert not again.matches({"order_id": 1, "customer": text + "x", "open": True}, 0)


@settings(max_examples=40, deadline=None)
@given(st.integers(-(2**63), 2**63 - 1), st.booleans())
def test_numbers_and_booleans_are_values_of_their_own_kind(number: int, flag: bool) -> None:
    claims = {"number": number, "text": str(number), "flag": flag}
    for template in ("order_id = {number}", "order_id={text:integer}", "order_id in (-{number}, {number})"):
        where = read_filter(template).text(claims)
        assert matches(where, order_id=number) and matches(where, order_id=number + 1) is (number + 1 == -number)
    assert matches(read_filter("customer = {number:text}").text(claims), customer=str(number))
    assert matches(read_filter("open = {flag}").text(claims), open=flag)


@pytest.mark.parametrize(
    ("template", "value"),
    [
        ("customer = {sub}", None),
        ("customer = {sub}", {"a": 1}),
        ("customer = {sub}", float("nan")),
        ("customer = {sub}", float("inf")),
        ("customer = {sub}", "\ud800"),
        ("customer = '{sub}'", ["a"]),
        ("customer = '{sub}'", True),
        ("customer in ({sub})", []),
        ("customer in ({sub})", ["a", None]),
        ("customer = {sub:integer}", "12; true"),
        ("customer = {sub:integer}", "1e3"),
        ("customer = {sub:integer}", "٣"),
        ("customer = {sub:text}", False),
        ("customer <> {sub}", ""),
        ("customer <> '{sub}'", ""),
        ("customer <> {sub:text}", ""),
        ("customer not in ({sub})", ["a", ""]),
        ("customer not in ({sub})", ["a"] * 1001),
    ],
)
def test_a_claim_that_the_filter_cannot_use_leaves_nothing(template: str, value: object) -> None:
    with suppress(Unusable):
        assert read_filter(template).text({"sub": value}) is None


@pytest.mark.parametrize(
    ("template", "says"),
    [
        ("customer like '{sub}%'", "compared with"),
        ("customer like {sub}", "compared with"),
        ("customer like 'a!%' escape '{sub}'", "compared with"),
        ("day = date '{sub}'", "compared with"),
        ('"{sub}" = 1', "name of a column"),
        ('"x{sub:text}y" = 1', "name of a column"),
        ("`{sub}` = 1", "name of a column"),
        ("customer = '{sub:integer}'", "outside of quotes"),
        ("a{sub} = 1", "expected"),
        ("customer = 'open", "expected"),
        ("customer = {sub} -- all", "comment"),
        ("", "a condition"),
        ("lower(customer) = {sub}", "function"),
    ],
)
def test_a_filter_with_a_claim_where_no_value_may_stand_is_refused_when_it_is_read(template: str, says: str) -> None:
    with pytest.raises(TemplateError, match=says):
        read_filter(template)


@pytest.mark.parametrize(
    ("document", "says"),
    [
        ([], "expected an object"),
        ({"view": {}}, "expected one of views, feeds"),
        ({"views": {"orders": "all"}}, r"views\.orders: expected true or false or a list of keys or"),
        ({"views": {"orders": {}}}, r"views\.orders: expected"),
        ({"views": {"orders": {"key": ["a"]}}}, r"views\.orders: expected"),
        ({"views": {"orders": {"where": 1}}}, r"views\.orders\.where: expected a query"),
        ({"views": {"orders": {"where": "a like {b}"}}}, r"views\.orders\.where: expected a claim"),
        ({"views": {"orders": [1]}}, r"views\.orders: expected a text"),
        ({"feeds": {"notices": {"where": "a = 1"}}}, r"feeds\.notices: expected true or false or a list"),
        ({"topics": {"ratings": ["a"]}}, r"topics\.ratings: expected true"),
        ({"views": {"orders": {"where": None}}}, r"views\.orders\.where: expected a query"),
        ({"views": {"orders": {"keys": ["a"], "where": ""}}}, r"views\.orders\.where: .*a condition"),
        ({"views": {"*": True, "*-secret": False}}, r"views\.\*-secret: expected a name"),
        ({"topics": ["a*b"]}, r"topics\.a\*b: expected a name"),
        ({"operations": "yes"}, "operations: expected true or false"),
        ({"when": {"a": 1}}, "expected one of"),
    ],
)
def test_a_document_that_cannot_be_read_names_the_place(document: object, says: str) -> None:
    with pytest.raises(RightsError, match=says):
        read_document(document)


def test_of_several_documents_the_first_that_is_for_the_token_counts() -> None:
    documents = read_documents(
        [
            {"when": {"groups": ["admins", "support"]}, "views": True, "operations": True},
            {"when": {"scope": "orders:read", "level": 2}, "views": {"orders": True}},
            {"when": {"sub": "x"}, "views": {"x": True}},
        ]
    )
    for claims, views in (
        ({"groups": ["users", "support"]}, {"orders", "x", "y"}),
        ({"groups": "admins"}, {"orders", "x", "y"}),
        ({"scope": "profile orders:read", "level": 2}, {"orders"}),
        ({"scope": "orders:readonly", "level": 2}, set()),
        ({"scope": "orders:read", "level": True}, set()),
        ({"sub": "x"}, {"x"}),
        ({}, set()),
    ):
        found = rights_of(documents, claims)
        assert {name for name in ("orders", "x", "y") if found.view(name) is not None} == views


def test_the_documented_rights_mean_what_is_said_of_them() -> None:
    page = (Path(__file__).parents[3] / "docs" / "access.md").read_text()
    one, several = [json.loads(block) for block in re.findall(r"```json\n(.*?)```", page, re.DOTALL)]
    found = rights_of(read_documents(one), {"sub": "7", "tenants": ["a", "b"]})
    orders, baskets = found.view("orders"), found.view("baskets")
    assert orders is not None and orders.where == "customer_id = (7) and status <> 'draft'"
    assert baskets is not None and baskets.where == "tenant in ('a', 'b')"
    assert allows(baskets, '["7",12]', PAIR) and not allows(baskets, '["8",12]', PAIR)
    assert found.view("public-x") is not None and allows(found.feed("notices"), "clients/7") and not found.operations
    assert rights_of(read_documents(several), {"groups": ["support"]}).operations
    assert rights_of(read_documents(several), {"sub": "7", "scope": "orders:read"}).view("orders") is not None


KEYS = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.builds(Pattern, HOSTILE, st.booleans()), min_size=1, max_size=3), KEYS)
def test_the_filter_of_keys_matches_the_rows_that_the_keys_allow(patterns: list[Pattern], key: str) -> None:
    shown = extent(tuple(patterns), NAME)
    assert shown.condition is not None
    found = parse(shown.condition, NAME)
    for text in (key, *(pattern.text for pattern in patterns), *(pattern.text + key for pattern in patterns)):
        assert found.matches({"name": text}, 0) is shown.allows(text)
    exact = exact_key(key, NAME)
    assert exact is not None and parse(exact, NAME).matches({"name": key}, 0)
    assert not parse(exact, NAME).matches({"name": key + "x"}, 0)


def test_the_filter_of_keys_of_several_columns_and_other_types() -> None:
    columns = (Column("customer", "string"), Column("order", "bigint"))
    where = extent((ColumnPatterns((Pattern("c7"), Pattern("", True))),), columns).condition
    assert where is not None
    found = parse(where, columns)
    assert found.matches({"customer": "c7", "order": 3}, 0) and not found.matches({"customer": "c8", "order": 3}, 0)
    exact = parse(str(exact_key('["c7",3]', columns)), columns)
    assert exact.matches({"customer": "c7", "order": 3}, 0) and not exact.matches({"customer": "c7", "order": 4}, 0)
    assert exact_key("c7", columns) is None and exact_key('["c7",null]', columns) is None
    assert not parse(str(exact_key('["c7",03.0]', columns) or "false"), columns).matches({"customer": "c7"}, 0)
    number = (Column("id", "bigint"),)
    assert parse(str(extent((Pattern("-12"),), number).condition), number).matches({"id": -12}, 0)
    assert not parse(str(exact_key("012", number)), number).matches({"id": 12}, 0)
    assert extent((Pattern("1", True),), number).condition is None
    assert extent((Pattern("2026-01-01"),), (Column("day", "date"),)).condition is None
    # A double is compared as it is written, and null is no value of a column.
    mixed = extent((ColumnPatterns((Pattern("", True), Pattern("a"))),), (Column("x", "double"), Column("y", "string")))
    assert [mixed.allows(key) for key in ('[1.50,"a"]', '[null,"a"]', '[1.50,"b"]', '["a"]', "{}", "[")] == [
        True,
        *[False] * 5,
    ]


@pytest.mark.parametrize(
    ("pattern", "type"),
    [
        (Pattern("0007"), "bigint"),
        (Pattern("-0"), "int"),
        (Pattern("+7"), "bigint"),
        (Pattern("7.0"), "bigint"),
        (Pattern("x"), "smallint"),
        (Pattern("True"), "boolean"),
        (ColumnPatterns((Pattern("", True), Pattern("", True))), "string"),
    ],
)
def test_keys_that_no_row_of_the_view_could_have_do_not_fit_it(pattern: KeyPattern, type: str) -> None:
    for patterns in ((pattern,), (Pattern("", True), pattern), (pattern, Pattern("7"))):
        with pytest.raises(Unfit, match="expected"):
            extent(patterns, (Column("id", type),))


def test_a_text_is_no_pattern_for_a_key_of_several_columns_unless_it_is_every_key() -> None:
    for text in ("c7", '["c7",1]', '["c7",'):
        for is_open in (False, True):
            with pytest.raises(Unfit, match="an array of 2"):
                extent((Pattern(text, is_open),), PAIR)
    assert extent((Pattern("", True),), PAIR).allows('["c7",null]')

"""Spark's types in JSON: what a value must be, and how a schema says so."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import jsonschema_rs
import pytest

from tailrace.contracts.catalog import Column
from tailrace.events import json_spans
from tailrace.types.json_schema import example, schema
from tailrace.types.spark import read, row
from tailrace.types.tree import Type
from tailrace.types.values import Mismatch, converted

GOOD: list[tuple[str, Any]] = [
    ("bigint", 2**63 - 1),
    ("tinyint", -128),
    ("double", 1),
    ("double", Decimal("1.5")),
    ("double", Decimal("-1.7976931348623157e308")),
    ("double", Decimal("1e-400")),
    ("float", Decimal("3.4028235e38")),
    ("decimal(5,2)", Decimal("123.45")),
    ("decimal(5,2)", 7),
    ("boolean", False),
    ("string", ""),
    ("varchar(10)", "x"),
    ("date", "2026-02-28"),
    ("timestamp", "2026-01-31T09:30:00.123456789+01:00"),
    ("timestamp_ntz", "2026-01-31T09:30:00"),
    ("binary", "Ynl0ZXM="),
    ("array<array<int>>", [[1], [], None]),
    ("map<string,struct<a:bigint,b:array<map<string,double>>>>", {"x": {"a": 1, "b": [{"y": 2}]}}),
    ("struct<name:string,at:decimal(10,2)>", {"at": None}),
]
BAD: list[tuple[str, Any, str]] = [
    ("bigint", 2**63, ""),
    ("bigint", True, ""),
    ("bigint", Decimal("1.0"), ""),
    ("tinyint", 128, ""),
    ("double", "1", ""),
    ("double", False, ""),
    ("double", Decimal("1e400"), ""),
    ("double", Decimal("-1.8e308"), ""),
    ("double", 10**309, ""),
    ("float", Decimal("3.5e38"), ""),
    ("float", 10**39, ""),
    ("float", Decimal("1e400"), ""),
    ("smallint", 32768, ""),
    ("int", -(2**31) - 1, ""),
    ("decimal(38,0)", Decimal("1e500000000"), ""),
    ("decimal(38,18)", Decimal("1e-500000000"), ""),
    ("array<struct<a:map<string,double>>>", [{"a": {"x": Decimal("1e400")}}], "[0].a.x"),
    ("decimal(5,2)", Decimal("1234.5"), ""),
    ("decimal(5,2)", Decimal("1.234"), ""),
    ("boolean", 1, ""),
    ("string", 5, ""),
    ("date", "2026-02-30", ""),
    ("timestamp", "31.1.2026", ""),
    ("timestamp", 1790000000, ""),
    ("binary", "!", ""),
    ("array<int>", [1, "x"], "[1]"),
    ("array<int>", {}, ""),
    ("map<string,int>", {"a": "x"}, "a"),
    ("struct<a:struct<b:int>>", {"a": {"b": "x"}}, "a.b"),
    ("struct<a:int>", {"b": 1}, "b"),
    ("struct<a:int>", [], ""),
]


def wrong_with(value: Any, of: Type) -> list[Mismatch]:
    wrong: list[Mismatch] = []
    converted(of, value, "", wrong)
    return wrong


@pytest.mark.parametrize(("kind", "value"), GOOD)
def test_a_value_of_its_type_has_no_mismatch(kind: str, value: Any) -> None:
    assert wrong_with(value, read(kind)) == []
    assert wrong_with(None, read(kind)) == []


@pytest.mark.parametrize(("kind", "value", "where"), BAD)
def test_a_value_of_another_type_is_told_with_its_place(kind: str, value: Any, where: str) -> None:
    (found,) = wrong_with(value, read(kind))
    assert found.where == where and found.expected and found.got


@pytest.mark.parametrize("kind", sorted({kind for kind, _ in GOOD}))
def test_the_schema_of_a_type_takes_its_sample(kind: str) -> None:
    sample = example(read(kind))
    assert wrong_with(json_spans.whole(_json(sample)).value, read(kind)) == []
    assert jsonschema_rs.validator_for(schema(read(kind))).is_valid(sample)


def test_columns_may_be_null_but_for_those_of_a_key() -> None:
    columns = (Column("id", "bigint"), Column("name", "string"))
    found = jsonschema_rs.validator_for(schema(row(columns, never_null=["id"])))
    assert found.is_valid({"id": 1, "name": None}) and found.is_valid({"id": 1})
    assert (
        not found.is_valid({"id": None}) and not found.is_valid({"name": "x"}) and not found.is_valid({"id": 1, "x": 1})
    )


@pytest.mark.parametrize("text", ["", "[", "[1,]", "[1 2]", "[1] x", "nothing", "[NaN]", "{}", "[" * 10_000])
def test_what_is_no_array_has_no_elements(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        json_spans.elements(text)


def test_elements_and_members_are_found_with_their_own_text() -> None:
    found = json_spans.elements(' [ 1.50 , {"a" :[2]},"]"\n] ')
    assert [one.text for one in found] == ["1.50", '{"a" :[2]}', '"]"']
    members = json_spans.members(' { "a" : 1.0, "b":{"c": "}"} }')
    assert {name: one.text for name, one in members.items()} == {"a": "1.0", "b": '{"c": "}"}'}
    assert json_spans.elements("[]") == [] and json_spans.members("{ }") == {}


def _json(value: Any) -> str:
    return json.dumps(value)

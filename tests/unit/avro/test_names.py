"""Names in Avro schemas, with fastavro as the judge of what is inlined."""

from __future__ import annotations

import json
from typing import Any

from fastavro import parse_schema

from tailrace.avro.names import definitions, inlined


def record(name: str, *types: Any, **more: Any) -> dict[str, Any]:
    return {
        "type": "record",
        "name": name,
        "fields": [{"name": f"f{i}", "type": t} for i, t in enumerate(types)],
        **more,
    }


def test_every_named_type_is_found_by_its_full_name() -> None:
    fixed = {"type": "fixed", "name": "F", "size": 2}
    other = {"type": "enum", "name": "other.E", "symbols": ["A"]}
    schema = record("R", {"type": "array", "items": fixed}, ["null", {"type": "map", "values": other}], namespace="org")
    assert dict(definitions(schema)) == {"org.R": schema, "org.F": fixed, "other.E": other}


def test_a_referenced_type_is_defined_where_it_is_used_first() -> None:
    title = record("Title", "string", namespace="org.movies")
    schema = record("Rating", "org.movies.Title", ["null", "org.movies.Title"], namespace="net.ratings")
    found = inlined(schema, {"org.movies.Title": title})
    assert found["fields"][0]["type"]["fields"] == title["fields"]
    assert found["fields"][1]["type"] == ["null", "org.movies.Title"]
    parse_schema(found)


def test_a_type_keeps_its_namespace_wherever_it_lands() -> None:
    plain = record("Plain", {"type": "fixed", "name": "Inner", "size": 1})
    schema = record("Rating", "Plain", "Inner", namespace="net.ratings")
    found = inlined(schema, dict(definitions(plain)))
    assert found["fields"][0]["type"]["namespace"] == ""
    assert found["fields"][1]["type"] == "Inner"


def test_a_type_that_two_references_hold_is_defined_once() -> None:
    genre = {"type": "enum", "name": "Genre", "namespace": "org", "symbols": ["DRAMA"]}
    title = record("Title", "Genre", namespace="org")
    schema = record("Rating", "Genre", "Title", {"type": "array", "items": "Title"}, namespace="org")
    found = inlined(schema, {"org.Genre": genre, "org.Title": title})
    assert json.dumps(found).count('"symbols"') == 1 and json.dumps(found).count('"Title"') == 2
    parse_schema(found)

"""Writers: what is learned of schema ids, what is refused, and when learning ends."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest

from tailrace.avro.writer_safety import unusable
from tailrace.errors import SchemaRefused, Unreachable
from tailrace.pipeline.source.writer_schemas import MOST_MISSING, WriterSchemas

LONG = '"long"'
NODE = {"type": "record", "name": "N", "fields": [{"name": "next", "type": ["null", "N"]}]}
EMPTY = {"type": "record", "name": "E", "fields": [{"name": "n", "type": "null"}]}


class Table:
    """Schemas by id, and the ids that were asked for."""

    def __init__(self, schemas: dict[int, str]) -> None:
        self.schemas = schemas
        self.asked: list[int] = []

    def versions(self, subject: str) -> dict[int, str]:
        assert subject == "ratings-value"
        return dict(self.schemas)

    def by_id(self, id: int) -> str | None:
        self.asked.append(id)
        if id == 13:
            raise SchemaRefused("of type PROTOBUF")
        if id == 14:
            raise Unreachable("no answer")
        return self.schemas.get(id)


def test_an_id_is_looked_up_once() -> None:
    table, writers = Table({1: LONG, 2: '"string"'}), WriterSchemas("ratings-value")
    for _ in range(2):
        writers.learn(table, {2, 7, 13})
    assert table.asked == [2, 7, 13]
    assert writers.known == {2: '"string"'} and writers.malformed == {7, 13} and not writers.lenient
    writers.refresh(table)
    assert writers.known == table.schemas


def test_a_registry_that_does_not_answer_makes_nothing_malformed() -> None:
    writers = WriterSchemas("ratings-value")
    with pytest.raises(Unreachable):
        writers.learn(Table({1: LONG}), [1, 14, 15])
    assert writers.known == {1: LONG} and writers.malformed == set()


def test_after_many_missing_ids_none_is_worth_a_start_and_it_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    table, writers = Table({}), WriterSchemas("ratings-value")
    writers.learn(table, range(100, 100 + MOST_MISSING - 1))
    before = writers.lenient
    writers.learn(table, [5000])
    writers.learn(table, [5000, 5001])
    assert (before, writers.lenient) == (False, True)
    loud = [entry for entry in caplog.records if entry.levelno >= logging.ERROR]
    assert len(loud) == 1 and "ratings-value" in loud[0].getMessage() and "--registry" in loud[0].getMessage()


def test_a_schema_that_endangers_the_jvm_is_refused_and_told_once(caplog: pytest.LogCaptureFixture) -> None:
    table, writers = Table({3: json.dumps(NODE)}), WriterSchemas("ratings-value")
    writers.refresh(table)
    writers.refresh(table)
    assert writers.known == {} and writers.malformed == {3}
    assert [entry.getMessage() for entry in caplog.records if "recursive" in entry.getMessage()] != []
    assert len(caplog.records) == 1


def items(schema: Any) -> dict[str, Any]:
    return {"type": "array", "items": schema}


@pytest.mark.parametrize(
    "schema",
    [
        NODE,
        {"type": "record", "name": "A", "namespace": "x", "fields": [{"name": "a", "type": items("x.A")}]},
        items("null"),
        items(EMPTY),
        items({"type": "fixed", "name": "F", "size": 0}),
        {"type": "record", "name": "R", "fields": [{"name": "e", "type": EMPTY}, {"name": "s", "type": items("E")}]},
        ["null", items({"type": "null"})],
        "nosuch",
        {"type": "record", "name": "R"},
        17,
        None,
    ],
)
def test_what_can_end_or_stall_the_jvm_or_is_no_schema_is_unusable(schema: Any) -> None:
    assert unusable(json.dumps(schema)) is not None


@pytest.mark.parametrize(
    "schema",
    [
        "string",
        EMPTY,
        items(["null", "int"]),
        items(items("long")),
        {"type": "map", "values": "null"},
        {"type": {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}},
        {
            "type": "record",
            "name": "R",
            "namespace": "org",
            "fields": [
                {"name": "a", "type": {"type": "enum", "name": "E", "symbols": ["X"]}},
                {"name": "b", "type": items("E")},
                {"name": "c", "type": ["null", "org.E"]},
            ],
        },
    ],
)
def test_other_schemas_are_usable(schema: Any) -> None:
    assert unusable(json.dumps(schema)) is None


def test_text_that_is_not_json_is_unusable() -> None:
    assert unusable("{") is not None and unusable("[" * 100_000) is not None

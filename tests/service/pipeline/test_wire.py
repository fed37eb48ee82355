"""The Confluent wire format in Spark: against fastavro, against the client's own serializer, and against garbage."""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Collection, Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from fastavro import parse_schema, schemaless_reader, schemaless_writer
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pyspark.errors import PySparkException
from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F

from registry_server import RegistryServer
from tailrace.avro.registry import Registry
from tailrace.pipeline.source import wire
from tailrace.pipeline.source.avro_envelope import MARK
from tailrace.pipeline.source.writer_schemas import WriterSchemas

few = settings(max_examples=8, deadline=None)
MALFORMED = "malformed"


def fields(*listed: Any, **more: Any) -> dict[str, Any]:
    return {"type": "record", "name": "R", "namespace": "org.movies", "fields": list(listed), **more}


def field(name: str, type: Any, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": type, **more}


def avro(schema: Any, value: Any) -> bytes:
    buffer = io.BytesIO()
    schemaless_writer(buffer, parse_schema(schema), value)
    return buffer.getvalue()


def header(id: int) -> bytes:
    return struct.pack(">bI", 0, id)


def plain(value: Any) -> Any:
    """What Spark gives, as fastavro would."""
    if isinstance(value, Row):
        return {name: plain(part) for name, part in value.asDict().items()}
    if isinstance(value, bytearray):
        return bytes(value)
    return [plain(part) for part in value] if isinstance(value, list) else value


def decode(
    spark: SparkSession,
    payloads: list[bytes | None],
    reader: Any,
    writers: Mapping[int, Any],
    malformed: Collection[int] = (),
    **options: Any,
) -> list[Any]:
    """Each value, or `MALFORMED`."""
    frame = spark.createDataFrame([(i, payload) for i, payload in enumerate(payloads)], "i int, value binary")
    texts = {id: schema if isinstance(schema, str) else json.dumps(schema) for id, schema in writers.items()}
    column = wire.decode(
        F.col("value"), json.dumps(reader), texts, malformed, **{"subject": "ratings-value", **options}
    )
    # As the pipeline uses it: parsed once, used many times.
    parsed = frame.select("i", column.alias("parsed"))
    rows = parsed.select("i", F.col("parsed.whole").alias("whole"), F.col("parsed.value").alias("value")).orderBy("i")
    return [plain(row.value) if row.whole == MARK else MALFORMED for row in rows.collect()]


# Evolution: what fastavro makes of writer and reader is what Spark must make of them

GENRE = {"type": "enum", "name": "Genre", "symbols": ["DRAMA", "COMEDY"]}
NESTED = fields(field("a", "int"), field("b", "string"), name="Nested")
WIDER = fields(field("b", "string"), field("a", "long"), field("c", ["null", "int"], default=None), name="Nested")
EVOLUTIONS = {
    "same": (fields(field("a", "int")), fields(field("a", "int"))),
    "added with a default": (fields(field("a", "int")), fields(field("a", "int"), field("b", "string", default="x"))),
    "added null": (fields(field("a", "int")), fields(field("b", ["null", "long"], default=None), field("a", "int"))),
    "removed first": (fields(field("b", "string"), field("a", "int")), fields(field("a", "int"))),
    "removed last": (
        fields(field("a", "int"), field("t", {"type": "array", "items": "string"})),
        fields(field("a", "int")),
    ),
    "removed record": (fields(field("n", NESTED), field("a", "int")), fields(field("a", "int"))),
    "int to long": (fields(field("a", "int")), fields(field("a", "long"))),
    "int to double": (fields(field("a", "int")), fields(field("a", "double"))),
    "long to double": (fields(field("a", "long")), fields(field("a", "double"))),
    "float to double": (fields(field("f", "float")), fields(field("f", "double"))),
    "string to bytes": (fields(field("b", "string")), fields(field("b", "bytes"))),
    "bytes to string": (fields(field("y", "bytes")), fields(field("y", "string"))),
    "reordered": (fields(field("a", "int"), field("b", "string")), fields(field("b", "string"), field("a", "int"))),
    "renamed by alias": (fields(field("a", "int")), fields(field("z", "int", aliases=["a"]))),
    "made nullable": (fields(field("a", "int")), fields(field("a", ["null", "long"]))),
    "made required": (fields(field("o", ["null", "int"])), fields(field("o", "int"))),
    "union widened": (fields(field("o", ["null", "int"])), fields(field("o", ["null", "long"]))),
    "nested": (fields(field("n", NESTED)), fields(field("n", WIDER))),
    "list of nested": (
        fields(field("l", {"type": "array", "items": NESTED})),
        fields(field("l", {"type": "array", "items": WIDER})),
    ),
    "map": (
        fields(field("m", {"type": "map", "values": "int"})),
        fields(field("m", {"type": "map", "values": "long"})),
    ),
    "enum grown": (
        fields(field("g", GENRE)),
        fields(field("g", {**GENRE, "symbols": ["COMEDY", "DRAMA", "HORROR"]})),
    ),
    "enum symbol gone": (fields(field("g", GENRE)), fields(field("g", {**GENRE, "symbols": ["DRAMA"]}))),
    "enum symbol gone with a default": (
        fields(field("g", GENRE)),
        fields(field("g", {**GENRE, "symbols": ["OTHER", "DRAMA"], "default": "OTHER"})),
    ),
    "another type": (fields(field("a", "int")), fields(field("a", "string"))),
    "narrowed": (fields(field("a", "long")), fields(field("a", "int"))),
    "added without a default": (fields(field("a", "int")), fields(field("a", "int"), field("q", "string"))),
}
texts = st.text(max_size=6)
ints = st.integers(-(2**31), 2**31 - 1)
# Exact as a double, so that a promoted value has one right answer.
SAMPLES: dict[str, st.SearchStrategy[Any]] = {
    "a": ints,
    "b": texts,
    "t": st.lists(texts, max_size=3),
    "n": st.fixed_dictionaries({"a": ints, "b": texts}),
    "l": st.lists(st.fixed_dictionaries({"a": ints, "b": texts}), max_size=3),
    "m": st.dictionaries(texts, ints, max_size=3),
    "o": st.none() | ints,
    "f": st.floats(width=32, allow_nan=False),
    "y": texts.map(str.encode),
    "g": st.sampled_from(["DRAMA", "COMEDY"]),
}


def oracle(payload: bytes, writer: Any, reader: Any) -> Any:
    try:
        return schemaless_reader(io.BytesIO(payload), parse_schema(writer), parse_schema(reader))
    except Exception:
        return MALFORMED


@pytest.mark.parametrize("name", EVOLUTIONS)
def test_every_evolution_reads_as_fastavro_reads_it(spark: SparkSession, name: str) -> None:
    writer, reader = EVOLUTIONS[name]
    one = st.fixed_dictionaries({part["name"]: SAMPLES[part["name"]] for part in writer["fields"]})

    @settings(max_examples=3, deadline=None)
    @given(st.lists(one, min_size=1, max_size=20))
    def check(written: list[Any]) -> None:
        payloads = [avro(writer, value) for value in written]
        found = decode(spark, [header(7) + payload for payload in payloads], reader, {7: writer})
        assert found == [oracle(payload, writer, reader) for payload in payloads]

    check()


def test_versions_of_one_topic_are_told_apart_by_id(spark: SparkSession) -> None:
    one, two = EVOLUTIONS["reordered"]
    value = {"a": 5, "b": "x"}
    payloads = [header(1) + avro(one, value), header(300) + avro(two, value), header(1) + avro(one, value)]
    assert decode(spark, [*payloads], two, {1: one, 300: two}) == [value] * 3


def test_an_incompatible_writer_spoils_its_own_records_only(spark: SparkSession) -> None:
    reader = fields(field("a", "int"))
    writers = {1: reader, 2: fields(field("a", "string")), 3: "{", 4: '"nosuch"', 5: '{"type":"record","name":"1?"}'}
    payloads = [header(id) + b"\x02" for id in (*writers, 1)]
    assert decode(spark, [*payloads], reader, writers) == [{"a": 1}, *[MALFORMED] * 4, {"a": 1}]


def test_logical_types_and_unions_are_those_of_spark(spark: SparkSession) -> None:
    amount = {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2}
    writer = fields(
        field("at", {"type": "long", "logicalType": "timestamp-millis"}),
        field("day", {"type": "int", "logicalType": "date"}),
        field("amount", amount),
        field("either", ["int", "string"]),
    )
    at = datetime(2026, 2, 3, 4, 5, 6, 789000, tzinfo=UTC)
    written = {"at": at, "day": date(2026, 2, 3), "amount": Decimal("12.34"), "either": "x"}
    reader = {**writer, "fields": writer["fields"][::-1]}
    (found,) = decode(spark, [header(1) + avro(writer, written)], reader, {1: writer})
    assert found["at"].timestamp() == at.timestamp() and found["day"] == written["day"]
    assert found["amount"] == written["amount"] and found["either"] == {"member0": None, "member1": "x"}


@pytest.mark.parametrize(
    ("writer", "reader", "value"), [("string", "string", "ann"), ("int", "long", 7), ("long", "long", -1)]
)
def test_a_key_may_be_a_primitive(spark: SparkSession, writer: str, reader: str, value: Any) -> None:
    whole = header(1) + avro(writer, value)
    found = decode(spark, [whole, whole[:-1], whole + b"\x00", None], reader, {1: f'"{writer}"'}, subject="ratings-key")
    assert found == [value, MALFORMED, MALFORMED, MALFORMED]


# What is malformed, and what fails the query

READER = fields(
    field("a", "int"), field("b", "string"), field("tags", {"type": "array", "items": "string"}, default=[])
)
OLDER = fields(field("b", "string"), field("skipped", ["null", {"type": "map", "values": "bytes"}]), field("a", "int"))


def test_a_value_that_ends_early_or_late_is_malformed(spark: SparkSession) -> None:
    whole = header(2) + avro(OLDER, {"a": 5, "b": "xyz", "skipped": {"k": b"v"}})
    payloads = [*(whole[:size] for size in range(len(whole))), whole + b"\x00", whole + whole]
    found = decode(spark, [*payloads, whole, None], READER, {1: READER, 2: OLDER})
    assert found == [MALFORMED] * len(payloads) + [{"a": 5, "b": "xyz", "tags": []}, MALFORMED]


def test_other_headers_are_malformed_and_never_looked_up(spark: SparkSession) -> None:
    payloads = [b"", b"\x00", b"\x00\x00\x00\x00", b"\x01\x00\x00\x00\x01\x02", b'{"a":1}', b"\x00\x80\x00\x00\x00\x02"]
    payloads += [b"\x00\xff\xff\xff\xff\x02", b"\xff" * 9]
    assert decode(spark, [*payloads], READER, {1: READER}) == [MALFORMED] * len(payloads)


def test_ids_that_the_registry_does_not_have_are_malformed(spark: SparkSession) -> None:
    missing = range(100, 150)
    payloads = [*(header(id) + b"\x02" for id in missing), header(1) + b"\x02"]
    found = decode(spark, [*payloads], fields(field("a", "int")), {1: fields(field("a", "int"))}, missing)
    assert found == [MALFORMED] * 50 + [{"a": 1}]


@pytest.mark.parametrize("id", [0, 17, 2**31 - 1])
@pytest.mark.parametrize("writers", [{}, {1: READER}])
def test_an_id_that_was_never_looked_up_fails_the_query_and_is_named(
    spark: SparkSession, id: int, writers: dict[int, Any]
) -> None:
    with pytest.raises(PySparkException) as caught:
        decode(spark, [header(id) + b"\x02"], READER, writers)
    assert wire.unknown_ids(str(caught.value)) == {id}
    assert "under subject ratings-value" in str(caught.value)
    assert decode(spark, [header(id) + b"\x02"], READER, writers, lenient=True) == [MALFORMED]


def test_a_streaming_query_names_the_id_and_its_plan_names_none(spark: SparkSession, tmp_path: Path) -> None:
    source = tmp_path / "source"
    spark.createDataFrame([(header(41) + b"\x02",)], "value binary").write.parquet(str(source))
    column = wire.decode(F.col("value"), json.dumps(READER), {1: json.dumps(READER)}, [2], subject="ratings-value")
    stream = spark.readStream.schema("value binary").parquet(str(source)).select(column.alias("parsed"))
    query = stream.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "saved"))
    started = query.trigger(availableNow=True).start()
    with pytest.raises(PySparkException) as caught:
        started.awaitTermination(60)
    assert wire.unknown_ids(str(caught.value)) == {41}


def test_other_errors_name_no_id() -> None:
    assert wire.unknown_ids("") == wire.unknown_ids("tailrace: unknown schema id ") == set()
    assert wire.unknown_ids("a tailrace: unknown schema id 1 x tailrace: unknown schema id 22 under") == {1, 22}


@few
@given(st.lists(st.binary(max_size=40), max_size=60), st.sampled_from([1, 2]))
@example([b"\x02\xff\xff\xff\xff\x0f", b"\x02" + b"\xfe\xff\xff\xff\x0f" * 3, b"\x00\x02\x01\xff\xff\xff\xff\x0f"], 1)
@example([b"\x00\x02\xfe\xff\xff\xff\x0f", b"\x00\x02\x01\xfe\xff\xff\xff\xff\xff\xff\xff\x7f", b"\x00\x02\x02\x00"], 2)
def test_no_bytes_behind_a_known_id_make_the_query_fail(spark: SparkSession, rests: list[bytes], id: int) -> None:
    found = decode(spark, [header(id) + rest for rest in rests], READER, {1: READER, 2: OLDER})
    assert len(found) == len(rests)
    assert all(value == MALFORMED or value["a"] is not None for value in found)


@few
@given(st.lists(st.binary(max_size=12), max_size=60))
def test_no_bytes_at_all_make_a_lenient_query_fail(spark: SparkSession, payloads: list[bytes]) -> None:
    found = decode(spark, [*payloads], READER, {1: READER, 2: OLDER}, lenient=True)
    assert len(found) == len(payloads)


def test_a_writer_that_could_end_the_jvm_is_never_tried(spark: SparkSession) -> None:
    node = fields(field("a", "int"), field("next", ["null", "org.movies.R"]))
    reader = fields(field("a", "int"))
    deep = header(1) + b"\x02\x02" * 200_000 + b"\x02\x00"
    endless = fields(field("a", "int"), field("nulls", {"type": "array", "items": "null"}))
    long = header(2) + b"\x02" + b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7f\x00"
    writers = {1: node, 2: endless, 3: reader}
    assert decode(spark, [deep, long, header(3) + b"\x02"], reader, writers) == [MALFORMED, MALFORMED, {"a": 1}]


def test_many_ids_are_decoded_each_with_its_own_schema(spark: SparkSession) -> None:
    reader = fields(field("a", "int"), field("b", "string", default="none"))
    writers = {id: fields(*(field(f"x{i}", "int") for i in range(id % 5)), field("a", "int")) for id in range(1, 51)}
    values = [{"a": id, **{f"x{i}": i for i in range(id % 5)}} for id in writers]
    payloads = [header(id) + avro(writers[id], value) for id, value in zip(writers, values, strict=True)]
    assert decode(spark, [*payloads * 20], reader, writers) == [{"a": id, "b": "none"} for id in writers] * 20


# With a real registry and the serializer that most Python producers use


def test_what_the_client_serializes_is_read_back_through_the_registry(
    spark: SparkSession, registry: RegistryServer, fresh: str
) -> None:
    topic = f"ratings-{fresh}"
    name = {"name": f"R{fresh}"}
    one = fields(field("movie_id", "int"), field("old", "string"), **name)
    two = fields(field("movie_id", "int"), field("rating", ["null", "double"], default=None), **name)
    written = [(one, {"movie_id": 1, "old": "x"}), (two, {"movie_id": 2, "rating": 7.5})]
    payloads: list[bytes | None] = []
    with registry.client() as client:
        for schema, value in written:
            serializer = AvroSerializer(client, json.dumps(schema))
            payloads.append(serializer(value, SerializationContext(topic, MessageField.VALUE)))
        key = AvroSerializer(client, '"string"')("ann", SerializationContext(topic, MessageField.KEY))

    found, writers = Registry.at(registry.url), WriterSchemas(f"{topic}-value")
    _, reader = found.latest(writers.subject)
    ids: set[int] = set()
    while True:
        try:
            decoded = decode(spark, payloads, json.loads(reader), writers.known, writers.malformed)
            break
        except PySparkException as error:
            new = wire.unknown_ids(str(error)) - ids
            if not new:
                raise
            ids |= new
            writers.learn(found, new)
    assert decoded == [{"movie_id": 1, "rating": None}, {"movie_id": 2, "rating": 7.5}]
    assert set(writers.known) == ids and len(ids) == 2

    keys = WriterSchemas(f"{topic}-key")
    keys.refresh(found)
    assert decode(spark, [key], "string", keys.known, subject=keys.subject) == ["ann"]

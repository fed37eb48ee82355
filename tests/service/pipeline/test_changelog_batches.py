"""What micro-batches write to a changelog: the records that real-time mode would write, or the newest of each key."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, cast

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from parts_off import without
from tailrace import App
from tailrace.contracts.partitions import partition_of
from tailrace.declarations.views import View
from tailrace.dev.broker import Broker
from tailrace.kafka.brokers import Brokers
from tailrace.kafka.topics import LEAST, LONGEST, Topics
from tailrace.pipeline.changelog.changelog import (
    QueryContext,
    changelog_writer,
    changes,
    fitting,
    unwritten_changes,
    write,
    write_batches,
)
from tailrace.pipeline.lifecycle.generations import Build
from tailrace.pipeline.spark.spark_kafka import SparkKafka

AT = datetime(2026, 2, 3, 4, 5, 6, 789000, tzinfo=UTC)
GENERATION = 3
Record = tuple[bytes | None, bytes | None, list[tuple[str, bytes]]]

PLAIN = (
    "id string, n long, i int, x double, s string, b boolean, _version long, _timestamp timestamp, __present boolean"
)
INTEGERS = st.sampled_from((0, 9, 10, -1, 2**31 - 1, -(2**31))) | st.integers(-(2**31), 2**31 - 1)
LONGS = st.sampled_from((2**63 - 1, -(2**63))) | st.integers(-(2**63), 2**63 - 1)
TEXTS = st.sampled_from(("", '"', "\\", "a\nb\t\x00\x1f\x7f", "/ü 🐢\u2028")) | st.text(max_size=12)
ROWS = st.tuples(
    TEXTS,
    st.none() | LONGS,
    st.none() | INTEGERS,
    st.none() | st.floats(),
    st.none() | TEXTS,
    st.none() | st.booleans(),
    st.integers(1, 2**40),
    st.just(AT),
    st.booleans(),
)


@pytest.fixture
def output(broker: Broker, fresh: str) -> Build:
    """A build whose changelog is a topic of its own."""
    return made(broker, fresh)


def made(broker: Broker, name: str, origin: str = "", **config: str) -> Build:
    Topics(Brokers(broker.address)).create(name, partitions=1, replication=1, config=config)
    app = App("movies")
    view = app.view("averages", app.topic("ratings", value="id long"), key="id", columns={"n": "count(*)"}, to=name)
    return Build(view, GENERATION, Path(), origin=origin)


def write_rows(
    broker: Broker,
    rows: DataFrame,
    key: tuple[str, ...],
    build: Build,
    place: Path,
    *,
    conflate: bool = False,
    longest: int = LONGEST,
) -> DataFrame:
    """Write rows as one batch; what was written from."""
    spark, data = rows.sparkSession, str(place / "rows")
    rows.coalesce(1).write.parquet(data)
    stream = spark.readStream.schema(rows.schema).parquet(data)
    kafka = SparkKafka(Brokers(broker.address))
    writer = write_batches(unwritten_changes(stream, key), kafka, build, conflate=conflate, longest=longest)
    query = writer.option("checkpointLocation", str(place / "checkpoint")).trigger(availableNow=True).start()
    try:
        query.awaitTermination()
    finally:
        query.stop()
    return spark.read.schema(rows.schema).parquet(data)


def records(broker: Broker, topic: str, number: int = 0) -> Iterator[Record]:
    consumer = Consumer({"bootstrap.servers": broker.address, "group.id": "g", "enable.auto.commit": False})
    partition = TopicPartition(topic, number, OFFSET_BEGINNING)
    _, end = consumer.get_watermark_offsets(partition, timeout=30)
    consumer.assign([partition])
    read = 0
    deadline = time.monotonic() + 60
    while read < end:
        assert time.monotonic() < deadline, f"{read} of {end} records of {topic}"
        for message in consumer.consume(10_000, 0.1):
            assert message.error() is None, message.error()
            read = (message.offset() or 0) + 1
            headers = cast("list[tuple[str, bytes]]", message.headers() or [])
            yield message.key(), message.value(), headers
    consumer.close()


def in_real_time(rows: DataFrame, key: tuple[str, ...], origin: str = "", longest: int = LONGEST) -> list[Record]:
    found = fitting(changes(rows, key, GENERATION, origin), longest).select(
        F.col("key").cast("binary"), F.col("value").cast("binary"), "headers"
    )
    return [
        (bytes(it.key), it.value and bytes(it.value), [(h.key, bytes(h.value)) for h in it.headers])
        for it in found.collect()
    ]


def process(spark: SparkSession, broker: Broker, build: Build, *, batches: bool) -> None:
    """Take in what the sources hold, by the plan of micro-batches or by that of real time."""
    context = QueryContext(SparkKafka(Brokers(broker.address)), build.output.changelog, 60)
    writer = changelog_writer(spark, build, context, batches=batches)
    writer.trigger(availableNow=True).start().awaitTermination()


def newest(broker: Broker, topic: str) -> dict[bytes | None, tuple[int, bytes | None]]:
    """The record of the highest version of each key, and that version."""
    found: dict[bytes | None, tuple[int, bytes | None]] = {}
    for key, value, headers in records(broker, topic):
        version = int(dict(headers)["v"])
        if version >= found.get(key, (0, None))[0]:
            found[key] = (version, value)
    return found


@settings(max_examples=4, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(ROWS, min_size=50, max_size=150), st.integers(0, 2**60))
def test_plain_rows_are_written_to_the_byte_as_in_real_time(
    broker: Broker, spark: SparkSession, fresh: str, tmp_path: Path, rows: list[Any], number: int
) -> None:
    name = f"{fresh}-{number}-{len(rows)}"
    build = made(broker, name)
    given = write_rows(broker, spark.createDataFrame(rows, PLAIN), ("id",), build, tmp_path / name)
    expected = in_real_time(given, ("id",))
    assert len(expected) == len(rows)
    assert list(records(broker, name)) == expected


def test_text_that_is_no_utf8_is_written_as_in_real_time(
    broker: Broker, spark: SparkSession, output: Build, tmp_path: Path
) -> None:
    ddl = "id long, b binary, _version long, _timestamp timestamp"
    bad = [b"\xff", b"a\xc3", b"\xed\xa0\x80", b"\xc0\x80", b"fine"]
    rows = spark.createDataFrame([(n, bytearray(text), 1, AT) for n, text in enumerate(bad)], ddl)
    named = rows.withColumn("s", F.col("b").cast("string")).drop("b")
    given = write_rows(broker, named, ("id",), output, tmp_path)
    assert list(records(broker, output.output.changelog)) == in_real_time(given, ("id",))


def test_rows_of_every_type_are_written_to_the_byte_as_in_real_time(
    broker: Broker, spark: SparkSession, fresh: str, tmp_path: Path
) -> None:
    build = made(broker, fresh, origin="6f0c2a51")
    ddl = (
        "id long, at timestamp, day date, price decimal(10,2), tags array<string>, counts map<string, long>, "
        'raw binary, small float, more struct<a: int, b: string>, `odd " name` short, _version long, '
        "_timestamp timestamp, __expires long, __partition int"
    )
    before_1970 = datetime(1950, 1, 1, tzinfo=UTC)
    full = (AT, date(2026, 2, 3), Decimal("1.50"), ["a", None, "ü"], {"x": 1}, bytearray(b"\x00\xff"), 1.5, (1, "é"), 7)
    rows = [
        (1, *full, 1, AT, 5, 0),
        (2, AT, *[None] * 8, 2, before_1970, 6, 1),
        (3, *full[:6], math.inf, None, -7, 3, AT, 0, 9),
    ]
    given = write_rows(broker, spark.createDataFrame(rows, ddl), ("id", "at"), build, tmp_path)
    found = list(records(broker, fresh))
    assert found == in_real_time(given, ("id", "at"), "6f0c2a51")
    assert [name for name, _ in found[0][2]] == ["g", "v", "t", "x", "p", "s"]


def test_of_the_rows_of_a_key_the_one_of_the_highest_version_is_written(
    broker: Broker, spark: SparkSession, output: Build, tmp_path: Path
) -> None:
    ddl = "id string, n long, _version long, _timestamp timestamp, __present boolean"
    rows = [
        ("a", 1, 1, AT, True),
        ("b", 1, 2, AT, True),
        ("a", 3, 7, AT, True),
        ("a", 2, 3, AT, True),
        ("b", 9, 4, AT, False),
    ]
    write_rows(broker, spark.createDataFrame(rows, ddl).coalesce(1), ("id",), output, tmp_path, conflate=True)
    found = {key: (value, dict(headers)["v"]) for key, value, headers in records(broker, output.output.changelog)}
    assert found == {b"a": (b'{"id":"a","n":3}', b"7"), b"b": (None, b"4")}
    assert len(list(records(broker, output.output.changelog))) == 2


def test_more_keys_than_memory_has_room_for_are_all_written(
    broker: Broker, spark: SparkSession, output: Build, tmp_path: Path
) -> None:
    keys, again = 200_000, 5_000
    first = spark.range(keys).select(F.col("id"), F.lit(1).cast("long").alias("_version"))
    later = F.explode(F.array(F.lit(2).cast("long"), F.lit(3).cast("long")))
    second = spark.range(again).select(F.col("id"), later.alias("_version"))
    text = F.repeat(F.lit("x"), 700).alias("s")
    rows = first.unionByName(second).select("id", text, "_version", F.lit(AT).alias("_timestamp"))
    write_rows(broker, rows, ("id",), output, tmp_path, conflate=True)
    newest: dict[bytes | None, int] = {}
    written = 0
    for key, value, headers in records(broker, output.output.changelog):
        assert value is not None and len(value) > 700
        written += 1
        newest[key] = max(newest.get(key, 0), int(dict(headers)["v"]))
    assert newest == {b"%d" % n: 3 if n < again else 1 for n in range(keys)}
    # Where few keys come again, rows are not held back any more.
    assert written == keys + 2 * again


def test_a_row_that_the_brokers_refuse_fails_the_batch_with_their_reason(
    broker: Broker, spark: SparkSession, fresh: str, tmp_path: Path
) -> None:
    build = made(broker, fresh, **{"max.message.bytes": "2000"})
    rows = spark.createDataFrame([(1, "x" * 10_000, 1, AT)], "id long, s string, _version long, _timestamp timestamp")
    with pytest.raises(StreamingQueryException, match="larger than the max message size"):
        write_rows(broker, rows, ("id",), build, tmp_path)
    assert not list((tmp_path / "checkpoint" / "commits").glob("[0-9]*"))


@pytest.mark.parametrize("longest", [LEAST, LONGEST, 40_000_000])
def test_the_longest_row_that_a_changelog_takes_is_written_and_of_a_longer_one_that_its_key_holds_none(
    broker: Broker, spark: SparkSession, fresh: str, tmp_path: Path, longest: int
) -> None:
    origin = "s" * 40
    ddl = "id string, s string, _version long, _timestamp timestamp, __expires long, __partition int"
    numbers = (2**63 - 1, AT, 2**63 - 1, 2**31 - 1)
    # Key and row, with what is around the text of the row.
    most = longest - 512 - len('k{"id":"k","s":""}')
    texts = F.repeat(F.lit("x"), F.col("size").cast("int"))
    sized = spark.createDataFrame(
        [("k", most, *numbers), ("k", most + 1, *numbers)], ddl.replace("s string", "size long")
    )
    rows = sized.withColumn("size", texts).withColumnRenamed("size", "s")
    config = {"max.message.bytes": str(longest)}
    build = made(broker, f"batches-{fresh}", origin, **config)
    given = write_rows(broker, rows, ("id",), build, tmp_path, longest=longest)
    found = list(records(broker, f"batches-{fresh}"))
    assert [len(value or b"") for _, value, _ in found] == [longest - 513, 0]
    assert ("o", b"%d" % (longest - 511)) in found[1][2] and "o" not in dict(found[0][2])
    assert found == in_real_time(given, ("id",), origin, longest)

    live = made(broker, f"live-{fresh}", **config)
    stream = spark.readStream.schema(rows.schema).parquet(str(tmp_path / "rows"))
    kafka = SparkKafka(Brokers(broker.address))
    writer = write(changes(stream, ("id",), GENERATION, origin), kafka, live, longest)
    writer.option("checkpointLocation", str(tmp_path / "live")).trigger(availableNow=True).start().awaitTermination()
    assert list(records(broker, f"live-{fresh}")) == found


def test_a_backlog_of_a_table_is_written_as_the_newest_usable_value_of_each_key(
    broker: Broker, spark: SparkSession, fresh: str, tmp_path: Path
) -> None:
    topics = Topics(Brokers(broker.address))
    for name in (f"in-{fresh}", f"out-{fresh}"):
        topics.create(name, partitions=1, replication=1, config={})
    producer = Producer({"bootstrap.servers": broker.address})
    for n in range(1000):
        producer.produce(f"in-{fresh}", json.dumps({"n": n}), f"k{n % 10}")
    for key, value in (("k0", b"garbage"), ("k1", None)):
        producer.produce(f"in-{fresh}", value, key)
    assert producer.flush(30) == 0

    app = App("movies")
    view = app.latest("positions", app.table(f"in-{fresh}", key="id", value="n long"), to=f"out-{fresh}")
    process(spark, broker, Build(view, 1, tmp_path), batches=True)

    found = {key: (value, dict(headers)["v"]) for key, value, headers in records(broker, f"out-{fresh}")}
    expected: dict[bytes, tuple[bytes | None, bytes]] = {
        b"k%d" % n: (b'{"id":"k%d","n":%d}' % (n, 990 + n), b"%d" % (991 + n)) for n in range(10)
    }
    assert found == expected | {b"k1": (None, b"1002")}
    assert len(list(records(broker, f"out-{fresh}"))) == 10


@pytest.mark.parametrize("off", [(), ("sink",)], ids=["sink", "no-sink"])
@pytest.mark.parametrize("batches", [True, False], ids=["micro-batch", "real-time"])
def test_rows_stay_in_the_partitions_that_readers_look_in_though_the_changelog_has_more(
    broker: Broker, spark: SparkSession, fresh: str, tmp_path: Path, batches: bool, off: tuple[str, ...]
) -> None:
    Topics(Brokers(broker.address)).create(f"out-{fresh}", partitions=5, replication=1, config={})
    Topics(Brokers(broker.address)).create(f"in-{fresh}", partitions=1, replication=1, config={})
    keys = [f"k{n}" * (n % 7 + 1) for n in range(40)]
    produce(broker, *((f"in-{fresh}", key, {"n": n}) for key in keys for n in range(2)))
    app = App("movies")
    view = app.latest("positions", app.table(f"in-{fresh}", key="id", value="n long"), to=f"out-{fresh}")
    with without(spark, *off):
        process(spark, broker, Build(view, 1, tmp_path, partitions=3), batches=batches)
    for partition in range(5):
        found = {key: value for key, value, _ in records(broker, f"out-{fresh}", partition)}
        expected = [key for key in keys if partition_of(key.encode(), 3) == partition]
        assert found == {key.encode(): f'{{"id":"{key}","n":1}}'.encode() for key in expected}


@pytest.fixture
def names(broker: Broker, fresh: str) -> tuple[str, str, str]:
    """Two topics to read and one to write, of one partition each."""
    found = (f"a-{fresh}", f"b-{fresh}", f"out-{fresh}")
    for name in found:
        Topics(Brokers(broker.address)).create(name, partitions=1, replication=1, config={})
    return found


def joined(names: tuple[str, str, str], how: str) -> View:
    a, b, output = names
    app = App("movies")
    tables = {"a": app.table(a, key="id", value="s string"), "b": app.table(b, key="id", value="n long")}
    return app.join("joined", tables, how=how, to=output)


def produce(broker: Broker, *sent: tuple[str, str, Any]) -> None:
    producer = Producer({"bootstrap.servers": broker.address})
    for topic, key, value in sent:
        producer.produce(topic, None if value is None else json.dumps(value), key)
    assert producer.flush(30) == 0


def test_a_join_goes_from_one_mode_to_the_other_and_back_on_one_state_with_and_without_parts(
    broker: Broker, spark: SparkSession, names: tuple[str, str, str], tmp_path: Path
) -> None:
    a, b, output = names
    build = Build(joined(names, "outer"), 1, tmp_path)
    off = ("sink", "conflation", "json", "overflow")
    for number, (batches, parts) in enumerate(((False, ()), (True, ()), (False, off), (True, off), (True, ()))):
        produce(broker, *((a, "k", {"s": f"{number}.{n}"}) for n in range(3)), (b, "k", {"n": number}), (b, "k", None))
        with without(spark, *parts):
            process(spark, broker, build, batches=batches)
        expected = f'{{"id":"k","s":"{number}.2","n":null}}'.encode()
        assert newest(broker, output) == {b"k": (5 * (number + 1), expected)}


def test_a_view_of_latest_events_goes_from_one_mode_to_the_other_and_back_on_one_state(
    broker: Broker, spark: SparkSession, names: tuple[str, str, str], tmp_path: Path
) -> None:
    events, _, output = names
    app = App("movies")
    build = Build(app.latest("last", app.topic(events, value="k string, n long"), key="k", to=output), 1, tmp_path)
    for number, batches in enumerate((False, True, False, True)):
        produce(broker, *((events, f"{n}", {"k": f"k{n % 2}", "n": 10 * number + n}) for n in range(6)))
        process(spark, broker, build, batches=batches)
        last = {n: f'{{"k":"k{n}","n":{10 * number + 4 + n}}}'.encode() for n in (0, 1)}
        assert newest(broker, output) == {b"k%d" % n: (3 * (number + 1), row) for n, row in last.items()}


def test_a_row_that_was_written_before_a_crash_is_retracted_by_the_batch_that_is_repeated(
    broker: Broker, spark: SparkSession, names: tuple[str, str, str], tmp_path: Path
) -> None:
    a, b, output = names
    view = joined(names, "inner")
    produce(broker, (a, "k", {"s": "x"}), (b, "k", {"n": 1}))
    process(spark, broker, Build(view, 1, tmp_path / "before"), batches=False)
    assert newest(broker, output) == {b"k": (2, b'{"id":"k","s":"x","n":1}')}

    # Nothing of it was saved; when the records are read again, the value is gone already.
    produce(broker, (a, "k", None))
    process(spark, broker, Build(view, 1, tmp_path / "after"), batches=True)
    assert newest(broker, output) == {b"k": (3, None)}

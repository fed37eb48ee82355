"""Queries and searches while the brokers do not answer: what runs goes on, and what failed is well again afterwards."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from confluent_kafka import Producer
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from operating import Operator
from services import NewBroker
from tailrace.contracts.catalog import ViewProgress
from tailrace.dev.broker import Broker
from tailrace.kafka.brokers import Brokers
from tailrace.kafka.topics import Topics
from tailrace.pipeline.dead_letters.search import Search, SearchedTopic, SearchResult
from tailrace.pipeline.dead_letters.search_plan import Offsets, SkipReport
from tailrace.pipeline.lifecycle.query import CATCHING_UP, LIVE, Query, Task
from tailrace.pipeline.source.reading import read
from tailrace.pipeline.spark.spark_kafka import SparkKafka

PATIENCE = 120.0


def watched(part: Query | Search, until: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not until():
        assert time.monotonic() < deadline, f"still waiting after {PATIENCE:.0f} s: {what}; {part.reasons()}"
        part.watch()
        time.sleep(0.1)


def one_partition(broker: Broker, fresh: str) -> str:
    topic = f"t-{fresh}"
    Topics(Brokers(broker.address)).create(topic, partitions=1, replication=1, config={})
    return topic


def to_nowhere(
    spark: SparkSession, broker: Broker, topic: str, checkpoint: Path
) -> Callable[[str, int], DataStreamWriter]:
    def writer(_: str, base: int) -> DataStreamWriter:
        records = read(spark, SparkKafka(Brokers(broker.address)), topic, f"g-{topic}")
        return records.writeStream.format("noop").option("checkpointLocation", str(checkpoint)).queryName(topic)

    return writer


def test_a_live_query_goes_on_while_the_brokers_do_not_say_how_far_it_is_behind(
    broker: Broker, new_broker: NewBroker, spark: SparkSession, fresh: str, tmp_path: Path
) -> None:
    asked = new_broker()
    topic = f"t-{fresh}"
    for servers in (broker.address, asked.address):
        Topics(Brokers(servers)).create(topic, partitions=1, replication=1, config={})
    producer = Producer({"bootstrap.servers": broker.address})
    writer = to_nowhere(spark, broker, topic, tmp_path)

    task = Task(topic, f"view {topic}", writer, LIVE, 5.0, Brokers(asked.address), f"g-{fresh}", lambda: {topic: 1})
    query = Query(task, ViewProgress(topic, 1, -1, 0), lambda _: None)
    try:
        watched(query, lambda: query.progress.mode == LIVE, "the query starts")
        restarts = query.restarts
        asked.kill()
        for number in range(2):
            producer.produce(topic, b"1")
            assert producer.flush(30) == 0
            read = {topic: {"0": number + 1}}
            watched(query, lambda read=read: query.progress.offsets == read, "its batch ends")  # type: ignore[misc]
            query.watch()
        assert query.restarts == restarts
    finally:
        query.stop()


def test_a_query_that_can_not_be_asked_does_not_run_on_unwatched(
    broker: Broker, spark: SparkSession, fresh: str, tmp_path: Path
) -> None:
    topic = one_partition(broker, fresh)
    producer = Producer({"bootstrap.servers": broker.address})
    writer = to_nowhere(spark, broker, topic, tmp_path)
    answers = True

    def report(progress: ViewProgress) -> None:
        if progress.batch == 0 and progress.mode == LIVE and not answers:
            raise PySparkException("no answer")

    def running() -> bool:
        return any(one.name == topic for one in spark.streams.active)

    task = Task(topic, f"view {topic}", writer, LIVE, 5.0, Brokers(broker.address), f"g-{fresh}", lambda: {topic: 1})
    query = Query(task, ViewProgress(topic, 1, -1, 0), report)
    try:
        watched(query, lambda: query.progress.mode == LIVE, "the query starts")
        restarts = query.restarts
        answers = False
        producer.produce(topic, b"1")
        assert producer.flush(30) == 0
        watched(query, lambda: query.restarts > restarts, "a batch ends, and can't be told")
        assert not running()
        answers = True
        watched(query, lambda: not query.reasons(), "the query is started again")
        assert running()
    finally:
        query.stop()


def test_a_batch_that_ended_while_nobody_watched_is_noticed(
    broker: Broker, spark: SparkSession, fresh: str, tmp_path: Path
) -> None:
    topic = one_partition(broker, fresh)
    producer = Producer({"bootstrap.servers": broker.address})
    writer = to_nowhere(spark, broker, topic, tmp_path)

    def batch() -> None:
        producer.produce(topic, b"1")
        assert producer.flush(30) == 0
        writer(LIVE, 0).trigger(availableNow=True).start().awaitTermination(int(PATIENCE))

    def watched_batch(progress: ViewProgress) -> ViewProgress:
        task = Task(
            topic, f"view {topic}", writer, LIVE, 5.0, Brokers(broker.address), f"g-{fresh}", lambda: {topic: 1}
        )
        query = Query(task, progress, lambda _: None)
        try:
            producer.produce(topic, b"1")
            assert producer.flush(30) == 0
            watched(query, lambda: query.progress.batch > progress.batch, "a batch ends")
            return query.progress
        finally:
            query.stop()

    first = watched_batch(ViewProgress(topic, 1, -1, 0))
    assert (first.batch, first.unseen) == (0, 0)
    batch()
    assert watched_batch(first).unseen == 1


def test_retention_takes_what_a_batch_has_read_whose_end_nobody_saw(
    broker: Broker, spark: SparkSession, fresh: str, tmp_path: Path
) -> None:
    """There is nothing to catch up with, and so no batch that ends: the query is live all the same."""
    topic = one_partition(broker, fresh)
    producer = Producer({"bootstrap.servers": broker.address})
    plain = to_nowhere(spark, broker, topic, tmp_path)

    def writer(mode: str, base: int) -> DataStreamWriter:
        return plain(mode, base).trigger(availableNow=True) if mode == CATCHING_UP else plain(mode, base)

    for _ in range(2):
        producer.produce(topic, b"1")
        assert producer.flush(30) == 0
        writer(CATCHING_UP, 0).start().awaitTermination(int(PATIENCE))
    Operator(broker).remove_records(topic)
    task = Task(topic, f"view {topic}", writer, LIVE, 5.0, Brokers(broker.address), f"g-{fresh}", lambda: {topic: 1})
    query = Query(task, ViewProgress(topic, 1, 0, 1, mode=LIVE, offsets={topic: {"0": 1}}), lambda _: None)
    try:
        watched(query, lambda: query.progress.mode == LIVE and not query.reasons(), "the query is live")
        assert query.progress.lost == 1
    finally:
        query.stop()


def test_a_search_that_got_no_answer_is_well_again_when_there_is_nothing_to_search(
    new_broker: NewBroker, fresh: str
) -> None:
    broker = new_broker()
    topic = one_partition(broker, fresh)

    def searched(starts: Offsets, ends: Offsets) -> SearchResult:
        raise AssertionError(f"a search from {starts} to {ends}, where there is nothing")

    search = Search(
        SearchedTopic(topic, lambda: 1, Brokers(broker.address), f"g-{fresh}"),
        ViewProgress(topic, 1, -1, 0),
        search=searched,
        cancel=lambda: None,
        skip_reports=dict[str, SkipReport],
        learn=lambda _: False,
        report=lambda _: None,
        batch_seconds=5.0,
    )
    try:
        broker.kill()
        watched(search, lambda: bool(search.reasons()), "the search notices that nobody answers")
        broker.start()
        watched(search, lambda: not search.reasons(), "the search is well again")
    finally:
        search.stop()

"""Every way to connect to Kafka, with one file for the Python clients and for Spark."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from running import eventually
from secured_kafka import PASSWORD, WAYS, Secured
from tailrace.kafka.brokers import Brokers
from tailrace.kafka.changelogs import Changelogs
from tailrace.kafka.delivery import Delivery, Outgoing
from tailrace.kafka.groups import Group
from tailrace.kafka.topics import LONGEST, Topics
from tailrace.pipeline.changelog.changelog import sink_options
from tailrace.pipeline.source.reading import read
from tailrace.pipeline.spark.spark_kafka import SparkKafka
from tailrace.settings import Settings


def named(way: tuple[str, str]) -> str:
    return "-".join(part for part in way if part)


def brokers_of(file: Path) -> Brokers:
    return Brokers.of(Settings({"kafka-config": str(file)}))


@pytest.mark.parametrize("java", [True, False], ids=["java", "librdkafka"])
@pytest.mark.parametrize("way", WAYS, ids=named)
def test_topics_are_created_written_read_and_committed(
    secured: Secured, fresh: str, way: tuple[str, str], java: bool
) -> None:
    brokers = brokers_of(secured.file(*way, java=java))
    assert str(brokers) == secured.address(way[0])
    topic, group = f"ratings-{fresh}", f"readers-{fresh}"
    Topics(brokers).create(topic, partitions=1, replication=1, config={})
    assert Delivery(brokers, "ratings").write([Outgoing(topic, None, b"362", b"8", [])]) is None
    changelogs = Changelogs(brokers, group)
    changelogs.subscribe([topic])
    found: list[bytes | None] = []

    def arrived() -> bool:
        polled = changelogs.poll(0.1)
        for partition in polled.assigned:
            changelogs.open(partition, 0)
        found.extend(message.value() for messages in polled.records.values() for message in messages)
        return found == [b"8"]

    eventually(arrived, "the record comes back", 60)
    changelogs.close()
    committing = Group(brokers, group)
    committing.commit({topic: {0: 1}})
    assert committing.committed({topic: 1}) == {topic: {0: 1}}
    committing.close()
    assert brokers.problems() == []


def test_spark_reads_and_writes_by_every_way_and_its_plans_hold_no_secret(
    secured: Secured, spark: SparkSession, fresh: str, tmp_path: Path
) -> None:
    ways = [(*way, True) for way in WAYS] + [("MUTUAL", "", False), ("BOTH", "OAUTHBEARER", False)]
    started: dict[str, StreamingQuery] = {}
    producer = Producer({"bootstrap.servers": secured.broker.address})
    for number, (listener, mechanism, java) in enumerate(ways):
        name = f"{listener}-{mechanism}-{number}"
        source, sink = f"in-{number}-{fresh}", f"out-{number}-{fresh}"
        brokers = brokers_of(secured.file(listener, mechanism, java=java))
        for topic in (source, sink):
            Topics(brokers).create(topic, partitions=1, replication=1, config={})
        producer.produce(source, name)
        producer.flush(30)
        directory = tmp_path / name
        directory.mkdir()
        kafka = SparkKafka(brokers, directory)
        records = read(spark, kafka, source, f"spark-{fresh}").select("key", "value", "headers")
        options = sink_options(kafka, sink, LONGEST)
        writer = records.writeStream.format("kafka").options(**options).trigger(availableNow=True)
        started[name] = writer.option("checkpointLocation", str(directory / "checkpoint")).start()
        files = list(directory.glob("kafka-*.properties"))
        assert len(files) == (0 if listener == "PLAINTEXT" else 1), name
        assert all(stat.S_IMODE(file.stat().st_mode) == 0o600 for file in files), name
    failed = {}
    for name, query in started.items():
        assert query.awaitTermination(240), name
        if (error := query.exception()) is not None:
            failed[name] = str(error)[:2000]
    assert failed == {}
    plans = "".join(str(query._jsq.explainInternal(True)) for query in started.values())
    reports = "".join(query.lastProgress.json for query in started.values() if query.lastProgress is not None)
    assert "kafka" in plans and not any(
        secret in plans + reports for secret in (PASSWORD, "pass\\\\word", "PRIVATE KEY")
    )
    consumer = Consumer(
        {"bootstrap.servers": secured.broker.address, "group.id": fresh, "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([f"out-{number}-{fresh}" for number in range(len(ways))])
    arrived: set[str] = set()

    def all_arrived() -> bool:
        arrived.update(message.value().decode() for message in consumer.consume(100, 0.2))  # type: ignore[union-attr]
        return arrived == set(started)

    eventually(all_arrived, "every way has brought its record", 30)
    consumer.close()

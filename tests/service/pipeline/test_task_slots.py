"""A cluster: too few task slots are an error before anything starts, and its executors have what a session has."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from tailrace.dev.broker import Broker
from tailrace.kafka.brokers import Brokers
from tailrace.kafka.topics import Topics

PROGRAM = """
import sys
from pathlib import Path
from confluent_kafka import Consumer, Producer, TopicPartition
from pyspark.sql import functions as F
from tailrace import App
from tailrace.dev import jars
from tailrace.errors import TooFewSlots
from tailrace.kafka.brokers import Brokers
from tailrace.pipeline.changelog import changelog
from tailrace.pipeline.spark import functions, session
from tailrace.pipeline.spark.spark_kafka import SparkKafka
from tailrace.pipeline.view import conflation
from tailrace.pipeline.lifecycle.generations import Build
servers, topic, events, counts, place = sys.argv[1:]
session.SETTINGS["spark.shuffle.streaming.networkBufferMaxWaitTimeMs"] = "3600000"
session._PATIENCE = 5
given = {"state_partitions": 1, "jars": jars.ensure("spark"), "quiet": True, "master": "local-cluster[1,2,1024]"}
try:
    session.start_session("slots", slots=3, **given)
except TooFewSlots as error:
    print(error)
session._PATIENCE = 120
spark = session.start_session("slots", slots=2, **given)
schema = spark.createDataFrame([], "n long").schema
texts = spark.range(4).repartition(2).select(F.concat(F.lit('{"n":'), "id", F.lit("}")).cast("binary").alias("text"))
print("sum", texts.select(functions.json(F.col("text"), schema).alias("it")).agg(F.sum("it.n")).collect()[0][0])
keyed = spark.range(40).coalesce(1).select((F.col("id") % 3).alias("k"), "id", F.lit(1).cast("long").alias("n"))
newest = conflation.conflated(keyed, ["k"], order=[F.col("id")], count="n", highest=[])
print("newest", sorted((row.id, row.n) for row in newest.collect()))
made = spark.range(40).select("id", F.lit(1).cast("long").alias("_version"), F.now().alias("_timestamp"))
made.write.parquet(place + "/rows")
rows = spark.readStream.schema("id long, _version long, _timestamp timestamp").parquet(place + "/rows")
app = App("movies")
view = app.latest("ids", app.table("ids", key="id", value="n long"), to=topic)
writer = changelog.write_batches(
    changelog.unwritten_changes(rows, ("id",)), SparkKafka(Brokers(servers)), Build(view, 1, Path()), conflate=True
)
writer.option("checkpointLocation", place + "/checkpoint").trigger(availableNow=True).start().awaitTermination()
kafka = {"kafka.bootstrap.servers": servers, "subscribe": events, "startingOffsets": "earliest"}
counted = spark.readStream.format("kafka").options(**kafka).load().groupBy("key").count()
counted = counted.select("key", F.col("count").cast("string").alias("value")).writeStream.outputMode("update")
kafka = {"kafka.bootstrap.servers": servers, "topic": counts, "checkpointLocation": place + "/counts"}
query = counted.format("kafka").options(**kafka).trigger(realTime="10 minutes").start()
producer = Producer({"bootstrap.servers": servers})
consumer = Consumer({"bootstrap.servers": servers, "group.id": "g"})
consumer.assign([TopicPartition(counts, 0, 0)])
for _ in range(3):
    producer.produce(events, key="k")
    producer.flush()
    found = consumer.poll(60)
    print("alone", found and found.value())
query.stop()
spark.stop()
"""


TOPIC = "executors-write-this"
EVENTS = "executors-count-this"
COUNTS = "executors-counted-this"


@pytest.fixture(scope="module")
def done(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> subprocess.CompletedProcess[str]:
    """One process, and one JVM, for all: a cluster takes long to start."""
    for topic in (TOPIC, EVENTS, COUNTS):
        Topics(Brokers(broker.address)).create(topic, partitions=1, replication=1, config={})
    place: Path = tmp_path_factory.mktemp("cluster")
    command = [sys.executable, "-c", PROGRAM, broker.address, TOPIC, EVENTS, COUNTS, str(place)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


def test_a_cluster_with_too_few_task_slots_is_told_before_anything_starts(
    done: subprocess.CompletedProcess[str],
) -> None:
    assert "expected 3 task slots on local-cluster" in done.stdout and "got 2" in done.stdout, done.stderr
    assert "--state-partitions" in done.stdout


def test_executors_of_a_cluster_have_our_functions(done: subprocess.CompletedProcess[str]) -> None:
    assert "sum 6" in done.stdout, done.stderr


def test_executors_of_a_cluster_drop_outdated_rows(done: subprocess.CompletedProcess[str]) -> None:
    assert "newest [(37, 13), (38, 13), (39, 14)]" in done.stdout, done.stderr


def test_executors_of_a_cluster_write_changelogs(broker: Broker, done: subprocess.CompletedProcess[str]) -> None:
    consumer = Consumer({"bootstrap.servers": broker.address, "group.id": "g"})
    _, end = consumer.get_watermark_offsets(TopicPartition(TOPIC, 0), timeout=30)
    consumer.close()
    assert end == 40, done.stderr


def test_a_row_that_comes_alone_does_not_wait_for_others_in_the_shuffle(done: subprocess.CompletedProcess[str]) -> None:
    """Not even where a buffer may be held for an hour; nor does a batch end meanwhile."""
    assert [line for line in done.stdout.splitlines() if line.startswith("alone")] == [
        "alone b'1'",
        "alone b'2'",
        "alone b'3'",
    ], done.stderr

"""The views of the benchmark in Spark alone, as somebody would write them by hand.

python plain_spark.py KIND --kafka … --prefix … --output … --checkpoint … --mode … --interval … --jars …

Rows have the same columns as Tailrace's and no headers. The settings are those that real-time mode needs and those that
make it fast.
"""

from __future__ import annotations

import argparse
import signal
import sys
import threading
import time

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

STATE_PARTITIONS = 2
# Records of a micro-batch, with and without state.
BATCH = 2_000_000
BATCH_WITHOUT_STATE = 8_000_000
WITHOUT_STATE = ("latest", "feed")
# What makes the source fast, and the sink in each mode.
FETCHED_WHOLE = {"kafka.max.poll.records": "50000", "kafka.max.partition.fetch.bytes": str(2 * 1024 * 1024)}
AT_ONCE = {"kafka.linger.ms": "0", "kafka.batch.size": str(64 * 1024)}
TOGETHER = {"kafka.linger.ms": "50", "kafka.batch.size": str(256 * 1024)}
SETTINGS = {
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.checkpointFormatVersion": "2",
    "spark.sql.streaming.stateStore.rocksdb.trackTotalNumberOfRows": "false",
    "spark.driver.extraJavaOptions": "-XX:+UseParallelGC",
    "spark.shuffle.streaming.networkBufferMaxWaitTimeMs": "1",
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    "spark.sql.shuffle.partitions": str(STATE_PARTITIONS),
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.ansi.enabled": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.memory.offHeap.enabled": "true",
    "spark.memory.offHeap.size": "512m",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}


class Topics:
    """Reads the topics of a run."""

    def __init__(self, session: SparkSession, flags: argparse.Namespace, at_most: int | None) -> None:
        self._session = session
        self._flags = flags
        self._at_most = at_most

    def read(self, *names: str) -> DataFrame:
        """The records of some topics, from the earliest on."""
        source = (
            self._session.readStream.format("kafka")
            .option("kafka.bootstrap.servers", self._flags.kafka)
            .option("subscribe", ",".join(self._flags.prefix + name for name in names))
            .option("startingOffsets", "earliest")
            .option("failOnDataLoss", "false")
            .options(**FETCHED_WHOLE)
        )
        if self._at_most is not None:
            source = source.option("maxOffsetsPerTrigger", self._at_most)
        return source.load()

    def parsed(self, name: str, schema: str) -> DataFrame:
        """The fields of a topic's JSON values, and the record key as text."""
        text = F.col("value").cast("string")
        records = self.read(name)
        return records.select(F.col("key").cast("string").alias("_key"), F.from_json(text, schema).alias("e")).select(
            "_key", "e.*"
        )


def aggregate(topics: Topics) -> DataFrame:
    """Average and count per movie."""
    ratings = topics.parsed("ratings", "movie_id long, rating double").where("movie_id is not null")
    rows = ratings.groupBy("movie_id").agg(F.avg("rating").alias("rating"), F.count("*").alias("ratings"))
    return rows.select(F.col("movie_id").cast("string").alias("key"), _json("movie_id", "rating", "ratings"))


def latest(topics: Topics) -> DataFrame:
    """The last position of each vehicle: the record key is the row's key, so nothing has to be kept."""
    positions = topics.parsed("positions", "lat double, lon double").withColumnRenamed("_key", "vehicle")
    return positions.select(F.col("vehicle").alias("key"), _json("vehicle", "lat", "lon"))


def window(topics: Topics) -> DataFrame:
    """Average and count per movie and minute."""
    ratings = topics.parsed("ratings", "movie_id long, rating double, at timestamp").where("movie_id is not null")
    rows = (
        ratings.withWatermark("at", "10 minutes")
        .groupBy("movie_id", F.window("at", "1 minute").alias("w"))
        .agg(F.avg("rating").alias("rating"), F.count("*").alias("ratings"))
        .select("movie_id", F.col("w.start").alias("window_start"), "rating", "ratings")
    )
    key = F.to_json(F.array(F.col("movie_id").cast("string"), F.col("window_start").cast("string")))
    return rows.select(key.alias("key"), _json("movie_id", "window_start", "rating", "ratings"))


def join(topics: Topics) -> DataFrame:
    """Title and score of each movie that has both; real-time mode has no join of streams, so it is a union."""
    records = topics.read("movies", "scores")
    text, is_title = F.col("value").cast("string"), F.col("topic").endswith("movies")
    tagged = records.select(
        F.col("key").cast("string").alias("movie_id"),
        F.when(is_title, F.struct("offset", F.from_json(text, "title string").alias("v"))).alias("movie"),
        F.when(~is_title, F.struct("offset", F.from_json(text, "score double").alias("v"))).alias("score"),
    )
    rows = (
        tagged.groupBy("movie_id")
        .agg(F.max_by("movie.v", "movie.offset").alias("movie"), F.max_by("score.v", "score.offset").alias("score"))
        .where("movie is not null and score is not null")
        .select("movie_id", "movie.title", "score.score")
    )
    return rows.select(F.col("movie_id").alias("key"), _json("movie_id", "title", "score"))


def feed(topics: Topics) -> DataFrame:
    """The notices among all events, by client."""
    events = topics.parsed("events", "client_id string, kind string, number long").where("kind = 'notice'")
    return events.select(F.col("client_id").alias("key"), _json("client_id", "kind", "number"))


KINDS = {"aggregate": aggregate, "latest": latest, "window": window, "join": join, "feed": feed}


def _json(*names: str) -> Column:
    return F.to_json(F.struct(*names), {"ignoreNullFields": "false"}).alias("value")


def main() -> int:
    """Run one view until SIGTERM."""
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=KINDS)
    for name in ("kafka", "prefix", "output", "checkpoint", "interval", "jars"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--mode", choices=("real-time", "micro-batch", "catch-up"), required=True)
    parser.add_argument("--slots", type=int, default=8)
    flags = parser.parse_args()
    stopping = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())
    builder = SparkSession.Builder().master(f"local[{flags.slots}]").appName("plain")
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    session = builder.config("spark.driver.extraClassPath", flags.jars).getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    phases = ["micro-batch", "real-time"] if flags.mode == "catch-up" else [flags.mode]
    at_most = BATCH_WITHOUT_STATE if flags.kind in WITHOUT_STATE else BATCH
    for phase in phases:
        topics = Topics(session, flags, None if phase == "real-time" else at_most)
        writer = (
            KINDS[flags.kind](topics)
            .writeStream.format("kafka")
            .outputMode("update")
            .option("kafka.bootstrap.servers", flags.kafka)
            .option("topic", flags.output)
            .options(**(AT_ONCE if phase == "real-time" else TOGETHER))
            .option("checkpointLocation", flags.checkpoint)
        )
        if phase == "real-time":
            writer = writer.trigger(realTime=flags.interval)  # type: ignore[call-overload]
        elif flags.mode == "catch-up":
            writer = writer.trigger(availableNow=True)
        query = writer.start()
        while query.isActive and not stopping.is_set():
            time.sleep(0.05)
        if (error := query.exception()) is not None:
            print(error, file=sys.stderr)
            return 1
        if stopping.is_set():
            query.stop()
            break
    session.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())

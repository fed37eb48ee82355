"""What the archive of Spark's classes is made from: a JVM that does once what a pipeline does, without Kafka.

python -m tailrace.pipeline.spark.training FILE JAR…
"""

from __future__ import annotations

import os
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped, unused-ignore]
from pyspark.find_spark_home import _find_spark_home
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from tailrace.pipeline.spark.functions import json
from tailrace.pipeline.spark.session import start_session

# Classes that only a query on Kafka comes to: packages, and the beginnings of the names of the jars that hold them.
_KAFKA = (
    ("kafka-clients", "org/apache/kafka/"),
    ("spark-sql-kafka", "org/apache/spark/sql/kafka010/"),
    ("spark-token-provider", "org/apache/spark/kafka010/"),
    ("spark-sql_", "org/apache/spark/sql/execution/streaming/"),
    ("spark-core_", "org/apache/spark/shuffle/streaming/"),
)

_BATCHES = 3


def train(file: Path, jars: Sequence[Path]) -> None:
    """Run a stateless and a stateful query, and load the rest by name; the JVM writes the archive when it ends."""
    with tempfile.TemporaryDirectory(prefix="tailrace-training-", ignore_cleanup_errors=True) as directory:
        scratch = Path(directory)
        session = start_session("training", slots=2, state_partitions=1, jars=jars, scratch=scratch, archive=file)
        process = session.sparkContext._gateway.proc  # type: ignore[union-attr]
        _query(session, scratch / "checkpoint")
        _load(session, [*jars, *Path(_find_spark_home(), "jars").glob("*.jar")])
        session.stop()
        process.stdin.close()
        if process.wait() != 0:
            sys.exit(f"Java ended with code {process.returncode}")


def _query(session: SparkSession, checkpoint: Path) -> None:
    ticks = session.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).load()
    schema = StructType().add("movie_id", "long").add("rating", "double")
    data = F.to_json(F.struct((F.col("value") % 3).alias("movie_id"), F.rand().alias("rating"))).cast("binary")
    rows = ticks.select(json(data, schema).alias("e")).groupBy("e.movie_id").agg(F.avg("e.rating"), F.count("*"))
    writer = rows.writeStream.format("noop").outputMode("update").option("checkpointLocation", str(checkpoint))
    query = writer.start()
    while query.lastProgress is None or query.lastProgress.batchId < _BATCHES:
        query.awaitTermination(1)
    query.stop()


def _load(session: SparkSession, jars: Sequence[Path]) -> None:
    jvm = session.sparkContext._jvm
    assert jvm is not None  # noqa: S101
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    for name in _classes(jars):
        # Some need libraries that nobody has.
        with suppress(Py4JJavaError):
            jvm.java.lang.Class.forName(name, False, loader)


def _classes(jars: Sequence[Path]) -> Iterator[str]:
    for jar in jars:
        packages = [package for beginning, package in _KAFKA if jar.name.startswith(beginning)]
        if packages:
            with zipfile.ZipFile(jar) as archive:
                for name in archive.namelist():
                    if name.endswith(".class") and name.startswith(tuple(packages)):
                        yield name.removesuffix(".class").replace("/", ".")


if __name__ == "__main__":
    os.environ.pop("SPARK_SUBMIT_OPTS", None)
    train(Path(sys.argv[1]), [Path(jar) for jar in sys.argv[2:]])

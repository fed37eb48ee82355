"""A cluster: too few task slots are an error before anything starts, and its executors have what a session has."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
from pyspark.sql import functions as F
from tailrace.errors import TooFewSlots
from tailrace.pipeline import functions, session
session._PATIENCE = 5
given = {"state_partitions": 1, "jars": (), "quiet": True, "master": "local-cluster[1,2,1024]"}
try:
    session.start_session("slots", slots=3, **given)
except TooFewSlots as error:
    print(error)
session._PATIENCE = 120
spark = session.start_session("slots", slots=2, **given)
schema = spark.createDataFrame([], "n long").schema
texts = spark.range(4).repartition(2).select(F.concat(F.lit('{"n":'), "id", F.lit("}")).cast("binary").alias("text"))
print("sum", texts.select(functions.json(F.col("text"), schema).alias("it")).agg(F.sum("it.n")).collect()[0][0])
spark.stop()
"""


@pytest.fixture(scope="module")
def done() -> subprocess.CompletedProcess[str]:
    """One process, and one JVM, for both: a cluster takes long to start."""
    return subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=300, check=False)


def test_a_cluster_with_too_few_task_slots_is_told_before_anything_starts(
    done: subprocess.CompletedProcess[str],
) -> None:
    assert "expected 3 task slots on local-cluster" in done.stdout and "got 2" in done.stdout, done.stderr
    assert "--state-partitions" in done.stdout


def test_executors_of_a_cluster_have_our_functions(done: subprocess.CompletedProcess[str]) -> None:
    assert "sum 6" in done.stdout, done.stderr

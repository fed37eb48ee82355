"""Plans without some of the pipeline's Java parts, in a session that has them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession

from tailrace.pipeline.spark.jvm_parts import ACTIVE, active, told


@contextmanager
def without(spark: SparkSession, *parts: str) -> Iterator[None]:
    """Make plans without these parts meanwhile."""
    before = active(spark)
    spark.conf.set(ACTIVE, told(before - set(parts)))
    try:
        yield
    finally:
        spark.conf.set(ACTIVE, told(before))

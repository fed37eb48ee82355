"""A JVM that has ended says why, and what to do."""

from __future__ import annotations

from tailrace.pipeline.spark.session import ended


def test_a_jvm_whose_memory_was_full_is_told_with_the_setting_for_more() -> None:
    assert "process 7" in ended(7, 52) and "memory was full" in ended(7, 52)
    assert "SPARK_DRIVER_MEMORY=4g" in ended(7, 52)


def test_a_jvm_that_was_killed_is_told_with_its_code() -> None:
    assert "ended with code -9" in ended(7, -9) and "start the pipeline again" in ended(7, -9).lower()

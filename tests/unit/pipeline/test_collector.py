"""The garbage collector of Spark's JVM is ours only where the user has chosen none."""

from __future__ import annotations

from pathlib import Path

import pytest

from tailrace.pipeline.spark.memory import collector


def test_the_collector_is_chosen_where_nothing_else_is_said(tmp_path: Path) -> None:
    (tmp_path / "spark-defaults.conf").write_text("spark.driver.defaultJavaOptions -Dfile.encoding=UTF-8\n")
    environment = {"JAVA_TOOL_OPTIONS": "-Dfile.encoding=UTF-8", "SPARK_CONF_DIR": str(tmp_path)}
    assert collector(environment) == ["-XX:+UseParallelGC"]


@pytest.mark.parametrize(
    "name", ["JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS", "SPARK_SUBMIT_OPTS", "PYSPARK_SUBMIT_ARGS"]
)
def test_a_collector_that_the_environment_names_stays_alone(name: str) -> None:
    assert collector({name: "-Xlog:gc -XX:+UseG1GC"}) == []


def test_a_collector_that_the_settings_of_spark_name_stays_alone(tmp_path: Path) -> None:
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "spark-defaults.conf").write_text("spark.driver.defaultJavaOptions -XX:+UseZGC\n")
    assert collector({"SPARK_HOME": str(tmp_path)}) == []


@pytest.mark.parametrize(
    "environment",
    [{"SPARK_DRIVER_MEMORY": "16g"}, {"PYSPARK_SUBMIT_ARGS": "--driver-memory 16g pyspark-shell"}],
)
def test_a_heap_of_another_size_keeps_the_collector_of_the_jvm(environment: dict[str, str]) -> None:
    assert collector(environment) == []

"""Checkpoint files on a local disk: as Hadoop makes them, and without a process for each."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark import SparkContext
from pyspark.sql import SparkSession


def files(spark: SparkSession, directory: Path) -> tuple[Any, Any]:
    """The JVM, and the file system that Spark writes checkpoints with."""
    jvm: Any = SparkContext._jvm
    path = jvm.org.apache.hadoop.fs.Path(str(directory))
    return jvm, path.getFileSystem(spark.sparkContext._jsc.hadoopConfiguration())


def write(jvm: Any, system: Any, file: Path, data: bytes) -> None:
    out = system.create(jvm.org.apache.hadoop.fs.Path(str(file)), True)
    out.write(bytearray(data))
    out.close()


def read(jvm: Any, system: Any, file: Path) -> bytes:
    given = system.open(jvm.org.apache.hadoop.fs.Path(str(file)))
    try:
        return bytes(jvm.org.apache.commons.io.IOUtils.toByteArray(given))
    finally:
        given.close()


@pytest.mark.parametrize("mode", ["0640", "0600", "0755", "1777"])
def test_a_file_gets_the_permissions_that_it_is_to_have(spark: SparkSession, tmp_path: Path, mode: str) -> None:
    jvm, system = files(spark, tmp_path)
    assert system.getClass().getName() == "tailrace.LocalFiles"
    write(jvm, system, tmp_path / "file", b"x")
    system.setPermission(
        jvm.org.apache.hadoop.fs.Path(str(tmp_path / "file")), jvm.org.apache.hadoop.fs.permission.FsPermission(mode)
    )
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == int(mode, 8)


def test_no_process_is_started_for_a_file(spark: SparkSession, tmp_path: Path) -> None:
    jvm, system = files(spark, tmp_path)
    pid = jvm.java.lang.ProcessHandle.current().pid()

    def faults_of_children() -> int:
        """Each process that the JVM has started and that has ended adds some hundred."""
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[8])

    before = faults_of_children()
    for number in range(20):
        write(jvm, system, tmp_path / f"{number}", b"x")
    assert faults_of_children() == before


def test_a_damaged_file_is_noticed(spark: SparkSession, tmp_path: Path) -> None:
    jvm, system = files(spark, tmp_path)
    write(jvm, system, tmp_path / "file", b"what was written")
    assert read(jvm, system, tmp_path / "file") == b"what was written"
    (tmp_path / "file").write_bytes(b"what was wrotten")
    with pytest.raises(Py4JJavaError, match="Checksum"):
        read(jvm, system, tmp_path / "file")

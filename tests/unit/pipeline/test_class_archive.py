"""The archive of Spark's classes is taken where it fits, and nowhere else."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from tailrace.errors import InstallError
from tailrace.pipeline.spark.archive import archive_file, archive_options, archives, make_archive


def made(environment: dict[str, str], *jars: Path) -> Path:
    file = archive_file(jars, environment)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(b"classes")
    return file


def test_an_archive_is_taken_where_there_is_one(tmp_path: Path) -> None:
    environment = {"XDG_CACHE_HOME": str(tmp_path)}
    assert archive_options((), environment) == []
    file = made(environment)
    assert f'"-XX:SharedArchiveFile={file}"' in archive_options((), environment)


def test_an_archive_of_other_jars_or_of_jars_that_have_changed_is_left_alone(tmp_path: Path) -> None:
    environment = {"XDG_CACHE_HOME": str(tmp_path)}
    jar = tmp_path / "some.jar"
    jar.write_bytes(b"1")
    made(environment, jar)
    assert archive_options((jar,), environment) != []
    assert archive_options((), environment) == []
    jar.write_bytes(b"12")
    assert archive_options((jar,), environment) == []


def test_an_archive_of_another_java_is_left_alone(tmp_path: Path) -> None:
    environment = {"XDG_CACHE_HOME": str(tmp_path)}
    made(environment)
    assert archive_options((), environment | {"JAVA_HOME": str(tmp_path / "java")}) == []


@pytest.mark.parametrize("name", ["JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS", "SPARK_SUBMIT_OPTS"])
def test_an_archive_that_the_user_names_stays_alone(tmp_path: Path, name: str) -> None:
    environment = {"XDG_CACHE_HOME": str(tmp_path)}
    made(environment)
    assert archive_options((), environment | {name: "-Xlog:gc -XX:SharedArchiveFile=own.jsa"}) == []


def test_an_archive_that_nobody_has_used_for_a_month_is_removed_when_another_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    environment = {"XDG_CACHE_HOME": str(tmp_path)}
    old, used = tmp_path / "old.jar", tmp_path / "used.jar"
    for jar in (old, used):
        jar.write_bytes(b"")
        os.utime(made(environment, jar), (0, time.time() - 31 * 86_400))
    archive_options((used,), environment)
    # Whatever answers in place of Python writes no archive.
    monkeypatch.setattr("sys.executable", "/bin/true")
    with pytest.raises(
        InstallError, match="expected Java to write an archive of Spark's classes, got: nothing was said"
    ):
        make_archive(())
    assert list(archives(environment).iterdir()) == [archive_file((used,), environment)]

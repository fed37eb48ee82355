"""`tailrace prepare`: later starts of Spark take its classes from an archive."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tailrace.dev import jars
from tailrace.pipeline.spark.archive import archive_file, archives

PATIENCE = 600
STARTED = """
import sys
from pathlib import Path
from tailrace.pipeline.spark.session import Jvm, start_session
found = [Path(jar) for jar in sys.argv[2:]]
session = start_session("archive", slots=1, state_partitions=1, jars=found, scratch=Path(sys.argv[1]))
print(session.range(3).count(), Path(f"/proc/{Jvm(session).pid}/maps").read_text())
"""


def started(scratch: Path, *needed: Path, **more: str) -> subprocess.CompletedProcess[str]:
    scratch.mkdir()
    command = [sys.executable, "-c", STARTED, str(scratch), *map(str, needed)]
    environment = {**os.environ, **more}
    return subprocess.run(
        command, capture_output=True, text=True, timeout=PATIENCE, check=True, env=environment, cwd=scratch
    )


def test_after_a_preparation_spark_takes_its_classes_from_the_archive(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tailrace", "prepare"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=True)
    needed = jars.ensure("spark")
    file = archive_file(needed, os.environ)
    assert str(file) in done.stdout
    assert str(file) in started(tmp_path / "scratch", *needed).stdout, "the JVM has not mapped the archive"


def test_an_archive_that_does_not_fit_is_passed_over_in_silence(tmp_path: Path) -> None:
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    archives(environment).mkdir(parents=True)
    file = archive_file((), environment)
    file.write_bytes(b"no archive at all" * 10_000)
    done = started(tmp_path / "scratch", XDG_CACHE_HOME=str(tmp_path))
    assert done.stdout.startswith("3 ") and str(file) not in done.stdout
    assert "rchive" not in done.stderr and "cds" not in done.stderr

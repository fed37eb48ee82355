"""Parts of the pipeline that are Java: one that fails is left out, and a plan of Spark's gives the same rows."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tailrace.pipeline.spark.jvm_parts import PARTS, SOURCES

UNCOMPILABLE = {
    "FlatJson": "org.apache.spark.sql.catalyst.NoLongerThere",
    "LocalFiles": "org.apache.hadoop.fs.NoLongerThere",
}
UNLOADABLE = ("Overflow", "Conflation")
IN_A_SESSION_WITH_BROKEN_SOURCES = """
import logging, sys
from pathlib import Path
from tailrace.dev import jars
from tailrace.pipeline.spark.jvm_parts import active, told
from tailrace.pipeline.spark.session import start_session
logging.basicConfig(format="%(levelname)s %(message)s")
started = {"slots": 1, "state_partitions": 1, "jars": jars.ensure("spark"), "quiet": True}
session = start_session("broken", sources=Path(sys.argv[1]), **started)
print("parts", told(active(session)))
sys.path.insert(0, sys.argv[2])
from tailrace.pipeline.view.dry_run import rows
from tailrace.pipeline.view import dry_run
dry_run._session = lambda: session
from tailrace import App
from tailrace.testing import Record
app = App("sums")
events = app.topic("events", value="k string, n long, d double")
sums = app.view("sums", events, key="k", columns={"n": "sum(n)", "twice": "max(n * 2)", "d": "max(d)"})
last = app.latest("last", events, key="k")
sent = [b'{"k":"a","n":%d}' % (2**63 - 1), b'{"k":"a","n":1,"d":1.5}', b'{"k":"a","n":1} more', b'{"k":"b","d":1e400}']
for view in (sums, last):
    for batches in (False, True):
        print("rows", rows(view, {"events": [Record(value) for value in sent]}, batches=batches))
"""


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> subprocess.CompletedProcess[str]:
    """A session whose sources are broken; one process for all tests."""
    sources = tmp_path_factory.mktemp("sources")
    shutil.copytree(SOURCES, sources, dirs_exist_ok=True)
    for name, missing in UNCOMPILABLE.items():
        file = sources / f"{name}.java"
        file.write_text(file.read_text().replace("package tailrace;", f"package tailrace;\nimport {missing};", 1))
    for name in UNLOADABLE:
        file = sources / f"{name}.java"
        head, brace, rest = file.read_text().partition(f"public final class {name} ")
        declared, _, body = rest.partition("{")
        failing = '{ private static final int GONE = Integer.parseInt("gone");'
        file.write_text(head + brace + declared + failing + body)
    command = [sys.executable, "-c", IN_A_SESSION_WITH_BROKEN_SOURCES, str(sources), str(Path(__file__).parents[2])]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


def test_a_part_that_does_not_compile_or_load_is_left_out_with_one_warning_and_the_others_stay(
    broken: subprocess.CompletedProcess[str],
) -> None:
    assert "parts sink,shuffle" in broken.stdout.splitlines(), broken.stderr
    warnings = [line for line in broken.stderr.splitlines() if line.startswith("WARNING part ")]
    assert [line.split()[2] for line in warnings] == ["json", "conflation", "files", "overflow"], broken.stderr
    whys = (
        "FlatJson.java does not compile",
        "Conflation does not load",
        "LocalFiles.java does not",
        "Overflow does not",
    )
    for line, name, why in zip(warnings, ("json", "conflation", "files", "overflow"), whys, strict=True):
        assert why in line and line.endswith(PARTS[name].cost)


def test_without_parts_that_fail_rows_are_what_they_are_with_them(broken: subprocess.CompletedProcess[str]) -> None:
    rows = [line.removeprefix("rows ") for line in broken.stdout.splitlines() if line.startswith("rows ")]
    summed = "[{'k': 'a', 'n': None, 'twice': 2, 'd': 1.5}]"
    assert rows == [summed, summed, *["[{'k': 'a', 'n': 1, 'd': 1.5}]"] * 2], broken.stderr


def test_every_kind_of_view_holds_what_the_fold_holds_without_any_part() -> None:
    """In a process of its own, because a session has its parts from its start."""
    here = Path(__file__).parent
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "TAILRACE_"))}
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-x",
        "-p",
        "no:cacheprovider",
        "--written-examples",
        "-k",
        "not moved",
    ]
    command += [str(here / "test_kinds_in_a_dry_run.py"), str(here / "test_overflow.py")]
    environment["TAILRACE_JVM_PARTS"] = "none"
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]

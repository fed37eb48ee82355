"""One pipeline per checkpoint directory, also after the first was killed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tailrace.errors import CheckpointInUse
from tailrace.pipeline.lifecycle.lock import CheckpointLock


def test_a_second_pipeline_is_refused_with_the_id_of_the_first(tmp_path: Path) -> None:
    first = CheckpointLock(tmp_path)
    with pytest.raises(CheckpointInUse, match=str(os.getpid())) as refused:
        CheckpointLock(tmp_path)
    assert "Only pipelines of one host are kept apart" in str(refused.value) and "\n" not in str(refused.value)
    first.release()
    CheckpointLock(tmp_path).release()


def test_a_jvm_that_outlives_its_killed_pipeline_keeps_the_next_one_out(tmp_path: Path) -> None:
    killed = "import os, sys, pathlib, signal; from tailrace.pipeline.lifecycle.lock import CheckpointLock; "
    killed += (
        "CheckpointLock(pathlib.Path(sys.argv[1])).keep_for(int(sys.argv[2])); os.kill(os.getpid(), signal.SIGKILL)"
    )
    jvm = subprocess.Popen([sys.executable, "-c", "input()", "org.apache.spark"], stdin=subprocess.PIPE)
    try:
        subprocess.run([sys.executable, "-c", killed, str(tmp_path), str(jvm.pid)], check=False)
        with pytest.raises(CheckpointInUse, match=str(jvm.pid)):
            CheckpointLock(tmp_path, patience=0.2)
    finally:
        jvm.communicate(b"\n")
    CheckpointLock(tmp_path, patience=0.2).release()


def test_a_process_id_that_was_given_to_another_program_keeps_nobody_out(tmp_path: Path) -> None:
    other = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        (tmp_path / ".lock").write_text(f"1 {other.pid}")
        CheckpointLock(tmp_path, patience=0.2).release()
    finally:
        other.communicate(b"\n")

"""A cluster with too few task slots is an error before anything starts."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import sys
from tailrace.errors import TooFewSlots
from tailrace.pipeline import session
session._PATIENCE = 5
try:
    session.start_session("slots", slots=3, state_partitions=1, jars=(), quiet=True, master="local-cluster[1,2,1024]")
except TooFewSlots as error:
    print(error)
"""


def test_a_cluster_with_too_few_task_slots_is_told_before_anything_starts() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=300, check=True)
    assert "expected 3 task slots on local-cluster" in done.stdout and "got 2" in done.stdout, done.stderr
    assert "--state-partitions" in done.stdout

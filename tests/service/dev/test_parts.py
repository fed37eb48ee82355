"""Parts: they end when told to, say why when they end by themselves, and leave nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tailrace.dev.parts import Part
from tailrace.errors import PartDied

# Prints the ids of itself and of a child, and sleeps.
FAMILY = ["sh", "-c", "sleep 600 & echo $$ $!; wait"]


def alive(pid: int) -> bool:
    """Whether a process runs; one that has ended and waits to be reaped does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def wait_for(log: Path, count: int) -> list[int]:
    """The numbers in a log, once it has so many."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        if log.exists() and len(found := log.read_text().split()) >= count:
            return [int(text) for text in found]
        time.sleep(0.01)
    raise AssertionError(f"{log} has no {count} numbers")


def assert_gone(pids: list[int]) -> None:
    deadline = time.monotonic() + 10
    while any(map(alive, pids)) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not any(map(alive, pids))


def test_stop_ends_the_process_and_what_it_started(tmp_path: Path) -> None:
    part = Part("family", FAMILY, tmp_path / "family.log")
    pids = wait_for(part.log, 2)
    assert pids[0] == part.pid
    part.stop()
    assert_gone(pids)
    part.check()


def test_a_process_that_ignores_sigterm_is_killed_after_the_grace(tmp_path: Path) -> None:
    part = Part("stubborn", ["sh", "-c", "trap '' TERM; echo 1; while :; do sleep 0.1; done"], tmp_path / "log")
    wait_for(part.log, 1)
    part.stop(grace=0.3)
    assert_gone([part.pid])


def test_a_part_that_dies_is_named_with_its_code_and_the_end_of_its_log(tmp_path: Path) -> None:
    script = "for i in $(seq 1 40); do echo line $i; done; exit 3"
    part = Part("pipeline", ["sh", "-c", script], tmp_path / "pipeline.log")
    with pytest.raises(PartDied) as caught:
        part.wait(lambda: False, 20)
    text = str(caught.value)
    assert text.startswith("pipeline ended with exit code 3; the end of its log:\n    line 26\n")
    assert text.endswith(f"    line 40\nthe whole log: {part.log}")


def test_a_part_that_is_killed_says_by_what(tmp_path: Path) -> None:
    part = Part("gateway", ["sleep", "600"], tmp_path / "log")
    os.kill(part.pid, signal.SIGKILL)
    with pytest.raises(PartDied, match="gateway was killed by SIGKILL"):
        part.wait(lambda: False, 20)


def test_a_part_that_dies_takes_what_it_started_with_it(tmp_path: Path) -> None:
    part = Part("family", FAMILY, tmp_path / "log")
    pids = wait_for(part.log, 2)
    os.kill(part.pid, signal.SIGKILL)
    with pytest.raises(PartDied):
        part.wait(lambda: False, 20)
    assert_gone(pids)


def test_a_part_that_is_not_ready_in_time_is_reported(tmp_path: Path) -> None:
    part = Part("slow", ["sleep", "600"], tmp_path / "log")
    with pytest.raises(PartDied, match=r"slow was not ready after 0 s; the end of its log:\n    \(empty\)"):
        part.wait(lambda: False, 0.1)
    part.kill()


def test_a_part_that_may_finish_is_no_failure(tmp_path: Path) -> None:
    part = Part("also", ["true"], tmp_path / "log", may_finish=True)
    while part.running:
        time.sleep(0.01)
    part.check()


def test_a_command_that_does_not_exist_is_named(tmp_path: Path) -> None:
    part = Part("also", ["no-such-command"], tmp_path / "log")
    with pytest.raises(PartDied, match=r"(?s)exit code 127.*no-such-command: not found"):
        part.wait(lambda: False, 20)


def test_parts_do_not_outlive_a_parent_killed_with_sigkill(tmp_path: Path) -> None:
    program = f"""
import time
from pathlib import Path
from tailrace.dev.parts import Part
part = Part("family", {FAMILY!r}, Path({str(tmp_path / "log")!r}))
time.sleep(600)
"""
    parent = subprocess.Popen([sys.executable, "-c", program])
    pids = wait_for(tmp_path / "log", 2)
    assert all(map(alive, pids))
    parent.kill()
    parent.wait()
    assert_gone(pids)


def test_nothing_but_the_command_has_its_environment_and_its_command_line(tmp_path: Path) -> None:
    part = Part("family", ["sleep", "600"], tmp_path / "log", environment={"PATH": os.defpath, "SECRET": "c4nary"})

    def holding() -> set[int]:
        """The processes of the part's session that show the secret, or the command."""
        found = set()
        for process in Path("/proc").glob("[0-9]*"):
            try:
                session = (process / "stat").read_text().rpartition(")")[2].split()[3]
                shown = (process / "environ").read_bytes() + (process / "cmdline").read_bytes()
            except OSError:
                continue
            if int(session) == part.pid and (b"c4nary" in shown or b"sleep" in shown):
                found.add(int(process.name))
        return found

    deadline = time.monotonic() + 20
    while holding() != {part.pid} and time.monotonic() < deadline:
        time.sleep(0.01)
    assert holding() == {part.pid}
    part.stop()

"""`tailrace dev` as a user runs it: what it prints, what it refuses, and that it leaves nothing behind."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from queue import Empty, Queue
from threading import Thread

import pytest

from listening import reachable
from running import PATIENCE
from tailrace.dev.data import opened
from tailrace.dev.ports import free_port

MOVIES = Path(__file__).parents[3] / "examples" / "movies"


class Dev:
    """A `tailrace dev` of the movies example."""

    def __init__(self, data: Path, *options: str, **variables: str) -> None:
        self.data = data
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tailrace", "dev", "movies:app", "--port", str(free_port()), *options],
            cwd=MOVIES,
            env={**os.environ, "TAILRACE_DATA": str(data), **variables},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._lines = Queue[str | None]()
        self._reader = Thread(target=self._read, daemon=True)
        self._reader.start()
        self.text = ""

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put(None)

    def until(self, pattern: str) -> re.Match[str]:
        """Read until a line matches."""
        deadline = time.monotonic() + PATIENCE
        while (line := self._line(deadline)) is not None:
            self.text += line
            if (match := re.search(pattern, line)) is not None:
                return match
        raise AssertionError(f"no {pattern!r} in:\n{self.text}")

    def _line(self, deadline: float) -> str | None:
        try:
            return self._lines.get(timeout=max(0.0, deadline - time.monotonic()))
        except Empty:
            return None

    def ended(self) -> int:
        """Read to the end; the exit code."""
        code = self._process.wait(PATIENCE)
        self._reader.join(PATIENCE)
        assert self._process.stdout is not None and not self._reader.is_alive()
        self._process.stdout.close()
        while not self._lines.empty():
            self.text += self._lines.get() or ""
        return code

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def processes(self) -> dict[int, str]:
        """The running processes of this run, found by its data directory in their environment."""
        mark = f"TAILRACE_DATA={self.data}\0".encode()
        found = {}
        for process in Path("/proc").glob("[0-9]*"):
            try:
                if mark in (process / "environ").read_bytes():
                    found[int(process.name)] = (process / "cmdline").read_text().replace("\0", " ")
            except OSError:
                continue
        return found

    def assert_passes_on(self, secret: bytes, *commands: str) -> None:
        """A secret is in no command line, and in the environment of these commands of Tailrace alone."""
        given = set()
        for pid, command in self.processes().items():
            assert secret.decode() not in command
            if pid != self._process.pid and secret in Path(f"/proc/{pid}/environ").read_bytes():
                given.add(command)
        assert all(any(f"tailrace {name} " in one for name in commands) for one in given), given
        assert given

    def assert_closed(self) -> None:
        """Nobody but this user gets into what has been written, and no other machine to what listens."""
        for path in (self.data, *self.data.rglob("*")):
            # Some are gone by now; the mode of a link says nothing.
            if path.exists() and not path.is_symlink():
                assert not path.stat().st_mode & 0o077, path
        assert reachable(self.processes().keys()) == set()

    def assert_gone(self) -> None:
        deadline = time.monotonic() + 10
        while self.processes() and time.monotonic() < deadline:
            time.sleep(0.05)
        assert self.processes() == {}


def kill_if_running(dev: Dev) -> None:
    dev.signal(signal.SIGKILL)
    dev.ended()


@pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")
def test_a_run_shows_its_stages_and_leaves_nothing_however_it_ends(tmp_path: Path) -> None:
    chosen = {"TAILRACE_REGISTRY": "http://ann:c4nary@127.0.0.1:1", "TAILRACE_SPARK_UI_PORT": str(free_port())}
    dev = Dev(tmp_path / "data", "--also", "python ratings.py", **chosen)
    try:
        row = dev.until(r"row +(http://\S+/views/rating-averages/\d+)$")[1]
        for stage in ("java", "jars", "kafka", "redis", "pipeline", "materializer", "gateway", "also"):
            assert re.search(rf"^✓ {stage} ", dev.text, re.MULTILINE), dev.text
        with urllib.request.urlopen(row, timeout=10) as answer:
            assert json.load(answer)["movie_id"] == int(row.rpartition("/")[2])
        dev.assert_passes_on(b"c4nary", "pipeline", "gateway")
        dev.assert_closed()
        page = f"http://127.0.0.1:{chosen['TAILRACE_SPARK_UI_PORT']}/api/v1/applications"
        with urllib.request.urlopen(page, timeout=10) as answer:
            assert json.load(answer)[0]["name"].startswith("tailrace ")
        pipeline = next(pid for pid, command in dev.processes().items() if "-m tailrace pipeline" in command)
        os.kill(pipeline, signal.SIGKILL)
        assert dev.ended() == 1
        assert "✗ pipeline was killed by SIGKILL; the end of its log:\n" in dev.text
        assert f"the whole log: {dev.data}/logs/pipeline.log" in dev.text
        dev.assert_gone()
    finally:
        kill_if_running(dev)

    second = Dev(dev.data)
    try:
        kept = second.until(r"row +(http://\S+/views/rating-averages/\d+)$")[1]
        assert kept.rpartition("/")[2].isdigit()
        second.signal(signal.SIGTERM)
        assert second.ended() == 0
        second.assert_gone()
    finally:
        kill_if_running(second)


@pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")
def test_a_killed_run_leaves_nothing_and_the_next_can_start(tmp_path: Path) -> None:
    dev = Dev(tmp_path / "data")
    dev.until("redis")
    dev.signal(signal.SIGKILL)
    dev.ended()
    dev.assert_gone()
    second = Dev(dev.data, "--fresh")
    second.until("redis")
    second.signal(signal.SIGINT)
    assert second.ended() == 0
    second.assert_gone()


def test_a_taken_port_is_refused_before_anything_starts(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        dev = Dev(tmp_path / "data", "--port", str(port))
        assert dev.ended() == 1
    assert dev.text == (
        f"tailrace: --port {port} on 127.0.0.1: Address already in use: "
        "stop what uses it, or choose another with --port\n"
    )
    assert not dev.data.exists()


def test_a_data_directory_in_use_is_refused(tmp_path: Path) -> None:
    with opened(tmp_path / "data"):
        dev = Dev(tmp_path / "data", "--fresh")
        assert dev.ended() == 1
    assert f"another `tailrace dev` (process {os.getpid()}) uses it" in dev.text


def test_a_command_that_can_not_be_read_is_refused(tmp_path: Path) -> None:
    dev = Dev(tmp_path / "data", "--also", "python 'ratings.py")
    assert dev.ended() == 1
    assert dev.text == 'tailrace: --also "python \'ratings.py": No closing quotation\n'

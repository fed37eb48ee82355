"""`tailrace dev` as a user runs it: what it prints, and the processes that it starts."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from queue import Empty, Queue
from threading import Thread

from listening import reachable
from running import PATIENCE
from tailrace.dev.ports import free_port

MOVIES = Path(__file__).parents[1] / "examples" / "movies"


class Dev:
    """A `tailrace dev` of the movies example, or of the movies.py in another directory."""

    def __init__(self, data: Path, *options: str, directory: Path = MOVIES, **variables: str) -> None:
        self.data = data
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tailrace", "dev", "movies:app", "--port", str(free_port()), *options],
            cwd=directory,
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

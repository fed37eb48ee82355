"""Watches a whole run of tests from outside: says at once what failed, and ends the run if something hangs."""

from __future__ import annotations

import os
import signal
import threading
import time

import pytest

# Four times as long as a run takes on two cores that do nothing else.
LONGEST = 75 * 60.0
# For pytest to end its workers, and to say what is known.
_LAST_WORDS = 60.0


class RunWatch:
    """A plugin of the process that starts the run and hands tests out to workers."""

    def __init__(self, config: pytest.Config, longest: float = LONGEST) -> None:
        self._config = config
        self._longest = longest
        self._running: dict[str, float] = {}
        self._ended = threading.Event()

    def pytest_sessionstart(self) -> None:
        threading.Thread(target=self._watch, daemon=True).start()

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._running[nodeid] = time.monotonic()

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        self._running.pop(nodeid, None)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Say it now: the summary comes at the end, and not at all if the run is cut off."""
        if report.failed:
            self._say(f"\n{report.nodeid} ({report.when}) failed:\n{report.longreprtext}")

    def pytest_sessionfinish(self) -> None:
        self._ended.set()

    def _watch(self) -> None:
        if self._ended.wait(self._longest):
            return
        now = time.monotonic()
        hanging = [f"  {name}, for {now - since:.0f} s" for name, since in list(self._running.items())]
        self._say(f"\nnot done after {self._longest:.0f} s, and ended here; still running:\n" + "\n".join(hanging))
        os.kill(os.getpid(), signal.SIGINT)
        if not self._ended.wait(_LAST_WORDS):
            os._exit(3)

    def _say(self, text: str) -> None:
        writer = self._config.get_terminal_writer()
        writer.line(text)
        writer.flush()

"""A client as a process of its own, in either language: it is told what to follow, and says what it hears."""

from __future__ import annotations

import json
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from conformance.logic import HERE, node
from running import PATIENCE

# Short enough to wait for. No test may fail because a machine is slow: a false alarm makes one more connection.
TIMING = {"quiet": 500, "patience": 1000, "silence": 3000, "connect": 3000, "first": 100, "longest": 500}

Told = dict[str, Any]


class ClientProcess:
    """A program that uses a client, over `socket`, `events` or both (`auto`)."""

    def __init__(self, language: str, url: str, transport: str = "auto", **options: Any) -> None:
        program = (
            # Node 20 has a WebSocket, and hides it.
            [node(), "--experimental-websocket", "--no-warnings", str(HERE / "programs" / "follow.mjs")]
            if language == "javascript"
            else [sys.executable, str(HERE / "programs" / "follow.py")]
        )
        self.label = f"{language} over {transport}"
        settings = {"url": url, "transport": transport, "timing": TIMING, **options}
        self._process = subprocess.Popen(
            [*program, json.dumps(settings)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.heard: list[Told] = []
        self._lines: queue.Queue[str] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def order(self, do: str, name: str = "", **fields: Any) -> None:
        """Give an order."""
        stdin = self._process.stdin
        assert stdin is not None
        stdin.write(json.dumps({"do": do, "name": name, **fields}) + "\n")
        stdin.flush()

    def follow(self, name: str, view: str, **options: Any) -> None:
        """Have a view followed under a name."""
        self.order("follow", name, arguments=[view], **options)

    def until(self, wanted: Callable[[Told], bool], what: str) -> list[Told]:
        """What is heard, up to the first that is wanted; what is no change or end is passed over."""
        deadline = time.monotonic() + PATIENCE
        found: list[Told] = []
        while True:
            try:
                line = self._lines.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                raise AssertionError(f"{self.label}: still waiting for {what}, heard {self.heard[-5:]}") from None
            assert line, f"{self.label}: the client has ended before {what}, heard {self.heard[-5:]}"
            told = json.loads(line)
            self.heard.append(told)
            if told["type"] not in ("status", "progress") or wanted(told):
                found.append(told)
            if wanted(told):
                return found

    def ready(self, name: str) -> list[Told]:
        """The changes of a subscription up to its next `ready`, without it."""
        found = self.until(lambda told: told["type"] == "ready" and told["name"] == name, f"ready of {name}")
        return [told for told in found[:-1] if told["name"] == name]

    def change(self, name: str) -> Told:
        """The next change of a subscription."""
        kinds = ("row", "gone", "event", "reset", "ready", "refused", "end")
        found = self.until(lambda told: told["name"] == name and told["type"] in kinds, f"a change of {name}")
        return found[-1]

    def status(self, name: str, status: str) -> Told:
        """Wait for a status of a subscription, or of the client where the name is empty."""
        return self.until(
            lambda told: told["type"] == "status" and told["name"] == name and told["status"] == status,
            f"status {status} of {name or 'the client'}",
        )[-1]

    def rows(self, name: str) -> dict[str, Any]:
        """What a subscription holds."""
        self.order("rows", name)
        found: dict[str, Any] = self.until(lambda told: told["type"] == "rows" and told["name"] == name, "rows")[-1]
        rows: dict[str, Any] = found["rows"]
        return rows

    def close(self) -> None:
        """Have the client closed; fails where something keeps its process alive."""
        self.order("close")
        try:
            assert self._process.wait(PATIENCE) == 0
        finally:
            self.kill()

    def kill(self) -> None:
        """End the process, whatever it does."""
        self._process.kill()
        self._process.wait(10)
        self._reader.join(10)
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put("")

"""One trial of `fanout`: so many clients on one server, idle, at a fixed rate, row by row, and at the limit."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from load_client import Counted, LoadClient
from tailrace.errors import PartDied
from under_load import Server, cpu_seconds, resident_kb

STALLED = 20.0


@dataclass(frozen=True)
class Times:
    """How long the parts of a trial take, in seconds, and deliveries per second at the fixed rate.

    `window` is how many rows of each key are under way at most: enough for a server to join them, too few for a client
    to be slow.
    """

    rate: int = 50_000
    window: int = 64
    timed: float = 2.0
    single: float = 1.5
    saturated: float = 2.5
    warm_up: float = 0.5
    settle: float = 1.0


class Trial:
    """A server and its clients; rows are numbered on from one part to the next."""

    def __init__(self, server: Server, client: LoadClient, connections: int, times: Times) -> None:
        self._server, self._client, self._connections, self._times = server, client, connections, times
        self._number = 0
        self.skipped = 0

    def run(self) -> dict[str, Any]:
        """All parts; the figures of each."""
        times = self._times
        before = resident_kb(self._server.part)
        self._client.wait_connected()
        time.sleep(times.settle)
        idle = (resident_kb(self._server.part) - before) / self._connections
        found: dict[str, Any] = {"idle_kb": idle, **self._timed(times.timed)}
        self._windowed(1, times.warm_up)
        found |= {f"single_{name}": value for name, value in self._windowed(1, times.single).items()}
        self._windowed(times.window, times.warm_up)
        found |= self._windowed(times.window, times.saturated)
        found["skipped"] = self.skipped
        return found

    def _timed(self, seconds: float) -> dict[str, Any]:
        """Rows at a fixed rate, whatever comes back: their delays, and the server's processor time per delivery."""
        self._client.begin(timed=True)
        busy = cpu_seconds(self._server.part)
        pause = self._connections / self._times.rate
        began = time.monotonic()
        first = self._number
        for step in range(max(1, int(seconds / pause))):
            while (left := began + step * pause - time.monotonic()) > 0:
                time.sleep(left)
            self._publish(1)
        self._wait_for(self._number, first)
        busy = cpu_seconds(self._server.part) - busy
        counted = self._end()
        return {"delays": counted.delays, "delivery_us": busy * 1e6 / counted.rows if counted.rows else None}

    def _windowed(self, window: int, seconds: float) -> dict[str, float]:
        """Rows as fast as they arrive, so many under way at most."""
        self._client.begin()
        began, busy, client_busy = time.monotonic(), cpu_seconds(self._server.part), self._client.cpu_seconds()
        while time.monotonic() - began < seconds:
            room = window - (self._number - int(self._client.progress()))
            if room >= max(1, window // 4):
                self._publish(room)
            else:
                self._check(began + seconds)
        self._wait_for(self._number, 0)
        took = time.monotonic() - began
        busy, client_busy = cpu_seconds(self._server.part) - busy, self._client.cpu_seconds() - client_busy
        counted = self._end()
        return {
            "per_s": counted.rows / took,
            "per_core_s": counted.rows / busy if busy else 0.0,
            "client_busy": client_busy / took,
        }

    def _publish(self, count: int) -> None:
        self._server.publish(range(self._number + 1, self._number + count + 1))
        self._number += count

    def _wait_for(self, number: int, first: int) -> None:
        deadline = time.monotonic() + STALLED
        while self._client.progress() < number:
            self._check(deadline - STALLED)
            if time.monotonic() > deadline:
                got = self._client.progress()
                raise PartDied(f"rows {first + 1} to {number} were published, on average {got:.1f} arrived")

    def _check(self, since: float) -> None:
        self._server.part.check()
        if time.monotonic() > since + STALLED:
            raise PartDied("nothing arrives any more")
        # The clients and Redis have this core, too.
        time.sleep(0.0002)

    def _end(self) -> Counted:
        counted = self._client.end()
        if counted.lost:
            raise PartDied(f"{counted.lost} connections were closed")
        self.skipped += counted.skipped
        return counted


def run_trial(
    server: Server, program: Path, surface: str, connections: int, keys: int, place: Path, times: Times
) -> dict[str, Any]:
    """Connect, measure, disconnect."""
    client = LoadClient(program, server.way(surface), connections, keys, place)
    try:
        return Trial(server, client, connections, times).run()
    finally:
        client.stop()

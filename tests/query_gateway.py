"""A gateway beside a real materializer, over a changelog that the test writes itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any
from urllib.parse import quote

from gateway_process import Frame, GatewayProcess, Tap
from streaming import Streams


class QueryGateway(GatewayProcess):
    """A gateway process with Kafka."""

    def __init__(self, directory: Path, streams: Streams, redis: str, *, kafka: str | None = None, **timing: float):
        log = streams.log
        self._view = log.view
        address = log.broker.address if kafka is None else kafka
        super().__init__(directory, redis, log.app, {"kafka": address, "prefix": log.prefix}, **timing)

    def query(self, where: str | None = None, position: str | None = None, **options: Any) -> Copy:
        """A client that follows a query, or the whole view."""
        path = f"/views/{self._view}/events" + ("" if where is None else f"?where={quote(where)}")
        headers = {} if position is None else {"Last-Event-ID": position}
        return Copy(self.follow(path, headers=headers, **options))

    def disconnect(self) -> None:
        """Close every client."""
        while self._taps:
            self._taps.pop().close()


class Copy:
    """What a client holds if it applies the frames in order."""

    def __init__(self, tap: Tap) -> None:
        self.tap = tap
        self.rows: dict[str, Any] = {}
        self.position: str | None = None
        self.resets: list[str] = []
        self.seen: list[Frame] = []

    def take(self, frame: Frame) -> None:
        """Apply one frame."""
        self.seen.append(frame)
        if frame.id is not None:
            self.position = frame.id
        if frame.event == "row":
            self.rows[frame.data["k"]] = frame.data
        elif frame.event == "gone":
            self.rows.pop(frame.data["k"], None)
        elif frame.event == "reset":
            self.rows.clear()
            self.resets.append(frame.data["reason"])

    def ready(self) -> list[Frame]:
        """Wait for `ready`; returns the frames up to it."""
        first = len(self.seen)
        while not self.seen[first:] or self.seen[-1].event != "ready":
            self.take(self.tap.frame())
        return self.seen[first:]

    def until(self, keys: Iterable[str], holds: Callable[[dict[str, Any]], bool] = lambda _: True) -> None:
        """Apply frames until the client holds exactly these keys, and `holds` is true of their rows."""
        wanted = set(keys)
        while set(self.rows) != wanted or not holds(self.rows):
            self.take(self.tap.frame())

    def close(self) -> None:
        self.tap.close()

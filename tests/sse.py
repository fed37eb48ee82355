"""A client that follows a key or a feed over SSE as a browser does: it reconnects and resumes by itself."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPResponse
from typing import Any
from urllib.parse import urlsplit


@dataclass(frozen=True)
class Frame:
    """One SSE frame, with the connection that brought it."""

    event: str
    id: str
    data: Any
    connection: int


class Follower:
    """Follows a URL in a thread of its own until closed, keeping every frame."""

    def __init__(self, url: str, last_id: str = "") -> None:
        self.url = url
        self.frames: list[Frame] = []
        self.connections = 0
        self._last_id = last_id
        self._socket: socket.socket | None = None
        self._closing = threading.Event()
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()

    @property
    def rows(self) -> list[Any]:
        """The data of every row so far."""
        return [frame.data for frame in list(self.frames) if frame.event == "row"]

    @property
    def events(self) -> list[Any]:
        """The data of every event of a feed so far."""
        return [frame.data for frame in list(self.frames) if frame.event == "event"]

    def wait(self, condition: Callable[[Follower], bool], timeout: float = 60) -> None:
        """Return as soon as the condition holds."""
        with self._changed:
            held = self._changed.wait_for(lambda: condition(self), timeout)
        assert held, f"{self.url}: still waiting after {timeout} s; frames so far: {self.frames[-5:]}"

    def close(self) -> None:
        self._closing.set()
        with suppress(OSError):
            if (link := self._socket) is not None:
                link.shutdown(socket.SHUT_RDWR)
        self._thread.join(15)

    def _follow(self) -> None:
        address = urlsplit(self.url)
        while not self._closing.is_set():
            link = HTTPConnection(address.netloc, timeout=60)
            try:
                path = f"{address.path}?{address.query}" if address.query else address.path
                link.request("GET", path, headers={"Last-Event-ID": self._last_id} if self._last_id else {})
                self._socket = link.sock
                response = link.getresponse()
                if response.status == 200:
                    self.connections += 1
                    self._read(response)
            except (OSError, HTTPException):
                pass
            finally:
                link.close()
            self._closing.wait(0.05)

    def _read(self, response: HTTPResponse) -> None:
        event, identity, data = "message", "", ""
        while raw := response.readline():
            line = raw.decode().rstrip("\r\n")
            field, _, value = line.partition(":")
            value = value.removeprefix(" ")
            if field == "event":
                event = value
            elif field == "id":
                identity = self._last_id = value
            elif field == "data":
                data += value
            elif line == "" and data:
                with self._changed:
                    self.frames.append(Frame(event, identity, json.loads(data), self.connections))
                    self._changed.notify_all()
                event, identity, data = "message", "", ""

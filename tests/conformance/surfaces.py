"""One way to follow keys over each surface, for tests that hold of both. Every frame's shape is checked as it comes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from conformance.shapes import event_problems, message_problems
from gateway_process import GatewayProcess, Tap
from socket_tap import PING, PONG, TEXT, SocketTap


@dataclass(frozen=True)
class Seen:
    """A frame of either surface."""

    kind: str
    key: str | None = None
    row: Any = None
    position: str | None = None
    reason: str | None = None


class EventSurface:
    """Server-Sent Events."""

    name = "events"

    def __init__(self, gateway: GatewayProcess, view: str, keys: Sequence[str], position: str | None = None) -> None:
        path = f"/views/{view}/events?" + "&".join(f"key={quote(key, safe='')}" for key in keys)
        if len(keys) == 1:
            path = f"/views/{view}/{quote(keys[0], safe='')}/events"
        self.tap: Tap = gateway.follow(path, headers={} if position is None else {"Last-Event-ID": position})
        assert self.tap.status == 200
        self.position = position

    def frame(self) -> Seen:
        """The next frame."""
        frame = self.tap.any_frame()
        assert not event_problems(frame.event, frame.id, frame.data)
        self.position = frame.id or self.position
        key = str(frame.data["movie_id"]) if frame.event in ("row", "gone") else None
        row = frame.data if frame.event == "row" else None
        return Seen(frame.event, key, row, frame.id, frame.data.get("reason"))

    def resume(self) -> str | None:
        """What a client sends to go on."""
        return self.position

    def close(self) -> None:
        """Disconnect."""
        self.tap.close()


def any_message(tap: SocketTap) -> dict[str, Any]:
    """The next message of a WebSocket, `progress`, too."""
    while (found := tap.frame()) is not None:
        opcode, payload = found
        if opcode == PING:
            tap.send_frame(PONG, payload)
        elif opcode == TEXT:
            message: dict[str, Any] = json.loads(payload)
            return message
    raise AssertionError(f"expected a message, got the end of the connection: {tap.code}")


class SocketSurface:
    """A WebSocket."""

    name = "socket"

    def __init__(self, gateway: GatewayProcess, view: str, keys: Sequence[str], position: Any = None) -> None:
        self.tap: SocketTap = gateway.socket()
        resume = {"positions": position} if isinstance(position, dict) else {"position": position} if position else {}
        self.positions: dict[str, str] = dict(position) if isinstance(position, dict) else {}
        self.tap.send(type="subscribe", id="a", view=view, keys=list(keys), **resume)
        assert self.tap.message() == {"type": "subscribed", "id": "a"}

    def frame(self) -> Seen:
        """The next frame."""
        message = any_message(self.tap)
        assert not message_problems(message)
        kind, key, position = message["type"], message.get("key"), message.get("position")
        if key is not None:
            self.positions.pop(key, None)
            if kind == "row" and position:
                self.positions[key] = position
        elif kind == "reset":
            self.positions.clear()
        return Seen(kind, key, message.get("row"), position, message.get("reason"))

    def resume(self) -> dict[str, str]:
        """What a client sends to go on."""
        return self.positions

    def close(self) -> None:
        """Disconnect."""
        self.tap.close()


Surface = EventSurface | SocketSurface


def until(surface: Surface, kind: str) -> list[Seen]:
    """The next frames, up to the first of this kind."""
    found = [surface.frame()]
    while found[-1].kind != kind:
        found.append(surface.frame())
    return found

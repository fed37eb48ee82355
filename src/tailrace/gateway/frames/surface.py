"""Surfaces: how frames are encoded. Server-Sent Events and WebSocket messages say the same.

A client that sends the last id back as `Last-Event-ID`, or the last position in `subscribe`, gets what is
newer. If several Server-Sent Events are written together, only the last one may have an id. WebSocket
messages are JSON in text frames. A server's frames are not masked, so their bytes are the same on every
connection.
"""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

from tailrace.gateway.frames.frame import Frame, to_json

# What a stream of Server-Sent Events starts with: browsers connect again a second after a connection ended.
RETRY = b"retry: 1000\n\n"

_TEXT = 0x81  # the whole message in one text frame


class Surface(ABC):
    """One encoding of frames. Metrics call it `name`.

    `joint`: frames that are written together have one position, that of all of them. `keep_alive` is written to a
    connection that was silent for a while; empty if the protocol below has pings of its own.
    """

    name: str
    joint = False
    keep_alive = b""

    @abstractmethod
    def encode(self, frame: Frame) -> bytes:
        """Encode a frame with its own position."""

    @abstractmethod
    def bare(self, frame: Frame) -> bytes:
        """Encode a frame that is written together with others, without a position on a joint surface."""

    @abstractmethod
    def identified(self, frames: bytes, position: bytes) -> bytes:
        """Add the position that some bare frames reach together."""

    @abstractmethod
    def begin(self, position: bytes) -> bytes:
        """The begin of a long snapshot: a client that is cut off within it asks for everything again."""

    @abstractmethod
    def ready(self, id: str | None, about: Mapping[str, object], position: str) -> bytes:
        """Say that everything up to the position has been sent."""

    @abstractmethod
    def reset(self, id: str | None, reason: str, message: str, position: str) -> bytes:
        """Tell the client to drop what it holds: everything follows. The position asks for everything."""

    @abstractmethod
    def progress(self, id: str | None, offset: int | None, target: int | None) -> bytes:
        """Say that the answer waits for a restore, and how far that has come."""

    def together(self, frames: Sequence[Frame], reached: bytes | None = None) -> bytes:
        """Encode frames for one write: each with its own position, or all with the one that they reach."""
        if reached is None:
            return b"".join(map(self.encode, frames))
        return self.identified(b"".join(map(self.bare, frames)), reached)


class ServerSentEvents(Surface):
    """Frames as Server-Sent Events."""

    name = "sse"
    joint = True
    keep_alive = b":\n\n"

    def encode(self, frame: Frame) -> bytes:
        return event(frame.kind, _data(frame), frame.position)

    def bare(self, frame: Frame) -> bytes:
        if frame.event is None:
            frame.event = event(frame.kind, _data(frame))
        return frame.event

    def identified(self, frames: bytes, position: bytes) -> bytes:
        return b"%bid: %b\n\n" % (frames[:-1], position)

    def begin(self, position: bytes) -> bytes:
        return b"id: %b\n\n" % position

    def ready(self, id: str | None, about: Mapping[str, object], position: str) -> bytes:  # noqa: ARG002
        return event("ready", to_json(about), position.encode())

    def reset(self, id: str | None, reason: str, message: str, position: str) -> bytes:  # noqa: ARG002
        return event("reset", to_json({"reason": reason, "message": message}), position.encode())

    def progress(self, id: str | None, offset: int | None, target: int | None) -> bytes:  # noqa: ARG002
        return event("progress", to_json({"offset": offset, "target": target}))


class WebSocketMessages(Surface):
    """Frames as WebSocket messages. Each names what it is about, because a connection follows many things."""

    name = "ws"

    def encode(self, frame: Frame) -> bytes:
        if frame.message is None:
            position = b"" if frame.position is None else b',"position":"%b"' % frame.position
            value = b"" if frame.value is None else b',"%b":%b' % (frame.kind.encode(), utf8(frame.value))
            names = frame.about.names(frame.key)
            frame.message = message(b'{"type":"%b",%b%b%b}' % (frame.kind.encode(), names, position, value))
        return frame.message

    def bare(self, frame: Frame) -> bytes:
        return self.encode(frame)

    def identified(self, frames: bytes, position: bytes) -> bytes:  # noqa: ARG002
        return frames

    def begin(self, position: bytes) -> bytes:  # noqa: ARG002
        return b""

    def ready(self, id: str | None, about: Mapping[str, object], position: str) -> bytes:  # noqa: ARG002
        return json_message("ready", id=id, position=position)

    def reset(self, id: str | None, reason: str, message: str, position: str) -> bytes:  # noqa: ARG002
        return json_message("reset", id=id, reason=reason, message=message)

    def progress(self, id: str | None, offset: int | None, target: int | None) -> bytes:
        return json_message("progress", id=id, offset=offset, target=target)


SSE = ServerSentEvents()
WS = WebSocketMessages()


def event(kind: str, data: bytes, position: bytes | None = None) -> bytes:
    if position is None:
        return b"event: %b\ndata: %b\n\n" % (kind.encode(), data)
    return b"event: %b\nid: %b\ndata: %b\n\n" % (kind.encode(), position, data)


def close(reason: str, text: str, retry: bool) -> bytes:
    """The Server-Sent Event that ends a connection; a WebSocket has close codes instead."""
    return event("close", to_json({"reason": reason, "message": text, "retry": retry}))


def chunk(body: bytes) -> bytes:
    """One chunk of a chunked HTTP/1.1 body."""
    return b"%x\r\n%b\r\n" % (len(body), body)


def message(payload: bytes) -> bytes:
    """One text message, framed for the wire."""
    size = len(payload)
    if size < 126:
        return bytes((_TEXT, size)) + payload
    if size < 65536:
        return struct.pack("!BBH", _TEXT, 126, size) + payload
    return struct.pack("!BBQ", _TEXT, 127, size) + payload


def json_message(kind: str, **fields: object) -> bytes:
    """A message of this type; fields that are None are left out."""
    return message(to_json({"type": kind, **{name: value for name, value in fields.items() if value is not None}}))


def utf8(value: bytes) -> bytes:
    """The JSON of a row or an event, with bytes that are not UTF-8 replaced.

    A browser ends the connection over one text message that is not UTF-8.
    """
    return value if value.isascii() else value.decode(errors="replace").encode()


def _data(frame: Frame) -> bytes:
    value = frame.value
    if value is None:
        return frame.about.key_object(frame.key)
    return b"\ndata: ".join(value.splitlines()) if b"\n" in value or b"\r" in value else value

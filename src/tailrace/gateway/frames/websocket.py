"""WebSocket messages: JSON in text frames, encoded once for all clients that get the same.

A server's frames are not masked, so their bytes are the same on every connection.
"""

from __future__ import annotations

import json
import struct

_TEXT = 0x81  # the whole message in one text frame


def message(payload: bytes) -> bytes:
    """One text message as it goes over the wire."""
    size = len(payload)
    if size < 126:
        return bytes((_TEXT, size)) + payload
    if size < 65536:
        return struct.pack("!BBH", _TEXT, 126, size) + payload
    return struct.pack("!BBQ", _TEXT, 127, size) + payload


def utf8(value: bytes) -> bytes:
    """The JSON of a row or an event as a text message may carry it: bytes that are not UTF-8 are replaced.

    A browser ends the connection over one text message that is not UTF-8.
    """
    return value if value.isascii() else value.decode(errors="replace").encode()


def json_message(kind: str, **fields: object) -> bytes:
    """A message of this type; fields that are None are left out."""
    held = {"type": kind, **{name: value for name, value in fields.items() if value is not None}}
    return message(json.dumps(held, separators=(",", ":"), ensure_ascii=False).encode())

"""The frames of a query, for both surfaces. See docs/protocol.md.

On Server-Sent Events the id is a vector over all partitions: rows and gone keys are encoded without one, and what is
written together gets it at its end, where it is the last frame's. On a WebSocket each message has its partition's part.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from tailrace.contracts.position import Position
from tailrace.gateway.catalog import KnownView
from tailrace.gateway.frames.websocket import json_message, message, utf8

# The generation of a position that asks for everything: no build has it.
NO_BUILD = 0


class QueryFrames:
    """Encodes the frames about one query of one build of a view."""

    __slots__ = ("_gone", "_row", "_stem", "_view", "query")

    def __init__(self, view: KnownView, query: str) -> None:
        self._view = view
        self.query = query
        about = b'"view":%b,"query":"%b"' % (_json(view.name), query.encode())
        self._row = b'{"type":"row",%b,"key":' % about
        self._gone = b'{"type":"gone",%b,"key":' % about
        self._stem = f"{view.lineage}.{view.generation}".encode()

    def event(self, key: bytes, value: bytes | None) -> bytes:
        """A row, or that a key is gone, as a Server-Sent Event without an id."""
        if value is None:
            return b"event: gone\ndata: %b\n\n" % self._view.key_object(key)
        if b"\n" in value or b"\r" in value:
            value = b"\ndata: ".join(value.splitlines())
        return b"event: row\ndata: %b\n\n" % value

    def message(self, key: bytes, value: bytes | None, partition: int, offset: int | None) -> bytes:
        """The same as a WebSocket message."""
        name = _json(key.decode(errors="replace"))
        position = b"" if offset is None else b',"position":"%b.%d-%d"' % (self._stem, partition, offset)
        if value is None:
            return message(b"%b%b%b}" % (self._gone, name, position))
        return message(b'%b%b%b,"row":%b}' % (self._row, name, position, utf8(value)))

    def ready(self, socket: bool, name: str | None, offsets: Mapping[int, int]) -> bytes:
        """The snapshot is complete, and reaches up to these offsets."""
        view, position = self._view, str(Position(self._view.lineage, self._view.generation, offsets))
        if socket:
            return json_message("ready", id=name, position=position)
        data = {"view": view.name, "key": [column.name for column in view.key], "generation": view.generation}
        return b"event: ready\nid: %b\ndata: %b\n\n" % (position.encode(), _json(data))

    def reset(self, socket: bool, name: str | None, reason: str, text: str) -> bytes:
        """Forget what you hold: everything follows, and until it is complete the position asks for everything."""
        if socket:
            return json_message("reset", id=name, reason=reason, message=text)
        data = _json({"reason": reason, "message": text})
        return b"event: reset\nid: %b\ndata: %b\n\n" % (self._everything(), data)

    def incomplete(self) -> bytes:
        """What a snapshot over Server-Sent Events begins with: who is cut off within it asks for everything again."""
        return b"id: %b\n\n" % self._everything()

    def identified(self, events: bytes, offsets: Mapping[int, int]) -> bytes:
        """Server-Sent Events of which the last one has the position as its id."""
        vector = b"".join(b".%d-%d" % pair for pair in sorted(offsets.items()))
        return b"%bid: %b%b\n\n" % (events[:-1], self._stem, vector)

    def _everything(self) -> bytes:
        return str(Position(self._view.lineage, NO_BUILD, {})).encode()


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()

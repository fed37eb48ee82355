"""The frames of a stream, as Server-Sent Events.

    row       data: the row's JSON, byte for byte as in the changelog       id: its position
    gone      data: the key columns as a JSON object                        id: the position it went at
    ready     data: view, names of the key columns, generation              id: how far the snapshot reaches
    reset     data: reason and message; a snapshot follows                  id: a position that asks for a snapshot
    progress  data: offset and target of a partition being restored         no id

A client that sends the last id it has seen back as `Last-Event-ID` gets what is newer.
"""

from __future__ import annotations

import json

from tailrace.gateway.known import KnownView
from tailrace.position import Position
from tailrace.store.row import Row

# What a stream starts with: browsers connect again a second after a connection ended.
RETRY = b"retry: 1000\n\n"
KEEP_ALIVE = b":\n\n"


def chunk(body: bytes) -> bytes:
    """One chunk of a chunked HTTP/1.1 body."""
    return b"%x\r\n%b\r\n" % (len(body), body)


class Frames:
    """Encodes the frames about one key of one build of a view."""

    __slots__ = ("_key", "_lineage", "_partition", "_view")

    def __init__(self, view: KnownView, key: bytes) -> None:
        self._view = view
        self._key = key
        self._partition = view.partition(key)
        self._lineage = view.lineage.encode()

    def row(self, row: Row) -> bytes:
        """The `row` frame of a row, or the `gone` frame of a tombstone."""
        if row.value is None:
            return self.gone(row.generation, row.offset)
        value = row.value
        if b"\n" in value or b"\r" in value:
            value = b"\ndata: ".join(value.splitlines())
        return b"event: row\nid: %b.%d.%d-%d\ndata: %b\n\n" % (
            self._lineage,
            row.generation,
            self._partition,
            row.offset,
            value,
        )

    def gone(self, generation: int, offset: int) -> bytes:
        """The key holds no row (any more)."""
        return _frame(b"gone", self._view.key_object(self._key), self._position(generation, offset))

    def ready(self, offset: int) -> bytes:
        """The snapshot is complete, and reaches up to this offset."""
        view = self._view
        data = {"view": view.name, "key": [column.name for column in view.key], "generation": view.generation}
        return _frame(b"ready", _json(data), self._position(view.generation, offset))

    def reset(self, reason: str, message: str) -> bytes:
        """Forget what you hold: a snapshot follows. Its id names no offset, so a resume from it resets again."""
        data = {"reason": reason, "message": message}
        return _frame(b"reset", _json(data), Position(self._view.lineage, self._view.generation, {}))

    def _position(self, generation: int, offset: int) -> Position:
        # Before the first record of a changelog there is no offset to name.
        offsets = {self._partition: offset} if offset >= 0 else {}
        return Position(self._view.lineage, generation, offsets)


def progress(offset: int | None, target: int | None) -> bytes:
    """The partition is being restored, and has come this far."""
    return _frame(b"progress", _json({"offset": offset, "target": target}))


def _frame(event: bytes, data: bytes, position: Position | None = None) -> bytes:
    if position is None:
        return b"event: %b\ndata: %b\n\n" % (event, data)
    return b"event: %b\nid: %b\ndata: %b\n\n" % (event, str(position).encode(), data)


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()

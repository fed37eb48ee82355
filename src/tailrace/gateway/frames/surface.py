"""The frames of a stream, as Server-Sent Events.

    row       data: the row's JSON, byte for byte as in the changelog       id: its position
    gone      data: the key columns as a JSON object                        id: the position it went at
    ready     data: view, names of the key columns, generation              id: how far the snapshot reaches
    reset     data: reason and message; a snapshot follows                  id: a position that asks for a snapshot
    progress  data: offset and target of a partition being restored         no id
    close     data: reason, message, whether to connect again               no id

A client that sends the last id it has seen back as `Last-Event-ID` gets what is newer. Where several frames are written
together, only the last one has an id: `bare` frames are joined, and `with_id` adds it.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tailrace.contracts.position import Position
from tailrace.gateway.catalog import KnownView
from tailrace.store.layout.row import Row

if TYPE_CHECKING:
    from tailrace.gateway.connection.close_reasons import Ending

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
        return b"event: row\nid: %b.%d.%d-%d\ndata: %b\n\n" % (
            self._lineage,
            row.generation,
            self._partition,
            row.offset,
            _lines(row.value),
        )

    def bare(self, row: Row) -> bytes:
        """The same frame without an id."""
        if row.value is None:
            return b"event: gone\ndata: %b\n\n" % self._view.key_object(self._key)
        return b"event: row\ndata: %b\n\n" % _lines(row.value)

    def gone(self, generation: int, offset: int) -> bytes:
        """The key holds no row (any more)."""
        return _frame(b"gone", self._view.key_object(self._key), self._position(generation, offset))

    def _position(self, generation: int, offset: int) -> Position:
        # Before the first record of a changelog there is no offset to name.
        offsets = {self._partition: offset} if offset >= 0 else {}
        return Position(self._view.lineage, generation, offsets)


def with_id(frames: bytes, position: str) -> bytes:
    """Bare frames, the last of them with an id."""
    return b"%bid: %b\n\n" % (frames[:-1], position.encode())


def frame(event: str, data: object, position: Position | None = None) -> bytes:
    """A frame with JSON as its data."""
    return _frame(event.encode(), _json(data), position)


def progress(offset: int | None, target: int | None) -> bytes:
    """The partition is being restored, and has come this far."""
    return frame("progress", {"offset": offset, "target": target})


def close(ending: Ending) -> bytes:
    """The gateway ends this connection, and why."""
    return frame("close", {"reason": ending.reason, "message": ending.message, "retry": ending.retry})


def _lines(value: bytes) -> bytes:
    return b"\ndata: ".join(value.splitlines()) if b"\n" in value or b"\r" in value else value


def _frame(event: bytes, data: bytes, position: Position | None = None) -> bytes:
    if position is None:
        return b"event: %b\ndata: %b\n\n" % (event, data)
    return b"event: %b\nid: %b\ndata: %b\n\n" % (event, str(position).encode(), data)


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()

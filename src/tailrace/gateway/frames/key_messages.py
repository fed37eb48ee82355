"""The frames about one key, as WebSocket messages: the same bytes for every client.

    {"type":"row","view":"averages","key":"362","position":"4be1a27c.1.0-18","row":{…}}
    {"type":"gone","view":"averages","key":"362","position":"4be1a27c.1.0-19"}

The row's JSON is put in as it is in the changelog. The methods are those of `frames.Frames`.
"""

from __future__ import annotations

import json

from tailrace.contracts.position import Position
from tailrace.gateway.catalog import KnownView
from tailrace.gateway.frames.websocket import message, utf8
from tailrace.store.layout.row import Row


class SocketFrames:
    """Encodes the frames about one key of one build of a view."""

    __slots__ = ("_about", "_lineage", "_partition")

    def __init__(self, view: KnownView, key: bytes) -> None:
        self._about = b'"view":%b,"key":%b,"position":' % (_json(view.name), _json(key.decode()))
        self._lineage = view.lineage
        self._partition = view.partition(key)

    def row(self, row: Row) -> bytes:
        """The `row` frame of a row, or the `gone` frame of a tombstone."""
        if row.value is None:
            return self.gone(row.generation, row.offset)
        return message(
            b'{"type":"row",%b"%b.%d.%d-%d","row":%b}'
            % (self._about, self._lineage.encode(), row.generation, self._partition, row.offset, utf8(row.value))
        )

    def gone(self, generation: int, offset: int) -> bytes:
        """The key holds no row (any more)."""
        position = Position(self._lineage, generation, {self._partition: offset} if offset >= 0 else {})
        return message(b'{"type":"gone",%b"%b"}' % (self._about, str(position).encode()))


def _json(value: str) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode()

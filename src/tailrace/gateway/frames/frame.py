"""A frame: one change of something that clients follow, before a surface encodes it.

    row       a row's JSON, byte for byte as in the changelog; its position
    gone      the key has no row any more; the position where it went
    event     an event's JSON, byte for byte as in the changelog; its position

`ready`, `reset`, `progress` and `close` are about a subscription or a connection: see `surface`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tailrace.gateway.catalog import ServedView


class About:
    """What frames are about: the names that messages carry, and the view that writes a key as an object."""

    __slots__ = ("_key", "_keyed", "_names", "_view")

    def __init__(self, names: Mapping[str, str], view: ServedView | None = None) -> None:
        self._names = self._keyed = to_json(names)[1:-1]
        self._view = view
        # The key that was asked for last: a followed key asks for the same one each time.
        self._key: bytes | None = None

    def names(self, key: bytes | None) -> bytes:
        """The names as members of a JSON object, with the key if there is one."""
        if key is None:
            return self._names
        if key is not self._key:
            self._key, self._keyed = key, b'%b,"key":%b' % (self._names, to_json(key.decode(errors="replace")))
        return self._keyed

    def key_object(self, key: bytes | None) -> bytes:
        """A key as a JSON object of the view's key columns."""
        return b"null" if self._view is None or key is None else self._view.key_object(key)


class Frame:
    """One change. `value` is JSON, or None if the key is gone; `position` is None if it stays where it was.

    `event` and `message` keep what the surfaces have encoded, so that a frame is encoded once for all clients.
    """

    __slots__ = ("about", "event", "key", "kind", "message", "position", "value")

    def __init__(
        self, about: About, key: bytes | None, value: bytes | None, position: bytes | None, kind: str | None = None
    ) -> None:
        self.about = about
        self.key = key
        self.value = value
        self.position = position
        self.kind = kind or ("gone" if value is None else "row")
        self.event: bytes | None = None
        self.message: bytes | None = None


def place(lineage: str, generation: int, partition: int, offset: int) -> bytes:
    """The position of one record. Before the first record of a changelog there is no offset to name."""
    if offset < 0:
        return b"%b.%d" % (lineage.encode(), generation)
    return b"%b.%d.%d-%d" % (lineage.encode(), generation, partition, offset)


def to_json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()

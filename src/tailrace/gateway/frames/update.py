"""One change in a query, encoded once per surface, and only for surfaces that somebody is on."""

from __future__ import annotations

from collections.abc import Iterable

from tailrace.gateway.frames.query_frames import QueryFrames


class Update:
    """What a key is in a query from now on: a row's JSON, or None where it has left.

    `seq` counts the updates of the query here. `offset` is None where the position stays where it was.
    """

    __slots__ = ("_event", "_frames", "_message", "key", "offset", "partition", "seq", "value")

    def __init__(
        self, frames: QueryFrames, seq: int, partition: int, key: bytes, value: bytes | None, offset: int | None
    ) -> None:
        self._frames = frames
        self.seq = seq
        self.partition = partition
        self.key = key
        self.value = value
        self.offset = offset
        self._event: bytes | None = None
        self._message: bytes | None = None

    @property
    def kind(self) -> str:
        """The name of its frame."""
        return "gone" if self.value is None else "row"

    @property
    def size(self) -> int:
        """About how many bytes it holds, as they are on the wire and in memory."""
        return 2 * (len(self.value or b"") + len(self.key)) + 400

    def event(self) -> bytes:
        """As a Server-Sent Event, without an id."""
        if self._event is None:
            self._event = self._frames.event(self.key, self.value)
        return self._event

    def message(self) -> bytes:
        """As a WebSocket message."""
        if self._message is None:
            self._message = self._frames.message(self.key, self.value, self.partition, self.offset)
        return self._message


def sizes(updates: Iterable[Update], *, socket: bool) -> dict[str, tuple[int, int]]:
    """How many frames of each kind there are, and of how many bytes."""
    found: dict[str, tuple[int, int]] = {}
    for update in updates:
        count, size = found.get(update.kind, (0, 0))
        found[update.kind] = (count + 1, size + len(update.message() if socket else update.event()))
    return found

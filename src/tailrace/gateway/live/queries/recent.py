"""What has changed lately in a query: the newest update of each key, for clients that are behind.

It is kept once for all of them, in the order of the changes, and each client only remembers its last update.
So many slow clients cost no more than one.
"""

from __future__ import annotations

from collections.abc import Iterator

from tailrace.gateway.frames.frame import About, Frame


class Update(Frame):
    """One change in a query. `seq` counts the updates of the query here."""

    __slots__ = ("seq",)
    key: bytes

    def __init__(self, about: About, seq: int, key: bytes, value: bytes | None, position: bytes | None) -> None:
        super().__init__(about, key, value, position)
        self.seq = seq

    @property
    def size(self) -> int:
        """About how many bytes it takes, on the wire and in memory together."""
        return 2 * (len(self.value or b"") + len(self.key)) + 400


class Recent:
    """Updates since a number, conflated per key, at most `most` bytes of them. The oldest ones are forgotten first."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._updates: dict[bytes, Update] = {}
        self.bytes = 0
        self._floor = 0

    def __len__(self) -> int:
        return len(self._updates)

    def put(self, update: Update) -> None:
        """Note an update; it replaces an earlier one of its key."""
        before = self._updates.pop(update.key, None)
        if before is not None:
            self.bytes -= before.size
        self._updates[update.key] = update
        self.bytes += update.size
        while self.bytes > self._most:
            oldest = next(iter(self._updates))
            self._floor = self._updates[oldest].seq
            self.bytes -= self._updates.pop(oldest).size

    def knows(self, seq: int) -> bool:
        """Whether every update since this one is here."""
        return seq >= self._floor

    def has(self, key: bytes, seq: int) -> bool:
        """Whether a key has changed since an update."""
        found = self._updates.get(key)
        return found is not None and found.seq > seq

    def since(self, seq: int) -> list[Update]:
        """The newest update of each key that has changed since an update, oldest first."""
        found = list(self._after(seq))
        found.reverse()
        return found

    def clear(self, seq: int) -> None:
        """Forget everything up to an update: no client is behind, or all that are must read."""
        self._updates.clear()
        self.bytes, self._floor = 0, seq

    def _after(self, seq: int) -> Iterator[Update]:
        for update in reversed(self._updates.values()):
            if update.seq <= seq:
                return
            yield update

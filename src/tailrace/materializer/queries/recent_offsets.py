"""Recent offsets: which offset was stored how long ago."""

from __future__ import annotations

from collections import deque

_EVERY = 10_000


class RecentOffsets:
    """Notes an offset every ten seconds, for as long as something is remembered; times are in ms since 1970."""

    def __init__(self, remembered: int) -> None:
        self._remembered = remembered
        self._notes: deque[tuple[int, int]] = deque()
        self._next = 0

    def note(self, now: int, offset: int) -> int | None:
        """Note what is stored now; the offset up to which all is too old to be remembered, where that has moved."""
        if now < self._next:
            return None
        self._next = now + _EVERY
        self._notes.append((now, offset))
        old = None
        while self._notes[0][0] <= now - self._remembered:
            old = self._notes.popleft()[1]
        return old

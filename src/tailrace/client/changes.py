"""Changes that wait for whoever iterates: of each key the newest, of a feed every event."""

from __future__ import annotations

from tailrace.client.frames import Change, Event, Gone, Row


class Changes:
    """A queue that is no longer than what is followed has keys, however slow its reader is."""

    def __init__(self) -> None:
        self._waiting: dict[object, Change] = {}
        self._count = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def push(self, change: Change) -> None:
        """Add a change; it takes the place of an older one of its key."""
        if isinstance(change, Event):
            self._count += 1
            self._waiting[self._count] = change
        elif isinstance(change, Row | Gone):
            self._waiting[change.key] = change
        else:
            self._waiting.pop(type(change), None)
            self._waiting[type(change)] = change

    def shift(self) -> Change | None:
        """Take the first one out, or None."""
        for slot, change in self._waiting.items():
            del self._waiting[slot]
            return change
        return None

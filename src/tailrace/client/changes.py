"""Changes that wait for a reader: the newest of each key, or every event of a feed."""

from __future__ import annotations

from tailrace.client.frames import Change, Event, Gone, Row


class Changes:
    """A queue that holds at most one change per followed key, however slow its reader is."""

    def __init__(self) -> None:
        self._waiting: dict[object, Change] = {}
        self._count = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def push(self, change: Change) -> None:
        """Add a change; it replaces an older one of its key."""
        if isinstance(change, Event):
            self._count += 1
            self._waiting[self._count] = change
        elif isinstance(change, Row | Gone):
            self._waiting[change.key] = change
        else:
            self._waiting.pop(type(change), None)
            self._waiting[type(change)] = change

    def shift(self) -> Change | None:
        """Take the first change out, or None."""
        for slot, change in self._waiting.items():
            del self._waiting[slot]
            return change
        return None

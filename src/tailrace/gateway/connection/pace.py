"""When changes are written: at the end of the loop's turn or, in a burst, a little later.

A write costs about the same for one row as for twenty. Rows that come in a burst reach the gateway in several
reads, and writing the first read to every client takes longer than waiting for the next. So if a key has
several rows already and the last flush took long, the flush waits for a small part of that time. A row that
comes alone never waits.
"""

from __future__ import annotations

# A flush waits for this part of the time that the last one took, at most for `_LONGEST` seconds. The loop's
# timers count in ms, so a wait shorter than `_SHORTEST` is none.
_PART = 0.25
_LONGEST = 0.002
_SHORTEST = 0.001


class Pace:
    """How long the next flush waits, in seconds."""

    __slots__ = ("_took",)

    def __init__(self) -> None:
        self._took = 0.0

    def wait(self, rows: int, keys: int) -> float:
        """How long to wait before so many rows of so many keys are written."""
        wait = min(self._took * _PART, _LONGEST) if rows > keys else 0.0
        return wait if wait >= _SHORTEST else 0.0

    def flushed(self, took: float) -> None:
        """Note how many seconds a flush took."""
        self._took = took

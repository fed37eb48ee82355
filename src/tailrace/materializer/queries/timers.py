"""When to look at which keys again, because a query over them has now(). Does no I/O."""

from __future__ import annotations

import heapq


class Timers:
    """One time per key, in ms since 1970: the first at which the answer of any query about its row may change."""

    def __init__(self) -> None:
        self._times: dict[bytes, int] = {}
        # An entry counts only while its key has this very time. Others are skipped.
        self._heap: list[tuple[int, bytes]] = []

    def __len__(self) -> int:
        return len(self._times)

    def get(self, key: bytes) -> int | None:
        """The time of a key."""
        return self._times.get(key)

    def set(self, key: bytes, time: int | None) -> None:
        """Give a key this time, or none."""
        if time is None:
            self._times.pop(key, None)
        elif self._times.get(key) != time:
            self._times[key] = time
            heapq.heappush(self._heap, (time, key))

    def bring_forward(self, key: bytes, time: int) -> None:
        """Give a key this time if it has none, or a later one."""
        held = self._times.get(key)
        if held is None or time < held:
            self.set(key, time)

    def next(self) -> int | None:
        """The first time of any key."""
        while self._heap and self._times.get(self._heap[0][1]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def due(self, now: int, most: int) -> list[tuple[bytes, int]]:
        """At most `most` keys whose time has come, with their times, in order. They have no time from then on."""
        found: list[tuple[bytes, int]] = []
        while len(found) < most and (time := self.next()) is not None and time <= now:
            _, key = heapq.heappop(self._heap)
            del self._times[key]
            found.append((key, time))
        return found

"""Connections whose next request has not arrived, and how many connections there may be. No I/O."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

Guest = TypeVar("Guest")

# Descriptors that the gateway needs itself, for Redis, Kafka and files, and descriptors for health alone. If
# there are few in all, one in so many.
_OWN, _OWN_PART = 100, 4
_RESERVE, _RESERVE_PART = 32, 16
# From this part of the connections on, the limit is near.
_NEAR = 0.8


@dataclass(frozen=True)
class Capacity:
    """How many connections there may be: `most` ordinary ones, and `reserve` more for health alone."""

    most: int
    reserve: int

    @classmethod
    def of(cls, descriptors: int) -> Capacity:
        """The capacity of a process that may have so many descriptors."""
        own = min(_OWN, descriptors // _OWN_PART)
        reserve = min(_RESERVE, descriptors // _RESERVE_PART)
        return cls(max(1, descriptors - own - reserve), reserve)

    def near(self, connections: int) -> bool:
        """Whether so many connections are nearly too many."""
        return connections > self.most * _NEAR


class Arrivals(Generic[Guest]):
    """The guests that owe a request, each with its deadline."""

    def __init__(self) -> None:
        self._until: dict[Guest, float] = {}

    def __len__(self) -> int:
        return len(self._until)

    def expect(self, guest: Guest, until: float) -> None:
        """Give a guest a deadline for a whole request."""
        self._until.pop(guest, None)
        self._until[guest] = until

    def forget(self, guest: Guest) -> None:
        """Its request has come, or it has left."""
        self._until.pop(guest, None)

    def overdue(self, now: float) -> list[Guest]:
        """Remove and return the guests whose deadline is over."""
        late = [guest for guest, until in self._until.items() if until <= now]
        for guest in late:
            del self._until[guest]
        return late

    def __iter__(self) -> Iterator[Guest]:
        """Iterate over the guests; those that have owed for longest come first."""
        return iter(self._until)


class Unread:
    """Whether a client reads what waits for it, looked at now and then."""

    __slots__ = ("_left", "_since")

    def __init__(self) -> None:
        self._left, self._since = -1, 0.0

    def stuck(self, left: int, now: float) -> float:
        """For how many seconds the client has read nothing, if so many bytes are left now."""
        if self._left < 0 or left < self._left:
            self._left, self._since = left, now
        return now - self._since

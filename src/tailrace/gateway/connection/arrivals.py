"""Connections whose next request is not there yet, and how many connections there may be. Without I/O."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

Guest = TypeVar("Guest")

# Descriptors that the gateway needs itself, for Redis, Kafka and files; and those that are for health alone. With few
# descriptors it is a part of them.
_OWN, _OWN_PART = 100, 4
_RESERVE, _RESERVE_PART = 32, 16
# From this part of the connections on, the limit is near.
_NEAR = 0.8


@dataclass(frozen=True)
class Capacity:
    """How many connections there may be: `most` ordinary ones, and `reserve` more that only health is served on."""

    most: int
    reserve: int

    @classmethod
    def of(cls, descriptors: int) -> Capacity:
        """With so many descriptors for the whole process."""
        own = min(_OWN, descriptors // _OWN_PART)
        reserve = min(_RESERVE, descriptors // _RESERVE_PART)
        return cls(max(1, descriptors - own - reserve), reserve)

    def near(self, connections: int) -> bool:
        """Whether so many connections are nearly all that there may be."""
        return connections > self.most * _NEAR


class Arrivals(Generic[Guest]):
    """Who is to send a request, and until when."""

    def __init__(self) -> None:
        self._until: dict[Guest, float] = {}

    def __len__(self) -> int:
        return len(self._until)

    def expect(self, guest: Guest, until: float) -> None:
        """A guest is to send a whole request by then."""
        self._until.pop(guest, None)
        self._until[guest] = until

    def forget(self, guest: Guest) -> None:
        """Its request has come, or it has left."""
        self._until.pop(guest, None)

    def overdue(self, now: float) -> list[Guest]:
        """Those whose time is over; they are not expected any longer."""
        late = [guest for guest, until in self._until.items() if until <= now]
        for guest in late:
            del self._until[guest]
        return late

    def __iter__(self) -> Iterator[Guest]:
        """Those that have waited longest first."""
        return iter(self._until)


class Unread:
    """What waits for a client to read it, looked at now and then."""

    __slots__ = ("_left", "_since")

    def __init__(self) -> None:
        self._left, self._since = -1, 0.0

    def stuck(self, left: int, now: float) -> float:
        """For how many seconds nothing was read, if so many bytes are left now."""
        if self._left < 0 or left < self._left:
            self._left, self._since = left, now
        return now - self._since

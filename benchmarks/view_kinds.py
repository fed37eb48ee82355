"""Kinds of views: the events that go in, and how each is found again in the rows that come out.

Every event has a mark and a number. The mark names a row, or one side of it; the number rises with each event of the
mark and can be read from the row. So an event is absorbed when a row shows its number or a later one, also where rows
are conflated.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from random import Random
from typing import Any

Mark = tuple[str, ...]
_TIME = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d")


@dataclass(frozen=True)
class Event:
    """One record to produce; no mark where no row comes of it."""

    topic: str
    key: str | None
    value: str
    mark: Mark | None
    number: int


class Kind:
    """Makes the events of one run, and remembers the last number of each mark."""

    topics: tuple[str, ...]
    # Whether each event is a row of its own, and none is conflated.
    every = False

    def __init__(self) -> None:
        self.last: dict[Mark, int] = defaultdict(int)
        self.made = 0
        self.outputs = 0
        self._random = Random(1)

    def event(self, keys: int, at: float) -> Event:
        """The next event, of one of `keys` keys; `at` is its time in seconds."""
        event = self._event(self._random.randrange(keys), at)
        self.made += 1
        if event.mark is not None:
            self.last[event.mark] = event.number
            self.outputs += 1
        return event

    def marks(self, row: dict[str, Any]) -> Iterable[tuple[Mark, int]]:
        """The marks that a row shows, with their numbers."""
        raise NotImplementedError

    def _event(self, key: int, at: float) -> Event:
        raise NotImplementedError


class Aggregate(Kind):
    """Average and count per movie: the count is the number."""

    topics = ("ratings",)

    def marks(self, row: dict[str, Any]) -> Iterable[tuple[Mark, int]]:
        """The count of the movie."""
        return [((str(row["movie_id"]),), row["ratings"])]

    def _event(self, key: int, at: float) -> Event:
        del at
        mark = (str(key),)
        value = f'{{"movie_id":{key},"rating":{self.made % 21 / 2}}}'
        return Event("ratings", None, value, mark, self.last[mark] + 1)


class Latest(Kind):
    """The last position of each vehicle: its latitude is the number."""

    topics = ("positions",)

    def marks(self, row: dict[str, Any]) -> Iterable[tuple[Mark, int]]:
        """The latitude of the vehicle."""
        return [((row["vehicle"],), int(row["lat"]))]

    def _event(self, key: int, at: float) -> Event:
        del at
        vehicle = f"v{key}"
        number = self.last[(vehicle,)] + 1
        return Event("positions", vehicle, f'{{"lat":{number}.0,"lon":13.4}}', (vehicle,), number)


class Window(Kind):
    """Average and count per movie and minute: the count is the number."""

    topics = ("ratings",)

    def marks(self, row: dict[str, Any]) -> Iterable[tuple[Mark, int]]:
        """The count of movie and minute, whatever the column of the minute is called."""
        minute = next(v[:16].replace(" ", "T") for v in row.values() if isinstance(v, str) and _TIME.match(v))
        return [((str(row["movie_id"]), minute), row["ratings"])]

    def _event(self, key: int, at: float) -> Event:
        time = datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        mark = (str(key), time[:16])
        value = f'{{"movie_id":{key},"rating":{self.made % 21 / 2},"at":"{time}"}}'
        return Event("ratings", None, value, mark, self.last[mark] + 1)


class Join(Kind):
    """Title and score of each movie: each has a number of its own, and is a mark of its own."""

    topics = ("movies", "scores")

    def __init__(self) -> None:
        super().__init__()
        self._events: dict[str, int] = defaultdict(int)

    def marks(self, row: dict[str, Any]) -> Iterable[tuple[Mark, int]]:
        """The numbers of title and score."""
        movie = str(row["movie_id"])
        return [((movie, "title"), int(row["title"].split()[-1])), ((movie, "score"), int(row["score"]))]

    def _event(self, key: int, at: float) -> Event:
        del at
        movie = str(key)
        side = "title" if self._events[movie] % 2 == 0 else "score"
        self._events[movie] += 1
        number = (self._events[movie] + 1) // 2
        if side == "score":
            return Event("scores", movie, f'{{"score":{number}.0}}', (movie, side), number)
        # Nothing comes of the first title: its movie has no score yet.
        mark = (movie, side) if number > 1 else None
        return Event("movies", movie, f'{{"title":"Movie {number}"}}', mark, number)


class Feed(Kind):
    """Three of four events are notices and go to their client; each is a mark of its own.

    The topic has no key, so that the notices of a client may overtake each other.
    """

    topics = ("events",)
    every = True

    def marks(self, row: dict[str, Any]) -> Iterable[tuple[Mark, int]]:
        """The notice."""
        return [((str(row["number"]),), 1)]

    def _event(self, key: int, at: float) -> Event:
        del at
        notice = self.made % 4 != 3
        kind = "notice" if notice else "noise"
        value = f'{{"client_id":"c{key}","kind":"{kind}","number":{self.made}}}'
        return Event("events", None, value, (str(self.made),) if notice else None, 1)


KINDS: dict[str, type[Kind]] = {
    "aggregate": Aggregate,
    "latest": Latest,
    "window": Window,
    "join": Join,
    "feed": Feed,
}


def read_row(value: bytes) -> dict[str, Any]:
    """A row as plain data."""
    found: dict[str, Any] = json.loads(value)
    return found

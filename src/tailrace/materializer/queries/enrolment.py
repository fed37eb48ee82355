"""Enrolment: the rows that were there before a query become its members, a bounded amount at a time.

1. All rows are scanned once for all the queries of an enrolment, and those that match become members. A row that is
   written meanwhile is evaluated when it is applied, so it does not matter whether the scan meets it.
2. The members of queries that were complete before are looked at: those that no longer match leave.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

from tailrace.materializer.queries.live_queries import ViewQueries
from tailrace.materializer.queries.outcome import Events, of_members, of_scan
from tailrace.materializer.queries.timers import Timers
from tailrace.queries import QueryIndex
from tailrace.store.layout.row import Row
from tailrace.store.write.match_writer import MatchWriter, Place

# What one step looks at: rows times queries, and at most so many rows.
_LOOKS = 50_000
_ROWS = 500
_QUERIES = 50


class Enrolment:
    """The enrolment of some queries in one partition; `fresh` says of each whether it begins from nothing."""

    def __init__(self, view: ViewQueries, fresh: Mapping[str, bool]) -> None:
        self._view = view
        self.queries = dict.fromkeys(fresh)
        self._index = QueryIndex(view.failed)
        for query in self.queries:
            self._index.add(query, view.queries[query].predicate)
        self._rows = min(_ROWS, max(10, _LOOKS // max(1, len(self.queries))))
        self._cursor: int | None = 0
        self._members = deque((query, 0) for query in self.queries if not fresh[query])

    @property
    def done(self) -> bool:
        """Whether nothing is left to look at."""
        return self._cursor is None and not self._members

    def drop(self, query: str) -> None:
        """Go on without a query."""
        self._index.remove(query)
        del self.queries[query]

    def step(self, store: MatchWriter, place: Place, timers: Timers, now: int, events: Events) -> None:
        """Look at some more. What comes of it is to be written to the same place before anything else is."""
        if self._cursor is not None:
            following, rows = store.scan_rows(place, self._cursor, self._rows)
            self._cursor = following or None
            of_scan(self._view, self._index, timers, rows, now, events)
            return
        taken = [self._members.popleft() for _ in range(min(_QUERIES, len(self._members)))]
        taken = [(query, cursor) for query, cursor in taken if query in self._index]
        if not taken:
            return
        members: dict[str, list[bytes]] = {}
        for (query, _), (following, keys) in zip(taken, store.scan_members(place, taken, self._rows), strict=True):
            members[query] = keys
            if following:
                self._members.append((query, following))
        keys = list({key for found in members.values() for key in found})
        held = dict(zip(keys, store.held(place, keys), strict=True))
        absent = Row(place.generation, 0, place.offset, now, None)
        of_members(self._view, members, held, absent, now, events)

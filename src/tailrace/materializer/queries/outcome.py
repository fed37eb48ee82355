"""What changes mean for the queries of a view. Does no I/O."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence

from tailrace.contracts.record import Change
from tailrace.materializer.queries.live_queries import ViewQueries
from tailrace.materializer.queries.timers import Timers
from tailrace.queries import QueryIndex
from tailrace.store.layout.message import GONE, ROW, QueryEvent
from tailrace.store.layout.row import StoredRow


class QueryEvents:
    """Events, and by query the numbers of those that happened in it. Queries that are not `wanted` are left out."""

    def __init__(self, wanted: Container[str]) -> None:
        self._wanted = wanted
        self.events: list[QueryEvent] = []
        self.of: dict[str, list[int]] = {}

    def add(self, event: QueryEvent, queries: Iterable[str]) -> None:
        """Add an event of some queries."""
        found = [query for query in queries if query in self._wanted]
        if not found:
            return
        self.events.append(event)
        for query in found:
            self.of.setdefault(query, []).append(len(self.events))


def entered(key: bytes, row: StoredRow | Change) -> QueryEvent:
    """The event of a key whose row matches."""
    return QueryEvent(ROW, key, row.generation, row.version, row.offset, row.timestamp, row.value)


def left(key: bytes, row: StoredRow | Change) -> QueryEvent:
    """The event of a key that is gone, or whose row does not match. The row itself is not in it."""
    return QueryEvent(GONE, key, row.generation, row.version, row.offset, row.timestamp, None)


def accepted(changes: Sequence[Change], held: Sequence[StoredRow | None]) -> list[tuple[Change, StoredRow | None]]:
    """The changes that are newer than what the store holds, each with what it holds, in the order of offsets.

    In this order, a client that has had an event has had all events with lower offsets.
    """
    found = [(change, row) for change, row in zip(changes, held, strict=True) if row is None or change.rank > row.rank]
    return sorted(found, key=lambda pair: pair[0].offset)


def of_changes(
    view: ViewQueries, timers: Timers, changes: Sequence[tuple[Change, StoredRow | None]], now: int, events: QueryEvents
) -> None:
    """Add which queries keys enter, change in or leave; `changes` come with what their keys held before."""
    clocks = len(view.clocks) > 0
    for change, held in changes:
        was: set[str] = set()
        if held is not None and held.value is not None:
            was = view.index.matching(view.row(held.value), _before(timers, change.key, now))
        row = None if change.value is None else view.row(change.value)
        matching = set() if row is None else view.index.matching(row, now)
        if clocks or len(timers):
            timers.set(change.key, None if row is None else _next_change(view.clocks, row, now))
        events.add(entered(change.key, change), matching)
        events.add(left(change.key, change), was - matching)


def of_clock(
    view: ViewQueries,
    timers: Timers,
    due: Sequence[tuple[bytes, int]],
    held: Sequence[StoredRow | None],
    now: int,
    events: QueryEvents,
) -> None:
    """Add which queries keys enter or leave without a change, because their time has come."""
    for (key, time), found in zip(due, held, strict=True):
        if found is None or found.value is None:
            continue
        row = view.row(found.value)
        was, matching = view.clocks.matching(row, time - 1), view.clocks.matching(row, now)
        timers.set(key, _next_change(view.clocks, row, now))
        events.add(entered(key, found), matching - was)
        events.add(left(key, found), was - matching)


def of_scan(
    view: ViewQueries, index: QueryIndex, timers: Timers, rows: Mapping[bytes, StoredRow], now: int, events: QueryEvents
) -> None:
    """Add which queries of an index match rows that were there before them."""
    for key, found in rows.items():
        if found.value is None:
            continue
        row = view.row(found.value)
        if len(view.clocks):
            changes = index.next_changes(row, now)
            if changes:
                timers.bring_forward(key, min(changes.values()))
        events.add(entered(key, found), index.matching(row, now))


def of_members(
    view: ViewQueries,
    members: Mapping[str, Sequence[bytes]],
    held: Mapping[bytes, StoredRow | None],
    absent: StoredRow,
    now: int,
    events: QueryEvents,
) -> None:
    """Add which keys leave queries, of those that are their members now. `absent` stands for unknown rows."""
    rows = {key: view.row(row.value) for key, row in held.items() if row is not None and row.value is not None}
    for query, keys in members.items():
        live = view.queries.get(query)
        for key in keys:
            row = rows.get(key)
            if live is not None and (row is None or not view.index.holds(query, row, now)):
                events.add(left(key, held[key] or absent), (query,))


def _before(timers: Timers, key: bytes, now: int) -> int:
    """The last time at which a key's membership was decided: before its timer, even if that is overdue."""
    time = timers.get(key)
    return now if time is None else min(now, time - 1)


def _next_change(clocks: QueryIndex, row: Mapping[str, object], now: int) -> int | None:
    return min(clocks.next_changes(row, now).values(), default=None)

"""The live queries of one open partition: their members in the store, kept in step with its rows.

A query goes through three modes in a partition:

    quiet      it has begun from nothing: members are gathered, nothing is published
    unsettled  it was complete before another instance, or this one, opened the partition: members are looked at once
               more; what has changed meanwhile is published, and so is every new change
    settled    it is complete; `ready` was published when it became so

All of it is rebuilt from the store when the partition is opened, so a crash at any moment loses nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from tailrace.contracts.record import Change
from tailrace.materializer.queries.live_queries import ViewQueries
from tailrace.materializer.queries.outcome import QueryEvents, accepted, of_changes, of_clock, of_members, of_scan
from tailrace.materializer.queries.pieces import pieces
from tailrace.materializer.queries.timers import Timers
from tailrace.materializer.views.batch import ViewBatch
from tailrace.materializer.views.partition import ViewPartition
from tailrace.queries import QueryIndex
from tailrace.store.layout.row import StoredRow
from tailrace.store.write.match_writer import (
    QUIET,
    SETTLED,
    UNSETTLED,
    BelievedPartition,
    Matched,
    MatchWriter,
    Outcome,
)
from tailrace.store.write.writer import Applied, PositionMoved, Rejected

# How long a query's keys outlive it in the store, in ms: clocks differ, and not every refresh needs to be written.
SLACK = 60_000
# How long a key that has left is remembered, in ms.
REMEMBERED = 3_600_000
# If a store loses a query's keys at once, because its clock is far ahead, it is asked again after this pause, in ms.
_PAUSE = 1000
_MOST = 500
# How often, in ms, it is noted which offset is stored.
_NOTE_EVERY = 10_000
# Redis serves nobody else while it takes in what rows mean for queries: this is about how many entries it gets at once.
_ENTRIES = 20_000
# What one step of an enrolment looks at: about this many rows times queries, and at most this many rows and queries.
_LOOKS = 50_000
_ROWS = 500
_QUERIES = 50


class PartitionQueries:
    """Evaluates queries for a partition that is whole. If a method raises Unavailable, drop the whole object."""

    def __init__(
        self,
        held: ViewPartition,
        view: ViewQueries,
        store: MatchWriter,
        clock: Callable[[], int],
        made: Callable[[int], None] = lambda _: None,
        entries: int = _ENTRIES,
    ) -> None:
        self._held = held
        self._view = view
        self._store = store
        self._clock = clock
        self._made = made
        self._entries = entries
        self._now = 0
        self._enlist_at = 0
        self._ended: dict[str, None] = {}
        self._begin_again()

    def _begin_again(self) -> None:
        self._generation = self._held.generation
        self._modes: dict[str, str] = {}
        self._expires: dict[str, int] = {}
        self._waiting: dict[str, None] = dict.fromkeys(self._view.queries)
        self._outdated: dict[str, None] = {}
        self._enlisted: dict[str, bool] = {}
        self._enrolment: Enrolment | None = None
        self._timers = Timers()
        # How many queries one change concerns. Until that is known: all of them.
        self._fan_out = float(len(self._view.queries))
        self._recent = RecentOffsets(REMEMBERED)

    @property
    def view(self) -> str:
        """The name of the view."""
        return self._held.view

    @property
    def active(self) -> bool:
        """Whether any query has begun here."""
        return bool(self._modes)

    def due_in(self, longest: float) -> float:
        """For how many seconds nothing is due; at most `longest`."""
        if self._ended or self._outdated or self._enlisted or self._enrolment is not None:
            return 0.0
        times = [self._timers.next(), self._enlist_at if self._waiting else None]
        first = min((time for time in times if time is not None), default=None)
        return longest if first is None else min(longest, max(0.0, (first - self._clock()) / 1000))

    def take(self, view: ViewQueries) -> None:
        """Take queries that were parsed again for other columns: each begins from nothing."""
        if view is not self._view:
            self._ended.update(dict.fromkeys(self._modes))
            self._view = view
            self._begin_again()

    def changed(self, query: str) -> None:
        """A query has begun, ended, or lives longer."""
        live = self._view.queries.get(query)
        if live is None:
            self._waiting.pop(query, None)
            if query in self._modes:
                self._drop(query)
                self._ended[query] = None
        elif query not in self._modes:
            self._waiting[query] = None
        elif live.expires + SLACK // 2 > self._expires[query]:
            self._outdated[query] = None

    def apply(self, batch: ViewBatch) -> Applied | PositionMoved | Rejected:
        """Apply a batch and what it means for the queries in one step, or in several if it means very much."""
        self._notice_hand_over()
        place, total = self._place(), Applied(0)
        most = max(1, int(self._entries / max(self._fan_out, 0.01)))
        for changes, reached in pieces(batch.changes, batch.reached, most):
            result = self._apply(place, changes, reached)
            if not isinstance(result, Applied):
                return result
            total = Applied(total.accepted + result.accepted, total.old + result.old)
            place = replace(place, offset=reached)
        return total

    def _apply(
        self, place: BelievedPartition, changes: Sequence[Change], reached: int
    ) -> Applied | PositionMoved | Rejected:
        now, events = self._time(), QueryEvents(self._modes)
        served = [change for change in changes if change.generation == self._generation]
        held = self._store.held(place, [change.key for change in served])
        of_changes(self._view, self._timers, accepted(served, held), now, events)
        result = self._store.apply(place, reached, changes, self._outcome(events))
        if not isinstance(result, Matched):
            return result
        self._fan_out = sum(map(len, events.of.values())) / max(1, len(changes))
        self._note(result)
        return result.applied

    def tend(self) -> PositionMoved | None:
        """Do a bounded amount of what is due. PositionMoved if the partition must be opened again."""
        self._notice_hand_over()
        place, now = self._place(), self._time()
        moved = self._clock_events(place, now)
        if self._ended:
            self._store.delist(place, self._ended)
            self._ended.clear()
        if moved is None and self._waiting and now >= self._enlist_at:
            moved = self._enlist(place, now)
        overdue = self._timers.next()
        # A member's timer says when it was last looked at: overdue ones come first.
        if moved is None and (overdue is None or overdue > now):
            moved = self._enrol(place, now)
        if moved is None and self._outdated:
            self._extend(place)
        if moved is None and self._modes:
            self._forget_left(place, now)
        return moved

    def _enlist(self, place: BelievedPartition, now: int) -> PositionMoved | None:
        taken = list(self._waiting)[:_MOST]
        wanted = {
            query: (self._view.queries[query].predicate.clock, self._view.queries[query].expires + SLACK)
            for query in taken
        }
        fresh = self._store.enlist(place, wanted, now)
        if isinstance(fresh, PositionMoved):
            return fresh
        for query in taken:
            del self._waiting[query]
            self._modes[query] = QUIET if fresh[query] else UNSETTLED
            self._expires[query] = wanted[query][1]
            self._enlisted[query] = fresh[query]
        return None

    def _enrol(self, place: BelievedPartition, now: int) -> PositionMoved | None:
        if self._enrolment is None:
            if not self._enlisted:
                return None
            self._enrolment, self._enlisted = Enrolment(self._view, self._enlisted), {}
        events = QueryEvents(self._modes)
        self._enrolment.step(self._store, place, self._timers, now, events)
        if (moved := self._write(place, events)) is not None:
            return moved
        if not self._enrolment.done:
            return None
        queries, self._enrolment = list(self._enrolment.queries), None
        for first in range(0, len(queries), _MOST):
            some = queries[first : first + _MOST]
            lost = self._store.settle(place, some, now)
            if isinstance(lost, PositionMoved):
                return lost
            self._modes.update(dict.fromkeys(some, SETTLED))
            self._lose(lost)
        return None

    def _clock_events(self, place: BelievedPartition, now: int) -> PositionMoved | None:
        due = self._timers.due(now, min(_MOST, max(1, _ENTRIES // max(1, len(self._view.clocks)))))
        if not due:
            return None
        events = QueryEvents(self._modes)
        of_clock(self._view, self._timers, due, self._store.held(place, [key for key, _ in due]), now, events)
        return self._write(place, events)

    def _write(self, place: BelievedPartition, events: QueryEvents) -> PositionMoved | None:
        """Write what happened in queries without a change of rows."""
        if not events.events:
            return None
        result = self._store.apply(place, place.offset, (), self._outcome(events))
        if isinstance(result, Matched):
            self._note(result)
            return None
        # If Redis rejects it, it may be too much at once: look at everything again.
        return result if isinstance(result, PositionMoved) else PositionMoved(place.offset)

    def _extend(self, place: BelievedPartition) -> None:
        taken = list(self._outdated)[:_MOST]
        for query in taken:
            del self._outdated[query]
            self._expires[query] = self._view.queries[query].expires + SLACK
        last = max(self._expires.values())
        self._lose(self._store.extend(place, {query: self._expires[query] for query in taken}, last))

    def _forget_left(self, place: BelievedPartition, now: int) -> None:
        old, queries = self._recent.note(now, place.offset), list(self._modes)
        if old is not None:
            for first in range(0, len(queries), _MOST):
                self._store.forget_left(place, queries[first : first + _MOST], old)

    def _note(self, result: Matched) -> None:
        self._lose(result.lost)
        self._made(result.made)

    def _lose(self, queries: Iterable[str]) -> None:
        """Begin again with queries whose keys the store has lost."""
        for query in queries:
            self._drop(query)
            if query in self._view.queries:
                self._waiting[query] = None
                self._enlist_at = self._now + _PAUSE

    def _drop(self, query: str) -> None:
        self._modes.pop(query, None)
        self._expires.pop(query, None)
        self._outdated.pop(query, None)
        self._enlisted.pop(query, None)
        if self._enrolment is not None and query in self._enrolment.queries:
            self._enrolment.drop(query)

    def _notice_hand_over(self) -> None:
        """Another generation has other rows: every query begins from nothing."""
        if self._held.generation != self._generation:
            self._begin_again()

    def _outcome(self, events: QueryEvents) -> Outcome:
        return Outcome(events.events, events.of, self._modes, self._expires)

    def _place(self) -> BelievedPartition:
        held = self._held
        return BelievedPartition(held.view, held.number, held.lineage, held.stored, self._generation)

    def _time(self) -> int:
        """The clock, except that it never goes back: nothing is decided for an earlier time than before."""
        self._now = max(self._now, self._clock())
        return self._now


class RecentOffsets:
    """Which offset was stored when, every ten seconds, for `remembered` ms. Times are in ms since 1970."""

    def __init__(self, remembered: int) -> None:
        self._remembered = remembered
        self._notes: deque[tuple[int, int]] = deque()
        self._next = 0

    def note(self, now: int, offset: int) -> int | None:
        """Note the offset stored now. Returns up to which offset all is too old to be remembered, if that has moved."""
        if now < self._next:
            return None
        self._next = now + _NOTE_EVERY
        self._notes.append((now, offset))
        old = None
        while self._notes[0][0] <= now - self._remembered:
            old = self._notes.popleft()[1]
        return old


class Enrolment:
    """The rows that were there before some queries become their members, a bounded amount at a time.

    1. All rows are scanned once for all the queries, and those that match become members. A row that is written
       meanwhile is evaluated when it is applied, so it does not matter whether the scan meets it.
    2. The members of queries that were complete before are looked at: those that no longer match leave.

    `fresh` says of each query whether it begins from nothing.
    """

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

    def step(self, store: MatchWriter, place: BelievedPartition, timers: Timers, now: int, events: QueryEvents) -> None:
        """Look at some more. Write what comes of it to the same place before anything else."""
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
        absent = StoredRow(place.generation, 0, place.offset, now, None)
        of_members(self._view, members, held, absent, now, events)

"""The index: which of many queries a row matches, without evaluating each."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping

from tailrace.queries.cells import reader
from tailrace.queries.predicate import Predicate
from tailrace.queries.tree import Field, Scalar

log = logging.getLogger(__name__)


class _Entry:
    """A predicate and the ids of the queries that have it."""

    __slots__ = ("failed", "field", "ids", "predicate")

    def __init__(self, predicate: Predicate) -> None:
        self.predicate = predicate
        self.ids: set[str] = set()
        self.failed = False
        # The entry is indexed by the column for which it allows the fewest values.
        terms = predicate.terms
        self.field = min(terms, key=lambda field: len(terms[field]), default=None)


class _Column:
    """The entries with an equality on one column, by the value that they ask for."""

    __slots__ = ("by_value", "read")

    def __init__(self, field: Field) -> None:
        self.read = reader(field)
        self.by_value: dict[Scalar, dict[_Entry, None]] = {}


class QueryIndex:
    """Queries by id. Equal predicates are evaluated once; those with an equality term only for rows that fulfil it.

    A predicate that fails on a row does not match it. That is logged, and `failed` is called, once per predicate.
    """

    def __init__(self, failed: Callable[[], None] = lambda: None) -> None:
        self._failed = failed
        self._by_id: dict[str, _Entry] = {}
        self._entries: dict[Predicate, _Entry] = {}
        self._columns: dict[Field, _Column] = {}
        self._others: dict[_Entry, None] = {}

    def __len__(self) -> int:
        return len(self._by_id)

    def __contains__(self, id: object) -> bool:
        return id in self._by_id

    def add(self, id: str, predicate: Predicate) -> None:
        """Add a query, or replace the one with the same id."""
        self.remove(id)
        entry = self._entries.get(predicate)
        if entry is None:
            entry = self._entries[predicate] = _Entry(predicate)
            self._place(entry)
        entry.ids.add(id)
        self._by_id[id] = entry

    def remove(self, id: str) -> None:
        """Remove a query, if it is in."""
        entry = self._by_id.pop(id, None)
        if entry is None:
            return
        entry.ids.discard(id)
        if not entry.ids:
            del self._entries[entry.predicate]
            self._displace(entry)

    def matching(self, row: Mapping[str, object], now_ms: int) -> set[str]:
        """The ids of the queries that a row matches at a time."""
        found: set[str] = set()
        try:
            for entries in self._candidates(row):
                for entry in entries:
                    if entry.predicate.matches(row, now_ms):
                        found |= entry.ids
        except Exception:
            return {id for entry in self._entries.values() if self._matches(entry, row, now_ms) for id in entry.ids}
        return found

    def holds(self, id: str, row: Mapping[str, object], now_ms: int) -> bool:
        """Whether a row matches the query of an id, if it is in."""
        entry = self._by_id.get(id)
        return entry is not None and self._matches(entry, row, now_ms)

    def next_changes(self, row: Mapping[str, object], now_ms: int) -> dict[str, int]:
        """The times at which answers for a row change by the clock alone: id → `next_change`, if there is one."""
        found: dict[str, int] = {}
        for entries in self._candidates(row):
            for entry in entries:
                if entry.predicate.clock and (at := self._next_change(entry, row, now_ms)) is not None:
                    found.update(dict.fromkeys(entry.ids, at))
        return found

    def _matches(self, entry: _Entry, row: Mapping[str, object], now_ms: int) -> bool:
        try:
            return entry.predicate.matches(row, now_ms)
        except Exception:
            self._fail(entry)
            return False

    def _next_change(self, entry: _Entry, row: Mapping[str, object], now_ms: int) -> int | None:
        try:
            return entry.predicate.next_change(row, now_ms)
        except Exception:
            self._fail(entry)
            return None

    def _fail(self, entry: _Entry) -> None:
        if not entry.failed:
            entry.failed = True
            log.exception("a query failed on a row, and does not match such rows: %s", entry.predicate.text[:200])
            self._failed()

    def _candidates(self, row: Mapping[str, object]) -> Iterator[Iterable[_Entry]]:
        """The entries whose equality term the row fulfils, or that have none."""
        yield self._others
        for column in self._columns.values():
            yield column.by_value.get(column.read(row), ())

    def _place(self, entry: _Entry) -> None:
        if entry.field is None:
            self._others[entry] = None
            return
        values = entry.predicate.terms[entry.field]
        if not values:
            # No row fulfils `s = 'a' and s = 'b'`, so it is evaluated for none.
            return
        column = self._columns.setdefault(entry.field, _Column(entry.field))
        for value in values:
            column.by_value.setdefault(value, {})[entry] = None

    def _displace(self, entry: _Entry) -> None:
        if entry.field is None:
            del self._others[entry]
            return
        values = entry.predicate.terms[entry.field]
        if not values:
            return
        column = self._columns[entry.field]
        for value in values:
            entries = column.by_value[value]
            del entries[entry]
            if not entries:
                del column.by_value[value]
        if not column.by_value:
            del self._columns[entry.field]

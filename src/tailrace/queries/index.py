"""The index: which of many queries a row matches, without asking each."""

from __future__ import annotations

from collections.abc import Mapping

from tailrace.queries.cells import reader
from tailrace.queries.evaluation import Read
from tailrace.queries.predicate import Predicate
from tailrace.queries.tree import Field, Scalar


class _Column:
    """The predicates that ask one column for equality, by the value they ask for."""

    def __init__(self, field: Field) -> None:
        self.read: Read = reader(field)
        self.by_value: dict[Scalar, dict[Predicate, None]] = {}


class QueryIndex:
    """Queries by id. Equal predicates are looked at once; those with an equality term only for rows that fulfil it."""

    def __init__(self) -> None:
        self._predicates: dict[str, Predicate] = {}
        self._ids: dict[Predicate, set[str]] = {}
        self._columns: dict[Field, _Column] = {}
        self._others: dict[Predicate, None] = {}

    def __len__(self) -> int:
        return len(self._predicates)

    def __contains__(self, id: str) -> bool:
        return id in self._predicates

    def add(self, id: str, predicate: Predicate) -> None:
        """Put a query in; one of the same id is replaced."""
        if self._predicates.get(id) == predicate:
            return
        self.remove(id)
        self._predicates[id] = predicate
        if predicate in self._ids:
            self._ids[predicate].add(id)
            return
        self._ids[predicate] = {id}
        field = _indexed(predicate)
        if field is None:
            self._others[predicate] = None
            return
        column = self._columns.setdefault(field, _Column(field))
        for value in predicate.terms[field]:
            column.by_value.setdefault(value, {})[predicate] = None

    def remove(self, id: str) -> None:
        """Take a query out, if it is in."""
        predicate = self._predicates.pop(id, None)
        if predicate is None:
            return
        self._ids[predicate].discard(id)
        if self._ids[predicate]:
            return
        del self._ids[predicate]
        field = _indexed(predicate)
        if field is None:
            del self._others[predicate]
            return
        column = self._columns[field]
        for value in predicate.terms[field]:
            del column.by_value[value][predicate]
            if not column.by_value[value]:
                del column.by_value[value]
        if not column.by_value:
            del self._columns[field]

    def matching(self, row: Mapping[str, object], now_ms: int) -> set[str]:
        """The ids of the queries that a row matches at a time."""
        found: set[str] = set()
        for predicate in self._others:
            if predicate.matches(row, now_ms):
                found |= self._ids[predicate]
        for column in self._columns.values():
            for predicate in column.by_value.get(column.read(row), ()):
                if predicate.matches(row, now_ms):
                    found |= self._ids[predicate]
        return found


def _indexed(predicate: Predicate) -> Field | None:
    """The column that a predicate is found by: the one with the fewest values."""
    return min(predicate.terms, key=lambda field: len(predicate.terms[field]), default=None)

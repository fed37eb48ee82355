"""Parsed queries of clients and filters of tokens: one cache for all of them.

A long text takes as long to parse as a hundred short ones, so it is parsed in another thread.
"""

from __future__ import annotations

import asyncio

from tailrace.access.filters import both
from tailrace.contracts.catalog import Column
from tailrace.contracts.commands import EVERY_ROW
from tailrace.gateway.problems import Problem
from tailrace.queries import Predicate, QueryError, parse

# How many predicates are remembered, how many characters they have together, and how many one may have.
_MOST, _CHARACTERS, _LONG = 1000, 200_000, 20_000
_SHORT = 200


class Predicates:
    """Parses texts by the columns of a view, and remembers those that were used lately."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, tuple[Column, ...]], Predicate] = {}
        self._characters = 0

    async def parse(self, where: str | None, columns: tuple[Column, ...]) -> tuple[str, Predicate]:
        """The query as text, and what it means; None means every row. Raises a Problem that says what was expected."""
        text = EVERY_ROW if where is None else where
        try:
            found = self._found(text, columns)
            if found is None:
                # The parser shares nothing with other threads: it takes a text and gives a tree.
                found = parse(text, columns) if len(text) < _SHORT else await asyncio.to_thread(parse, text, columns)
                self._keep(text, columns, found)
        except QueryError as error:
            raise unusable(error) from None
        return text, found

    def known(self, text: str, columns: tuple[Column, ...]) -> Predicate:
        """What a filter means; raises QueryError. Clients of a view share a few filters, so it is parsed here."""
        found = self._found(text, columns)
        if found is None:
            found = parse(text, columns)
            self._keep(text, columns, found)
        return found

    def known_both(self, first: Predicate, second: Predicate, columns: tuple[Column, ...]) -> Predicate:
        """What matches two filters; raises QueryError. The spelling of the join means the same as the joined trees."""
        text = f"({first.text}) and ({second.text})"
        found = self._found(text, columns)
        if found is None:
            found = both(first, second)
            self._keep(text, columns, found)
        return found

    def both(self, first: Predicate, second: Predicate, columns: tuple[Column, ...]) -> Predicate:
        """What matches both, joined as trees: no parenthesis in one can end the other.

        Raises a Problem if it costs more than a query may.
        """
        try:
            joined = both(first, second)
        except QueryError as error:
            raise unusable(error) from None
        if self._found(joined.text, columns) is None:
            self._keep(joined.text, columns, joined)
        return joined

    def _found(self, text: str, columns: tuple[Column, ...]) -> Predicate | None:
        found = self._known.pop((text, columns), None)
        if found is not None:
            self._known[text, columns] = found
        return found

    def _keep(self, text: str, columns: tuple[Column, ...], predicate: Predicate) -> None:
        if len(text) > _LONG:
            return
        if (text, columns) not in self._known:
            self._characters += len(text)
        self._known[text, columns] = predicate
        while len(self._known) > _MOST or self._characters > _CHARACTERS:
            oldest = next(iter(self._known))
            del self._known[oldest]
            self._characters -= len(oldest[0])


def unusable(error: QueryError) -> Problem:
    """A 400: a query that can't be used."""
    return Problem(400, "unusable query", expected=error.expected, got=error.got, at=error.at, remedy=error.remedy)

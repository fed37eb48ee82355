"""Queries of clients, parsed beside the loop: a long one takes as long as a hundred short ones."""

from __future__ import annotations

import asyncio

from tailrace.contracts.catalog import Column
from tailrace.contracts.commands import EVERY_ROW
from tailrace.gateway.catalog import KnownView
from tailrace.gateway.problems import Problem
from tailrace.queries import Predicate, QueryError, parse

_MOST = 1000
_SHORT = 200


class Predicates:
    """Parses queries by the columns of their views. The last thousand are remembered, long ones are not."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, tuple[Column, ...]], Predicate] = {}

    async def parse(self, view: KnownView, where: str | None, filter: str | None = None) -> tuple[str, Predicate]:
        """The query, and what it means: every row where it is None, and only rows that the filter is true of.

        Raises a Problem that says what was expected. Both texts must mean something by themselves, so neither can
        change what the other means.
        """
        text = EVERY_ROW if where is None else where
        predicate = await self._parsed(text, view.columns)
        if filter is None:
            return text, predicate
        await self._parsed(filter, view.columns)
        both = f"({text}) and ({filter})" if where is not None else filter
        return both, await self._parsed(both, view.columns)

    async def _parsed(self, text: str, columns: tuple[Column, ...]) -> Predicate:
        found = self._known.get((text, columns))
        if found is not None:
            return found
        try:
            # The parser has no part in what a thread may break: it takes a text and gives a tree.
            found = parse(text, columns) if len(text) < _SHORT else await asyncio.to_thread(parse, text, columns)
        except QueryError as error:
            raise Problem(
                400,
                "unusable query",
                expected=error.expected,
                got=error.got,
                at=error.at,
                remedy=error.remedy,
            ) from None
        if len(text) < _SHORT:
            if len(self._known) >= _MOST:
                del self._known[next(iter(self._known))]
            self._known[text, columns] = found
        return found

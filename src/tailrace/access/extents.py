"""Extents: which rows of a view, or clients of a feed, rights mean. One decision, for every surface.

Rights name keys by patterns, and a view has a key of certain columns. Here they are put together. Lookups and streams
of keys ask `allows`, which compares texts. Listings and queries ask `condition`, which says the same as a query.
Patterns that do not fit the key are refused whole: a pattern that no key can match shows that the rights mean
something else than the view.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property, lru_cache

from tailrace.access.filters import literal
from tailrace.access.patterns import KeyPattern, Pattern, cells
from tailrace.contracts.catalog import Column
from tailrace.queries.kinds import Kind, kind_of
from tailrace.types import spark

# A whole number as a row writes it: one text for each.
_WHOLE = re.compile(r"0|-?[1-9][0-9]{0,37}", re.ASCII)


class Unfit(ValueError):
    """Patterns that do not fit the key of a view. The text says why, without the values of claims."""


@dataclass(frozen=True)
class Extent:
    """`patterns` has, per alternative, one pattern for each column of the key; None means every key."""

    key: tuple[Column, ...]
    patterns: tuple[tuple[Pattern, ...], ...] | None = None

    def allows(self, key: str) -> bool:
        """Whether the rights mean this key."""
        if self.patterns is None:
            return True
        found = [key] if len(self.key) == 1 else cells(key)
        if found is None or len(found) != len(self.key):
            return False
        return any(
            all(cell is not None and pattern.matches(cell) for pattern, cell in zip(one, found, strict=True))
            for one in self.patterns
        )

    @cached_property
    def condition(self) -> str | None:
        """The same as a query, `true` for every key; None if no query can say it."""
        if self.patterns is None:
            return "true"
        terms = []
        for one in self.patterns:
            conditions = [_condition(pattern, column) for pattern, column in zip(one, self.key, strict=True)]
            if None in conditions:
                return None
            terms.append(" and ".join(condition for condition in conditions if condition is not None))
        return " or ".join(terms) or "false"


@lru_cache(maxsize=1024)
def extent(patterns: tuple[KeyPattern, ...] | None, key: tuple[Column, ...]) -> Extent:
    """What patterns mean for a key of these columns; None means every key. Raises Unfit if they do not fit."""
    if patterns is None:
        return Extent(key)
    found = tuple(_columns(pattern, key) for pattern in patterns)
    for one in found:
        for pattern, column in zip(one, key, strict=True):
            _check(pattern, column)
    return Extent(key, None if any(all(pattern.anything for pattern in one) for one in found) else found)


def exact_key(key: str, columns: tuple[Column, ...]) -> str | None:
    """The condition that a row has this key, as a query; None if no query can say it."""
    found = [key] if len(columns) == 1 else cells(key)
    if found is None or len(found) != len(columns):
        return None
    pairs = zip(found, columns, strict=True)
    conditions = [None if cell is None else _condition(Pattern(cell), column) for cell, column in pairs]
    return None if None in conditions else " and ".join(one for one in conditions if one is not None)


def _columns(pattern: KeyPattern, key: tuple[Column, ...]) -> tuple[Pattern, ...]:
    if isinstance(pattern, Pattern):
        if len(key) == 1:
            return (pattern,)
        if pattern.anything:
            return (pattern,) * len(key)
        raise Unfit(f"expected an array of {len(key)} patterns, one per column of the key, got a text")
    if len(pattern.columns) != len(key):
        raise Unfit(f"expected a pattern for each of {len(key)} columns of the key, got {len(pattern.columns)}")
    return pattern.columns


def _check(pattern: Pattern, column: Column) -> None:
    if pattern.open:
        return
    kind = kind_of(spark.read(column.type))
    if kind is Kind.INTEGER and not _WHOLE.fullmatch(pattern.text):
        raise Unfit(f"expected a whole number without leading zeros for the key column {column.name}, got another text")
    if kind is Kind.BOOLEAN and pattern.text not in ("true", "false"):
        raise Unfit(f"expected true or false for the key column {column.name}, got another text")


def _condition(pattern: Pattern, column: Column) -> str | None:
    kind, name = kind_of(spark.read(column.type)), '"' + column.name.replace('"', '""') + '"'
    if pattern.anything:
        return f"{name} is not null"
    if kind is Kind.TEXT and pattern.open:
        escaped = re.sub(r"([\\%_])", r"\\\1", pattern.text)
        return f"{name} like {literal(escaped + '%')}"
    if kind is Kind.TEXT:
        return f"{name} = {literal(pattern.text)}"
    if kind is Kind.INTEGER and not pattern.open:
        # In parentheses, so that two signs are no comment. A text that no row writes this way is no row's key.
        return f"{name} = ({pattern.text})" if _WHOLE.fullmatch(pattern.text) else "false"
    if kind is Kind.BOOLEAN and not pattern.open:
        return f"{name} = {pattern.text}" if pattern.text in ("true", "false") else "false"
    return None

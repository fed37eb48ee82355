"""Filters: which rows a token may see, whatever it asks for.

A filter is written as a query with claims in it: `customer_id = {sub}`. A claim goes in as a literal, and only where
a query may have one: what a claim holds is compared with, and never read.

    {sub}            text as text, numbers as numbers, booleans as booleans; a list as the values of an `in (…)`
    '{sub}'          text; also as a part of it: 'clients/{sub}'
    {sub:integer}    a whole number, also where the claim is text, as `sub` always is
    {sub:text}       text, also where the claim is a number

A filter and a query are joined as trees, never as texts: no parenthesis of a client can end the filter.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from tailrace.access.patterns import ColumnPatterns, KeyPattern, Pattern, cells
from tailrace.access.templates import MOST, Claims, Piece, Placeholder, TemplateError, claim, read_template, text_of
from tailrace.catalog import Column
from tailrace.queries import Predicate, QueryError, parse, tokens
from tailrace.queries.conditions import every
from tailrace.queries.kinds import Kind, read_type
from tailrace.queries.limits import MAX_COST

_WHOLE = re.compile(r"-?[0-9]{1,38}", re.ASCII)
# Stands for a claim where a template is checked; it is of the private use area, which no query needs.
_MARK = "\ue000"
# After these words a text is not compared with: in a pattern, % and _ would match more than themselves.
_LONE = ("LIKE", "ESCAPE", "DATE", "TIMESTAMP", "INTERVAL")


@dataclass(frozen=True)
class FilterTemplate:
    """A filter with claims to be filled in. `quoted` says of each piece whether it stands within a text."""

    pieces: tuple[tuple[Piece, bool], ...]

    def text(self, claims: Claims) -> str | None:
        """The filter of a token; None where a claim is missing or not what the filter needs."""
        filled = [_filled(piece, quoted, claims) for piece, quoted in self.pieces]
        return None if None in filled else "".join(piece for piece in filled if piece is not None)


def read_filter(text: str) -> FilterTemplate:
    """The template of a filter; raises TemplateError for one that no token could make a query of."""
    pieces: list[tuple[Piece, bool]] = []
    quoted = False
    for piece in read_template(text):
        if isinstance(piece, Placeholder) and quoted and piece.kind is not None:
            raise TemplateError(f"expected {piece} outside of quotes: within them everything is text")
        pieces.append((piece, quoted))
        if isinstance(piece, str):
            quoted ^= piece.count("'") % 2 == 1
    template = FilterTemplate(tuple(pieces))
    _check(template)
    return template


def key_filter(patterns: Sequence[KeyPattern], key: Sequence[Column]) -> str | None:
    """The condition that a row's key matches one of the patterns, as a query; None where no query can say it."""
    terms = []
    for pattern in patterns:
        columns = (pattern,) if isinstance(pattern, Pattern) else pattern.columns
        if len(columns) != len(key):
            continue
        conditions = [_column_filter(one, column) for one, column in zip(columns, key, strict=True)]
        if None in conditions:
            return None
        terms.append(" and ".join(condition for condition in conditions if condition is not None))
    return " or ".join(terms) or "false"


def exact_key(key: str, columns: Sequence[Column]) -> str | None:
    """The condition that a row has this key, as a query; None where no query can say it."""
    if len(columns) == 1:
        return key_filter([Pattern(key)], columns)
    found = cells(key)
    return None if found is None else key_filter([ColumnPatterns(tuple(map(Pattern, found)))], columns)


@lru_cache(maxsize=1024)
def predicate(text: str, columns: tuple[Column, ...]) -> Predicate:
    """The predicate of a filter; raises QueryError. Clients of one view share a few filters, or connect again."""
    return parse(text, columns)


def both(first: Predicate, second: Predicate) -> Predicate:
    """What matches both; raises QueryError where that costs more than a query may."""
    joined = Predicate.of(every([first.tree, second.tree]))
    if joined.cost > MAX_COST:
        raise QueryError(
            expected=f"a query that costs at most {MAX_COST} comparisons per row, with what your rights add to it",
            got=str(joined.cost),
            remedy="Ask for less at once.",
        )
    tokens.check(joined.text)
    return joined


def literal(value: object) -> str | None:
    """A value as a query spells it; None for what is no value of a query."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        if not math.isfinite(value):
            return None
        # In parentheses, so that nothing beside it can become a part of it, or two signs a comment.
        return f"({value!r})"
    text = text_of(value)
    return None if text is None else _quoted(text)


def _filled(piece: Piece, quoted: bool, claims: Claims) -> str | None:
    if isinstance(piece, str):
        return piece
    value = claim(claims, piece.claim)
    if quoted:
        text = text_of(value)
        return None if text is None else text.replace("'", "''")
    if piece.kind == "integer":
        text = text_of(value)
        return literal(int(text)) if text is not None and _WHOLE.fullmatch(text) else None
    if piece.kind == "text":
        text = text_of(value)
        return None if text is None else _quoted(text)
    if isinstance(value, list):
        spelled = [literal(one) for one in value[:MOST]]
        return None if not spelled or None in spelled else ", ".join(one for one in spelled if one is not None)
    return literal(value)


def _check(template: FilterTemplate) -> None:
    """Whether claims stand only where a literal may, whatever they hold."""
    marked = "".join(
        piece if isinstance(piece, str) else _MARK if quoted else "(0)" if piece.kind == "integer" else f"'{_MARK}'"
        for piece, quoted in template.pieces
    )
    try:
        found = tokens.check(marked)
    except QueryError as error:
        raise TemplateError(str(error).replace(_MARK, "…")) from None
    for before, token in zip([None, *found], found, strict=False):
        if _MARK not in token.text:
            continue
        if token.token_type.name != "STRING":
            raise TemplateError("expected a claim where a value may stand, got one in the name of a column")
        if before is not None and before.token_type.name in _LONE:
            raise TemplateError(f"expected a claim to be compared with =, <>, <, > or in, got one after {before.text}")


def _column_filter(pattern: Pattern, column: Column) -> str | None:
    kind, name = read_type(column.type).kind, '"' + column.name.replace('"', '""') + '"'
    if pattern.anything:
        return f"{name} is not null"
    if kind is Kind.TEXT and pattern.open:
        escaped = re.sub(r"([\\%_])", r"\\\1", pattern.text)
        return f"{name} like {_quoted(escaped + '%')}"
    if kind is Kind.TEXT:
        return f"{name} = {_quoted(pattern.text)}"
    if kind is Kind.INTEGER and not pattern.open:
        return f"{name} = {literal(int(pattern.text))}" if _WHOLE.fullmatch(pattern.text) else "false"
    if kind is Kind.BOOLEAN and not pattern.open:
        return f"{name} = {pattern.text}" if pattern.text in ("true", "false") else "false"
    return None


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"

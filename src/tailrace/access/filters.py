"""Filters: which rows a token may see, whatever it asks for.

A filter is a query with claims in it: `customer_id = {sub}`. A claim goes in as a literal, and only where a query may
have one. Its value is compared with, and never read as text of the query.

    {sub}            text as text, numbers as numbers, booleans as booleans; a list as the values of an `in (…)`
    '{sub}'          text; also as a part of it: 'clients/{sub}'
    {sub:integer}    a whole number, even if the claim is text, as `sub` always is
    {sub:text}       text, even if the claim is a number

A filter and a query are joined as trees, never as texts: no parenthesis of a client can end the filter.
"""

from __future__ import annotations

from dataclasses import dataclass

from tailrace.access.templates import (
    Claims,
    Piece,
    Placeholder,
    TemplateError,
    Unusable,
    claim,
    read_template,
    text_value,
    values,
)
from tailrace.queries import Predicate, QueryError
from tailrace.queries.limits import MAX_COST
from tailrace.queries.parser import tokens
from tailrace.queries.parser.conditions import every

# Stands for a claim while a template is checked. It is in the private use area, which no query needs.
_MARK = "\ue000"
# After these words a claim is not allowed: in a pattern, % and _ would match more than themselves.
_LONE = ("LIKE", "ESCAPE", "DATE", "TIMESTAMP", "INTERVAL")


@dataclass(frozen=True)
class FilterTemplate:
    """A filter with claims to be filled in. `quoted` says for each piece whether it is within a text."""

    pieces: tuple[tuple[Piece, bool], ...]

    def text(self, claims: Claims) -> str | None:
        """The filter of a token; None if a claim is missing or empty. Raises Unusable if a claim can't be used."""
        filled = [_filled(piece, quoted, claims) for piece, quoted in self.pieces]
        return None if None in filled else "".join(piece for piece in filled if piece is not None)


def read_filter(text: str) -> FilterTemplate:
    """The template of a filter. Raises TemplateError if no token could make a query of it."""
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


def both(first: Predicate, second: Predicate) -> Predicate:
    """A predicate that matches what both match. Raises QueryError if it costs more than a query may."""
    joined = Predicate.of(every([first.tree, second.tree]))
    if joined.cost > MAX_COST:
        raise QueryError(
            expected=f"a query that costs at most {MAX_COST} comparisons per row, with what your rights add to it",
            got=str(joined.cost),
            remedy="Ask for less at once.",
        )
    tokens.check(joined.text)
    return joined


def literal(value: str | int | float | bool) -> str:
    """A value as a query spells it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    # In parentheses, so that nothing next to it can become a part of it, and two signs are no comment.
    return f"({value!r})"


def _filled(piece: Piece, quoted: bool, claims: Claims) -> str | None:
    """A piece with its claim filled in; None if the claim is missing or empty. Raises Unusable."""
    if isinstance(piece, str):
        return piece
    found = values(claims, piece.claim)
    if not found:
        return None
    if not quoted and piece.kind is None:
        return ", ".join(literal(one) for one in found)
    if isinstance(claim(claims, piece.claim), list):
        raise Unusable(f"expected one value in the claim {piece.claim}, which stands as {piece} there, got a list")
    text = text_value(found[0], piece)
    if quoted:
        return text.replace("'", "''")
    return literal(int(text)) if piece.kind == "integer" else literal(text)


def _check(template: FilterTemplate) -> None:
    """Raise TemplateError unless claims are only where a literal may be, whatever their values."""
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

"""The order of a query's tokens: values and operators alternate, and nothing is nested too deep.

In SQL two adjacent values are an alias, a type or a function. Here they are a mistake, reported at its place.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot.tokenizer_core import Token, TokenType

from tailrace.queries.error import QueryError
from tailrace.queries.limits import MAX_NESTING, MAX_OPERATORS, MAX_PREFIXES

SUPPORTED = (
    "A query takes comparisons (=, <>, <, <=, >, >=), and, or, not, in, between, like, is null, + - * / % on numbers, "
    "and now() with intervals."
)

_T = TokenType
_VALUES = {_T.VAR, _T.IDENTIFIER, _T.STRING, _T.NUMBER, _T.NULL, _T.TRUE, _T.FALSE, _T.CURRENT_TIMESTAMP}
_ENDS = _VALUES | {_T.R_PAREN}
_STARTS = _VALUES | {_T.L_PAREN, _T.DATE, _T.TIMESTAMP, _T.INTERVAL}
_NEGATABLE = {_T.IN, _T.BETWEEN, _T.LIKE}
_BETWEEN = {_T.EQ, _T.NEQ, _T.LT, _T.LTE, _T.GT, _T.GTE, _T.AND, _T.OR, _T.IS, _T.ESCAPE, _T.STAR, _T.SLASH, _T.MOD}
_BETWEEN |= {_T.COMMA, _T.R_PAREN, *_NEGATABLE}
_OPERATORS = {_T.PLUS, _T.DASH, _T.STAR, _T.SLASH, _T.MOD}
_PREFIXES = {_T.NOT, _T.DASH, _T.PLUS}


def check_order(tokens: Sequence[Token]) -> None:
    """Raise QueryError at the first token that is out of place."""
    depth = prefixes = operators = 0
    for i, token in enumerate(tokens):
        kind = token.token_type
        depth += (kind is _T.L_PAREN) - (kind is _T.R_PAREN)
        prefixes = prefixes + 1 if kind in _PREFIXES else 0
        operators += kind in _OPERATORS
        if depth > MAX_NESTING or prefixes > MAX_PREFIXES or operators > MAX_OPERATORS:
            raise QueryError(
                expected=f"at most {MAX_NESTING} parentheses within each other, {MAX_PREFIXES} signs in a row and "
                f"{MAX_OPERATORS} arithmetic operators",
                got="more",
                remedy="Write the condition flatter.",
                at=token.start,
            )
        if depth < 0:
            raise _misplaced("an opening parenthesis before it", token)
        ended = _ended(tokens, i)
        if kind in _BETWEEN and not ended:
            raise _misplaced("a value", token)
        if kind in _STARTS and ended:
            raise _misplaced("and, or, or an operator", token)
    end = tokens[-1].end + 1
    if not _ended(tokens, len(tokens)):
        what = f"a value or a condition after {tokens[-1].text!r}"
        raise QueryError(expected=what, got="the end", remedy=SUPPORTED, at=end)
    if depth:
        raise QueryError(expected="a closing parenthesis", got="the end", remedy="Add one.", at=end)


def _ended(tokens: Sequence[Token], i: int) -> bool:
    """Whether a value is complete before a token."""
    before = tokens[i - 1].token_type if i else None
    token = tokens[i].token_type if i < len(tokens) else None
    if before is _T.NOT and token in _NEGATABLE:
        return _ended(tokens, i - 1)
    # The unit of an interval is a part of it.
    unit = token is _T.VAR and i >= 2 and tokens[i - 2].token_type is _T.INTERVAL
    return before in _ENDS and not unit


def _misplaced(expected: str, token: Token) -> QueryError:
    return QueryError(expected=expected, got=repr(token.text[:40]), remedy=SUPPORTED, at=token.start)

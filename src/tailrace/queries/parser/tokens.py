"""The tokens of a query, checked before a parser sees them.

sqlglot reads many dialects and accepts whatever one of them has. Here its parser sees only our words: every token is
checked first, and each word that is not one of ours becomes a plain name. So no statement, subquery, function, cast,
parameter, hint or comment can reach it. Depth and length are bounded before anything recursive runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from sqlglot import tokens as lexing
from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import TokenError
from sqlglot.tokenizer_core import Token, TokenType

from tailrace.queries import moments
from tailrace.queries.error import QueryError
from tailrace.queries.limits import MAX_TEXT, MAX_TOKENS
from tailrace.queries.parser.order import SUPPORTED, check_order


class QueryDialect(Dialect):
    """Names in double quotes or backticks, text in single quotes, no escapes but the doubled quote, no comments."""

    class Tokenizer(lexing.Tokenizer):
        """See above."""

        IDENTIFIERS: ClassVar[list[str | tuple[str, str]]] = ['"', "`"]
        QUOTES: ClassVar[list[tuple[str, str] | str]] = ["'"]
        STRING_ESCAPES: ClassVar[list[str]] = ["'"]
        COMMENTS: ClassVar[list[str | tuple[str, str]]] = []


_SYMBOLS = {
    TokenType.EQ: ("=", "=="),
    TokenType.NEQ: ("<>", "!="),
    TokenType.LT: ("<",),
    TokenType.LTE: ("<=",),
    TokenType.GT: (">",),
    TokenType.GTE: (">=",),
    TokenType.PLUS: ("+",),
    TokenType.DASH: ("-",),
    TokenType.STAR: ("*",),
    TokenType.SLASH: ("/",),
    TokenType.MOD: ("%",),
    TokenType.L_PAREN: ("(",),
    TokenType.R_PAREN: (")",),
    TokenType.COMMA: (",",),
    TokenType.DOT: (".",),
}
_WORDS = {
    "AND": TokenType.AND,
    "OR": TokenType.OR,
    "NOT": TokenType.NOT,
    "IN": TokenType.IN,
    "BETWEEN": TokenType.BETWEEN,
    "LIKE": TokenType.LIKE,
    "ESCAPE": TokenType.ESCAPE,
    "IS": TokenType.IS,
    "NULL": TokenType.NULL,
    "TRUE": TokenType.TRUE,
    "FALSE": TokenType.FALSE,
}
# Each is a word of ours only if its value follows, otherwise a name.
_PREFIXES = {"DATE": TokenType.DATE, "TIMESTAMP": TokenType.TIMESTAMP}
_VALUES = {TokenType.STRING, TokenType.NUMBER}
# Begins a comment in other dialects.
_MARKS = {TokenType.DASH: "--", TokenType.SLASH: "/*"}
RESERVED = frozenset(_WORDS) | {"CURRENT_TIMESTAMP"}

DIALECT = QueryDialect()


def check(text: str) -> list[Token]:
    """The tokens of a query. Raises QueryError if it is too long, too deep, or has other words than ours."""
    if len(text) > MAX_TEXT:
        raise QueryError(
            expected=f"at most {MAX_TEXT} characters, spelled in full",
            got=f"{len(text)}",
            remedy="Ask for less, or in several queries.",
        )
    try:
        raw = DIALECT.tokenize(text)
    except (TokenError, ValueError):
        at = _unclosed(text)
        raise QueryError(
            expected="text in single quotes and names in double quotes, each closed",
            got="one that is not" if at is None else repr(text[at : at + 20]),
            remedy="Close it; a quote within is doubled: 'it''s'.",
            at=at,
        ) from None
    if not raw:
        raise QueryError(expected="a condition", got="nothing", remedy="Omit the query to get all rows.")
    if len(raw) > MAX_TOKENS:
        raise QueryError(
            expected=f"at most {MAX_TOKENS} words and symbols", got=f"{len(raw)}", remedy="Ask for less at once."
        )
    tokens = list(_ours(raw, text))
    check_order(tokens)
    return tokens


def _unclosed(text: str) -> int | None:
    """The place of the quote that is never closed."""
    opened = None
    for i, character in enumerate(text):
        if opened is None and character in "'\"`":
            opened = i
        elif opened is not None and character == text[opened]:
            opened = None
    return opened


def _ours(raw: list[Token], text: str) -> Iterator[Token]:
    """The tokens as the parser may see them."""
    i = 0
    while i < len(raw):
        token, following = raw[i], raw[i + 1].token_type if i + 1 < len(raw) else None
        kind, spelled = token.token_type, text[token.start : token.end + 1]
        word, field = spelled.upper(), i > 0 and raw[i - 1].token_type is TokenType.DOT
        i += 1
        if token.comments or (kind in _MARKS and text.startswith(_MARKS[kind], token.start)):
            raise _unsupported("a comment", token)
        if kind in _VALUES or kind is TokenType.IDENTIFIER:
            if (kind is TokenType.STRING) != spelled.startswith("'"):
                raise _unsupported(repr(spelled[:20]), token)
            yield token
        elif kind in _SYMBOLS and spelled in _SYMBOLS[kind]:
            yield token
        elif not (word[:1].isalpha() or word[:1] == "_") or not word.replace("_", "a").isalnum():
            raise _unsupported(repr(spelled[:20]), token)
        elif field:
            yield _as(token, TokenType.IDENTIFIER)
        elif word in _WORDS:
            yield _as(token, _WORDS[word])
        elif word in _PREFIXES and following is TokenType.STRING:
            yield _as(token, _PREFIXES[word])
        elif word == "INTERVAL" and following in _VALUES:
            parts = raw[i : i + (1 if _has_unit(raw[i]) else 2)]
            i += len(parts)
            yield _as(token, TokenType.INTERVAL)
            yield from _interval(parts)
        elif word in ("NOW", "CURRENT_TIMESTAMP"):
            called = [t.token_type for t in raw[i : i + 2]] == [TokenType.L_PAREN, TokenType.R_PAREN]
            i += 2 if called else 0
            yield _as(token, TokenType.CURRENT_TIMESTAMP if called or word != "NOW" else TokenType.IDENTIFIER)
        elif following is TokenType.L_PAREN:
            raise _unsupported(f"the function {spelled[:40]}", token)
        else:
            yield _as(token, TokenType.IDENTIFIER)


def _has_unit(value: Token) -> bool:
    return any(character.isalpha() for character in value.text)


def _interval(parts: list[Token]) -> Iterator[Token]:
    """The value and unit of an interval, as milliseconds. The parser would ignore what it does not know in them."""
    value, text = parts[0], " ".join(part.text for part in parts)
    found = moments.read_interval(text)
    if found is None:
        raise QueryError(
            expected=moments.INTERVAL_SHAPE,
            got=repr(text[:40]),
            remedy="Months and years differ in length: write days.",
            at=value.start,
        )
    yield Token(TokenType.STRING, str(found), value.line, value.col, value.start, value.end)
    yield Token(TokenType.VAR, "millisecond", value.line, value.col, value.start, parts[-1].end)


def _as(token: Token, kind: TokenType) -> Token:
    return Token(kind, token.text, token.line, token.col, token.start, token.end)


def _unsupported(what: str, token: Token) -> QueryError:
    return QueryError(expected="what a query supports", got=what, remedy=SUPPORTED, at=token.start)

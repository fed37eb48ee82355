"""From text to the syntax tree of sqlglot: the only door to its parser."""

from __future__ import annotations

from sqlglot import exp
from sqlglot.errors import ParseError, SqlglotError

from tailrace.queries.error import QueryError
from tailrace.queries.order import SUPPORTED
from tailrace.queries.tokens import DIALECT, check


def read(text: str) -> exp.Expr:
    """The syntax tree of a query; raises QueryError for a text that is none."""
    tokens = check(text)
    try:
        found = DIALECT.parser().parse_into(exp.Condition, tokens, text)
    except ParseError as error:
        raise _misread(text, error) from None
    # What the parser trips over is no condition, whatever it trips over.
    except (SqlglotError, RecursionError, ValueError, TypeError, AttributeError, LookupError):
        raise _unreadable() from None
    if len(found) != 1 or found[0] is None:
        raise _unreadable()
    return found[0]


def place(node: exp.Expr) -> int | None:
    """Where in the text a node begins, as far as its parts say."""
    starts = [start for part in node.walk() if isinstance(start := part.meta.get("start"), int)]
    return min(starts, default=None)


def _unreadable() -> QueryError:
    return QueryError(
        expected="a condition such as status = 'open' and total > 100", got="another text", remedy=SUPPORTED
    )


def _misread(text: str, error: ParseError) -> QueryError:
    found = error.errors[0] if error.errors else {}
    got = str(found.get("highlight") or "")
    # The column is that of the last character, counted from 1.
    before = text.split("\n")[: int(found.get("line") or 1) - 1]
    at = sum(len(line) + 1 for line in before) + int(found.get("col") or 0) - len(got)
    return QueryError(
        expected="a condition such as status = 'open' and total > 100",
        got=repr(got[:40]),
        remedy=SUPPORTED,
        at=at if text.startswith(got, at) else None,
    )

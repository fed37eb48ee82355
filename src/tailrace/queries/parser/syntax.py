"""From text to the syntax tree of sqlglot: the only door to its parser."""

from __future__ import annotations

from sqlglot import exp
from sqlglot.errors import ParseError, SqlglotError

from tailrace.queries.error import QueryError
from tailrace.queries.parser.order import SUPPORTED
from tailrace.queries.parser.tokens import DIALECT, check

_TWO = frozenset({"this", "expression"})
_ONE = frozenset({"this"})
# Every kind of node that a query may have, and the arguments of it that we read. Any other argument that sqlglot sets
# would change what the node means.
_SHAPES: dict[type[exp.Expr], frozenset[str]] = {
    **dict.fromkeys((exp.And, exp.Or, exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE), _TWO),
    **dict.fromkeys((exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Mod, exp.Is, exp.Escape, exp.Dot), _TWO),
    **dict.fromkeys((exp.Paren, exp.Not, exp.Neg, exp.Boolean, exp.Null, exp.CurrentTimestamp, exp.Var), _ONE),
    exp.DataType: _ONE,
    exp.Like: _TWO | {"negate"},
    exp.Between: _ONE | {"low", "high"},
    exp.In: _ONE | {"expressions"},
    exp.Column: _ONE | {"table", "db", "catalog"},
    exp.Identifier: _ONE | {"quoted"},
    exp.Literal: _ONE | {"is_string"},
    exp.Cast: _ONE | {"to"},
    exp.Interval: _ONE | {"unit"},
}
_NAMES: dict[type, str] = {exp.Tuple: "a list", exp.Star: "*"}


def read(text: str) -> exp.Expr:
    """The syntax tree of a query. Raises QueryError for a text that is not one."""
    tokens = check(text)
    try:
        found = DIALECT.parser().parse_into(exp.Condition, tokens, text)
    except ParseError as error:
        raise _misread(text, error) from None
    # If the parser fails, for whatever reason, the text is no condition.
    except (SqlglotError, RecursionError, ValueError, TypeError, AttributeError, LookupError):
        raise _unreadable() from None
    if len(found) != 1 or found[0] is None:
        raise _unreadable()
    check_shapes(found[0])
    return found[0]


def check_shapes(tree: exp.Expr) -> None:
    """Raise QueryError if a node is unknown, or has unknown arguments."""
    for node in tree.walk():
        known = _SHAPES.get(type(node))
        if known is None or any(value and name not in known for name, value in node.args.items()):
            raise unknown(node)


def unknown(node: exp.Expr) -> QueryError:
    """The error for a node that is not supported in its place."""
    condition = isinstance(node, exp.Predicate | exp.Connector | exp.Not)
    return QueryError(
        expected="a column, a number, a text or a time",
        got="a condition" if condition else _NAMES.get(type(node), type(node).__name__.lower()),
        remedy=SUPPORTED,
        at=place(node),
    )


def place(node: exp.Expr) -> int | None:
    """The place in the text at which a node begins, as far as its parts say."""
    starts = [start for part in node.walk() if isinstance(start := part.meta.get("start"), int)]
    return min(starts, default=None)


def _unreadable() -> QueryError:
    return QueryError(
        expected="a condition such as status = 'open' and total > 100", got="another text", remedy=SUPPORTED
    )


def _misread(text: str, error: ParseError) -> QueryError:
    found = error.errors[0] if error.errors else {}
    got = str(found.get("highlight") or "")
    # sqlglot gives the column of the last character, counted from 1.
    before = text.split("\n")[: int(found.get("line") or 1) - 1]
    at = sum(len(line) + 1 for line in before) + int(found.get("col") or 0) - len(got)
    return QueryError(
        expected="a condition such as status = 'open' and total > 100",
        got=repr(got[:40]),
        remedy=SUPPORTED,
        at=at if text.startswith(got, at) else None,
    )

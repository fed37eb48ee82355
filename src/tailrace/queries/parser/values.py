"""From sqlglot's tree to values: columns, literals, arithmetic, and spans of time. Anything else is refused."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Mapping, Sequence
from decimal import Decimal

from sqlglot import exp

from tailrace.contracts.catalog import Column
from tailrace.queries import arithmetic, moments
from tailrace.queries.error import QueryError
from tailrace.queries.kinds import NUMBERS, Kind
from tailrace.queries.limits import MAX_DIGITS
from tailrace.queries.parser import spans
from tailrace.queries.parser.order import SUPPORTED
from tailrace.queries.parser.spans import Span
from tailrace.queries.parser.syntax import place, unknown
from tailrace.queries.tree import Arithmetic, Field, Literal, Value
from tailrace.types import spark
from tailrace.types.tree import Type

_NUMBER = re.compile(r"(\d+)(\.\d*)?([eE][+-]?\d{1,4})?", re.ASCII)
_OPERATORS = {exp.Add: "+", exp.Sub: "-", exp.Mul: "*", exp.Div: "/", exp.Mod: "%"}
NULL = Literal(None, Kind.OTHER)
_SHOWN = 20
_LONGEST = 40


class Values:
    """The values of a query on the rows of a view."""

    def __init__(self, columns: Sequence[Column]) -> None:
        self._types = {column.name: spark.read(column.type) for column in columns}

    def read(self, node: exp.Expr) -> Value | Span:
        """The value of a node. A time, or a difference of times, is a span."""
        match node:
            case exp.Paren():
                return self.read(node.this)
            case exp.Column() | exp.Dot():
                found = self._field(node)
                return spans.column(found) if found.kind is Kind.TIME else found
            case exp.Literal():
                return Literal(node.this, Kind.TEXT) if node.is_string else _number(node)
            case exp.Boolean():
                return Literal(bool(node.this), Kind.BOOLEAN)
            case exp.Null():
                return NULL
            case exp.Neg():
                return self._negative(node)
            case exp.Add() | exp.Sub() | exp.Mul() | exp.Div() | exp.Mod():
                return self._arithmetic(node, _OPERATORS[type(node)], self.read(node.this), self.read(node.expression))
            case exp.CurrentTimestamp():
                return spans.now()
            case exp.Interval():
                return _interval(node)
            case exp.Cast() if isinstance(node.this, exp.Literal) and node.this.is_string:
                return time_literal(node.this.this, node, day=node.to.this is exp.DType.DATE)
        raise unknown(node)

    def _field(self, node: exp.Expr) -> Field:
        path: list[str] = []
        at: exp.Expr = node
        while isinstance(at, exp.Dot):
            path.insert(0, _identifier(at.expression))
            at = at.this
        if not isinstance(at, exp.Column):
            raise unknown(node)
        path[:0] = [_identifier(part) for part in at.parts]
        types: Mapping[str, Type] = self._types
        for i, name in enumerate(path):
            if name not in types:
                raise _no_column(path[: i + 1], types, place(node))
            if i + 1 == len(path):
                return Field(tuple(path), types[name])
            if types[name].kind != "record":
                raise QueryError(
                    expected=f"a struct before .{path[i + 1]}",
                    got=described(Field(tuple(path[: i + 1]), types[name])),
                    remedy="Name the column alone.",
                    at=place(node),
                )
            types = {field.name: field.type for field in types[name].fields}
        raise AssertionError(path)

    def _negative(self, node: exp.Neg) -> Value | Span:
        operand = self.read(node.this)
        if isinstance(operand, Literal) and operand.kind in NUMBERS:
            return Literal(arithmetic.negative(operand.value), operand.kind)  # type: ignore[arg-type]
        zero = Span() if isinstance(operand, Span) else Literal(0, Kind.INTEGER)
        if isinstance(operand, Arithmetic) and operand.operator == "-" and operand.left == zero:
            return operand.right
        return self._arithmetic(node, "-", zero, operand)

    def _arithmetic(self, node: exp.Expr, operator: str, left: Value | Span, right: Value | Span) -> Value | Span:
        if NULL in (left, right):
            return NULL
        if isinstance(left, Span) or isinstance(right, Span):
            return _sum(node, operator, left, right)
        for side in (left, right):
            if side.kind not in NUMBERS:
                raise QueryError(
                    expected=f"numbers around {operator}", got=described(side), remedy=SUPPORTED, at=place(node)
                )
        kind = arithmetic.result_kind(operator, left.kind, right.kind)
        if isinstance(left, Literal) and isinstance(right, Literal):
            found = arithmetic.operation(operator, kind)(left.value, right.value)  # type: ignore[arg-type]
            if found is None:
                return NULL
            found = arithmetic.shortest(found) if isinstance(found, Decimal) else found
            # A value without a spelling as a number stays what it was.
            if math.isfinite(found) if isinstance(found, float) else _digits(f"{Decimal(found):f}") <= MAX_DIGITS:
                return Literal(found, kind)
        return Arithmetic(operator, left, right, kind)


def described(value: Value | Span) -> str:
    """A value, as an error describes it."""
    match value:
        case Span():
            return "a time" if value.weight == 1 else "an interval"
        case Field(path, of):
            return f"{'.'.join(path)} of type {of.name[:_LONGEST]}"
        case Literal(None):
            return "null"
        case Literal(held, kind):
            return f"the text {_cut(str(held))}" if kind is Kind.TEXT else f"the {kind.value} {held}"
        case Arithmetic():
            return f"the computed {value.kind.value}"


def time_literal(text: str, node: exp.Expr, *, day: bool = False) -> Span:
    """The time in a text; `day` says that it must be a date."""
    found = moments.read_literal(text) if not day or len(text.strip()) == len("2026-01-31") else None
    if found is None:
        raise QueryError(
            expected=moments.TIME_SHAPE,
            got=_cut(text),
            remedy="Write years from 0001 to 9999 and at most milliseconds; without an offset it is in UTC.",
            at=place(node),
        )
    return Span(milliseconds=found, fixed=1)


def _sum(node: exp.Expr, operator: str, left: Value | Span, right: Value | Span) -> Span:
    if isinstance(left, Span) and isinstance(right, Span) and operator in "+-":
        try:
            found = left.plus(right, 1 if operator == "+" else -1)
        except spans.Unsolvable:
            raise unsolvable(node) from None
        if found.weight in (0, 1) and abs(found.milliseconds) <= moments.MAX_INTERVAL:
            return found
    raise QueryError(
        expected="a time plus or minus an interval, or the difference of two times",
        got=f"{described(left)} {operator} {described(right)}",
        remedy="Such as now() - interval '5 minutes' or ends_at - starts_at.",
        at=place(node),
    )


def unsolvable(node: exp.Expr) -> QueryError:
    """The error for a comparison with too many times."""
    return QueryError(
        expected="each side of a comparison of times to have one of them, or one side the difference of two",
        got="more of them, or the same twice",
        remedy="Write it as column < now() + interval '5 minutes', or put the difference into a column of the view.",
        at=place(node),
    )


def _number(node: exp.Literal) -> Literal:
    text = str(node.this)
    match = _NUMBER.fullmatch(text)
    if match is None or _digits(text.lower().partition("e")[0]) > MAX_DIGITS:
        raise QueryError(
            expected=f"a number of at most {MAX_DIGITS} digits", got=text[:60], remedy="Shorten it.", at=place(node)
        )
    if match[3] is not None:
        value = float(text)
        if not math.isfinite(value):
            raise QueryError(expected="a number that a double holds", got=text, remedy="Shorten it.", at=place(node))
        return Literal(value, Kind.DOUBLE)
    if match[2] is not None:
        return Literal(arithmetic.shortest(Decimal(text)), Kind.DECIMAL)
    return Literal(int(text), Kind.INTEGER)


def _digits(text: str) -> int:
    """How many digits a number has, without zeros at the end of a fraction."""
    whole, _, fraction = text.lstrip("-").partition(".")
    return len(whole) + len(fraction.rstrip("0"))


def _interval(node: exp.Interval) -> Span:
    """The interval in milliseconds, as the tokens have it."""
    held, unit = node.this, node.args.get("unit")
    if isinstance(held, exp.Literal) and isinstance(unit, exp.Var) and unit.name.lower() == "millisecond":
        return Span(milliseconds=int(held.this))
    raise unknown(node)


def _identifier(node: exp.Expr) -> str:
    if isinstance(node, exp.Identifier):
        return str(node.this)
    raise unknown(node)


def _no_column(path: Sequence[str], known: Mapping[str, Type], at: int | None) -> QueryError:
    name = path[-1]
    close = difflib.get_close_matches(name.lower(), {other.lower(): other for other in known}, 1, 0.6)
    meant = [other for other in known if close and other.lower() == close[0]]
    shown = ", ".join([*list(known)[:_SHOWN], *(["…"] if len(known) > _SHOWN else [])])
    place_of = f"fields of {'.'.join(path[:-1])}" if len(path) > 1 else "columns"
    return QueryError(
        expected=f"one of the {place_of} {shown}",
        got=".".join(path)[:80],
        remedy=f"Did you mean {meant[0]}?"
        if meant
        else "Text stands in single quotes, names in double quotes or none.",
        at=at,
    )


def _cut(text: str) -> str:
    return repr(text) if len(text) <= _LONGEST else repr(text[:_LONGEST]) + "…"

"""Comparisons of two values: whether they are of a kind, and their one form in the tree."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

from sqlglot import exp

from tailrace.queries import moments
from tailrace.queries.arithmetic import OPERATORS, comparable
from tailrace.queries.error import QueryError
from tailrace.queries.kinds import NUMBERS, Kind
from tailrace.queries.parser import spans
from tailrace.queries.parser.spans import Span
from tailrace.queries.parser.syntax import place
from tailrace.queries.parser.values import NULL, described, time_literal, unsolvable
from tailrace.queries.spelling import spell_value
from tailrace.queries.tree import (
    FALSE,
    MIRRORED,
    Arithmetic,
    Compare,
    CompareTimes,
    Condition,
    Constant,
    Field,
    In,
    Literal,
    Value,
)

_COMPARABLE = NUMBERS | {Kind.TEXT, Kind.BOOLEAN}


def compared(node: exp.Expr, operator: str, left: Value | Span, right: Value | Span) -> Condition:
    """A comparison. Raises QueryError if the two are not of a kind. `node` is its place."""
    left, right = _as_time(node, left, right), _as_time(node, right, left)
    for side in (left, right):
        if not isinstance(side, Span) and side.kind not in _COMPARABLE and side != NULL:
            raise QueryError(
                expected="a number, text, boolean or time to compare",
                got=described(side),
                remedy="Only is null and is not null take other types.",
                at=place(node),
            )
    if NULL in (left, right):
        return FALSE
    if isinstance(left, Span) and isinstance(right, Span) and left.weight == right.weight:
        return _times(node, operator, left, right)
    if isinstance(left, Span) or isinstance(right, Span) or not _alike(left.kind, right.kind):
        raise QueryError(
            expected="two of a kind to compare",
            got=f"{described(left)} and {described(right)}",
            remedy="Text stands in single quotes, numbers in none.",
            at=place(node),
        )
    if isinstance(left, Literal) and isinstance(right, Literal):
        first, second = (comparable(a.value, a.kind, b.kind) for a, b in ((left, right), (right, left)))
        return Constant(OPERATORS[operator](first, second))
    if isinstance(left, Literal) or (not isinstance(right, Literal) and spell_value(left) > spell_value(right)):
        left, right, operator = right, left, MIRRORED[operator]
    if isinstance(right, Literal):
        right = _shortest(right, left.kind)
        if right.kind is Kind.BOOLEAN and operator == "<>":
            return Compare("=", left, Literal(not right.value, Kind.BOOLEAN))
    return Compare(operator, left, right)


def listed(operand: Field | Arithmetic, values: Sequence[Literal], negated: bool) -> Condition:
    """Whether a value is in a list, whose values are known to be of its kind."""
    if negated and NULL in values:
        return FALSE
    told: dict[object, Literal] = {}
    for value in (_shortest(value, operand.kind) for value in values if value != NULL):
        same = told.setdefault(comparable(value.value, value.kind, operand.kind), value)
        if spell_value(value) < spell_value(same):
            told[comparable(value.value, value.kind, operand.kind)] = value
    if not told:
        return FALSE
    ordered = tuple(told[value] for value in sorted(told))  # type: ignore[type-var]
    if len(ordered) == 1:
        return Compare("<>" if negated else "=", operand, ordered[0])
    return In(operand, ordered, negated)


def _shortest(literal: Literal, beside: Kind) -> Literal:
    """The same number next to exact ones, whether it was written as 1, 1.0 or 1e0."""
    value = literal.value
    exact = beside is Kind.INTEGER or (beside is Kind.DECIMAL and literal.kind is Kind.DECIMAL)
    if exact and isinstance(value, Decimal | float) and -(2**63) < value < 2**63 and value == int(value):
        return Literal(int(value), Kind.INTEGER)
    return literal


def _times(node: exp.Expr, operator: str, left: Span, right: Span) -> Condition:
    try:
        found = spans.compare(operator, left, right)
    except spans.Unsolvable:
        raise unsolvable(node) from None
    if isinstance(found, CompareTimes) and not _spellable(found):
        raise QueryError(
            expected="times in the years 0001 to 9999", got="one beyond", remedy="Shorten the interval.", at=place(node)
        )
    return found


def _spellable(found: CompareTimes) -> bool:
    if found.right is None:
        return moments.spell_time(found.milliseconds) is not None
    return abs(found.milliseconds) <= moments.MAX_INTERVAL


def _as_time(node: exp.Expr, value: Value | Span, other: Value | Span) -> Value | Span:
    """A text that is compared with a time becomes a time."""
    if isinstance(value, Literal) and value.kind is Kind.TEXT and isinstance(other, Span) and other.weight == 1:
        return time_literal(str(value.value), node)
    return value


def _alike(left: Kind, right: Kind) -> bool:
    return left is right or (left in NUMBERS and right in NUMBERS)

"""What a predicate costs per row, and the equality terms that let the index skip it."""

from __future__ import annotations

from collections.abc import Mapping

from tailrace.queries.arithmetic import comparable
from tailrace.queries.kinds import Kind
from tailrace.queries.tree import (
    All,
    Any,
    Arithmetic,
    Compare,
    CompareTimes,
    Condition,
    Constant,
    Field,
    In,
    IsNull,
    Like,
    Literal,
    Scalar,
    Value,
)

Terms = Mapping[Field, frozenset[Scalar]]

# Kinds that have one spelling per value in a row.
_INDEXED = {Kind.TEXT, Kind.INTEGER, Kind.BOOLEAN}
# A comparison with now() is evaluated again for each time at which one may change.
_CLOCK = 4


def cost_of(condition: Condition) -> int:
    """The work for a row in the worst case, in comparisons."""
    match condition:
        case Constant():
            return 1
        case All(terms) | Any(terms):
            return sum(map(cost_of, terms))
        case Compare(_, left, right):
            return 1 + _value(left) + _value(right)
        case CompareTimes():
            return _CLOCK if condition.clock else 1
        case In(operand) | IsNull(operand):
            return 1 + _value(operand)
        case Like(_, pattern):
            return 1 + pattern.pieces


def equalities(condition: Condition) -> dict[Field, frozenset[Scalar]]:
    """The columns that must hold one of certain values if the condition is true, with these values."""
    match condition:
        case Compare("=", Field() as field, Literal() as literal) if field.kind in _INDEXED:
            return {field: frozenset([comparable(literal.value, literal.kind, field.kind)])}
        case In(Field() as field, values, False) if field.kind in _INDEXED:
            return {field: frozenset(comparable(value.value, value.kind, field.kind) for value in values)}
        case All(terms):
            found: dict[Field, frozenset[Scalar]] = {}
            for term in terms:
                for column, allowed in equalities(term).items():
                    found[column] = found[column] & allowed if column in found else allowed
            return found
        case Any(terms):
            first, *others = map(equalities, terms)
            shared = [field for field in first if all(field in other for other in others)]
            return {field: first[field].union(*(other[field] for other in others)) for field in shared}
    return {}


def _value(value: Value) -> int:
    return 1 + _value(value.left) + _value(value.right) if isinstance(value, Arithmetic) else 0

"""From the tree to functions that evaluate a row: closures, made once per predicate, without any generated code."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any as Anything

from tailrace.queries.arithmetic import OPERATORS, comparable, operation, to_double
from tailrace.queries.cells import Row, reader
from tailrace.queries.kinds import NUMBERS, Kind
from tailrace.queries.tree import (
    MIRRORED,
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
    Now,
    Scalar,
    Value,
)

Check = Callable[[Row, int], bool]
Read = Callable[[Row], Scalar]


def check_of(condition: Condition) -> Check:
    """A function that says whether a row meets a condition at a time in milliseconds. Null is not true."""
    match condition:
        case Constant(value):
            return lambda _row, _now: value
        case Compare():
            return _compare(condition)
        case CompareTimes():
            return _compare_times(condition)
        case In(operand, values, negated):
            return _in(operand, values, negated)
        case Like(operand, pattern, negated):
            read_text, matches = value_of(operand), pattern.matches
            return lambda row, _: (text := read_text(row)) is not None and matches(text) is not negated  # type: ignore[arg-type]
        case IsNull(operand, negated):
            read = value_of(operand)
            return lambda row, _: (read(row) is None) is not negated
        case All(terms):
            return _all([check_of(term) for term in terms])
        case Any(terms):
            return _any([check_of(term) for term in terms])


def value_of(value: Value) -> Read:
    """A function that reads or computes a value; None for null."""
    match value:
        case Field():
            return reader(value)
        case Literal(held):
            return lambda _: held
        case Arithmetic(symbol, left, right, kind):
            first, second, compute = value_of(left), value_of(right), operation(symbol, kind)

            def computed(row: Row) -> Scalar:
                a = first(row)
                b = second(row)
                return None if a is None or b is None else compute(a, b)  # type: ignore[arg-type]

            return computed


def _compare(condition: Compare) -> Check:
    left, right, symbol = condition.left, condition.right, condition.operator
    if Kind.DOUBLE in (left.kind, right.kind) and left.kind in NUMBERS:
        return _compare_doubles(left, right, symbol)
    holds, read = OPERATORS[symbol], value_of(left)
    if not isinstance(right, Literal):
        other = value_of(right)
        return lambda row, _: (a := read(row)) is not None and (b := other(row)) is not None and holds(a, b)
    held = right.value
    if symbol == "=" and isinstance(left, Field) and len(left.path) == 1 and left.kind is Kind.TEXT:
        # By far the most frequent comparison. No value of another type equals a text.
        name = left.path[0]
        return lambda row, _: row.get(name) == held
    return lambda row, _: (a := read(row)) is not None and holds(a, held)


def _compare_doubles(left: Value, right: Value, symbol: str) -> Check:
    """Compare doubles, with NaN equal to itself and above all numbers, as in Spark."""
    if isinstance(left, Literal):
        left, right, symbol = right, left, MIRRORED[symbol]
    first, second, holds = value_of(left), value_of(right), OPERATORS[symbol]
    if isinstance(right, Literal):
        held = comparable(right.value, right.kind, left.kind)
        if held is None:
            return lambda _row, _now: False
        above = symbol in (">", ">=")
        decimals = left.kind is Kind.DECIMAL

        def with_literal(row: Row, _: int) -> bool:
            a = first(row)
            if a is None:
                return False
            if decimals:
                a = to_double(a)  # type: ignore[arg-type]
            return holds(a, held) or (above and a != a)

        return with_literal

    def with_value(row: Row, _: int) -> bool:
        a = first(row)
        b = second(row)
        return a is not None and b is not None and holds(_ordered(a), _ordered(b))

    return with_value


def _ordered(value: Scalar) -> tuple[bool, Scalar]:
    """A key that orders numbers and doubles: NaN is last and equal to itself."""
    number = to_double(value) if isinstance(value, Decimal) else value
    return (True, 0) if number is None or number != number else (False, number)


def _compare_times(condition: CompareTimes) -> Check:
    left, right, held, holds = condition.left, condition.right, condition.milliseconds, OPERATORS[condition.operator]
    if isinstance(left, Now):
        return lambda _, now: holds(now, held)
    first: Callable[[Row], Anything] = reader(left)
    if right is None:
        return lambda row, _: (a := first(row)) is not None and holds(a, held)
    if isinstance(right, Now):
        return lambda row, now: (a := first(row)) is not None and holds(a, now + held)
    second: Callable[[Row], Anything] = reader(right)
    return lambda row, _: (a := first(row)) is not None and (b := second(row)) is not None and holds(a, b + held)


def _in(operand: Value, values: tuple[Literal, ...], negated: bool) -> Check:
    read = value_of(operand)
    held = frozenset(comparable(value.value, value.kind, operand.kind) for value in values)
    if operand.kind is Kind.DECIMAL and any(value.kind is Kind.DOUBLE for value in values):
        return lambda row, _: (a := read(row)) is not None and (to_double(a) in held or a in held) is not negated  # type: ignore[arg-type]
    return lambda row, _: (a := read(row)) is not None and (a in held) is not negated


def _all(checks: list[Check]) -> Check:
    if len(checks) == 2:
        first, second = checks
        return lambda row, now: first(row, now) and second(row, now)

    def every(row: Row, now: int) -> bool:
        for check in checks:  # noqa: SIM110 - a generator costs more than the loop
            if not check(row, now):
                return False
        return True

    return every


def _any(checks: list[Check]) -> Check:
    if len(checks) == 2:
        first, second = checks
        return lambda row, now: first(row, now) or second(row, now)

    def some(row: Row, now: int) -> bool:
        for check in checks:  # noqa: SIM110 - a generator costs more than the loop
            if check(row, now):
                return True
        return False

    return some

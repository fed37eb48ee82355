"""Arithmetic of SQL: exact for whole and decimal numbers, null if there is no result.

An integer has 64 bits: beyond them there is no result. Decimals keep 38 digits. If one operand is a double, the other
becomes one, and `/` of integers gives a double, as in Spark.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from decimal import ROUND_HALF_UP, Context, Decimal, DecimalException
from typing import Any

from tailrace.queries.kinds import Kind
from tailrace.queries.limits import MAX_DIGITS
from tailrace.queries.tree import Scalar

Number = int | Decimal | float
Operation = Callable[[Number, Number], Number | None]

OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}

_DECIMALS = Context(prec=MAX_DIGITS, rounding=ROUND_HALF_UP)
_LEAST, _MOST = -(2**63), 2**63 - 1


def result_kind(symbol: str, left: Kind, right: Kind) -> Kind:
    """The kind of the result, from the kinds of two numbers."""
    if Kind.DOUBLE in (left, right):
        return Kind.DOUBLE
    if Kind.DECIMAL in (left, right):
        return Kind.DECIMAL
    return Kind.DOUBLE if symbol == "/" else Kind.INTEGER


def operation(symbol: str, kind: Kind) -> Operation:
    """A function that computes a result of this kind from numbers of any kind."""
    if kind is Kind.INTEGER:
        return _within(_INTEGERS[symbol])
    if kind is Kind.DECIMAL:
        return _decimal(_EXACT[symbol])
    return _double(_DOUBLES[symbol])


def to_double(number: Number) -> float | None:
    """The nearest double; None if the number is beyond all doubles."""
    try:
        return float(number)
    except OverflowError:
        return None


def comparable(value: Scalar, kind: Kind, beside: Kind) -> Scalar:
    """A literal, ready to be compared with values of a kind: next to a double, a decimal becomes one, as in Spark."""
    return to_double(value) if isinstance(value, Decimal) and kind is Kind.DECIMAL and beside is Kind.DOUBLE else value


def shortest(value: Decimal) -> Decimal:
    """A number without zeros at the end. Zero loses its sign, because reading it again loses the sign, too."""
    return _DECIMALS.plus(value).normalize(_DECIMALS)


def negative(value: Number) -> Number:
    """The number with the other sign. Python's own minus keeps only 28 digits of a decimal."""
    return _DECIMALS.minus(value) if isinstance(value, Decimal) else -value


def _within(compute: Callable[[int, int], int | None]) -> Operation:
    def found(a: Number, b: Number) -> Number | None:
        result = compute(a, b)  # type: ignore[arg-type]
        return result if result is not None and _LEAST <= result <= _MOST else None

    return found


def _remainder(a: int, b: int) -> int | None:
    """The remainder, with the sign of the first operand, as in Java."""
    if b == 0:
        return None
    left = abs(a) % abs(b)
    return -left if a < 0 else left


_INTEGERS: dict[str, Callable[[int, int], int | None]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "%": _remainder,
}


def _decimal(compute: Callable[[Decimal, Decimal], Decimal]) -> Operation:
    def found(a: Number, b: Number) -> Number | None:
        try:
            result = compute(Decimal(a), Decimal(b))
        except DecimalException:
            return None
        return result if result.adjusted() < MAX_DIGITS else None

    return found


_EXACT: dict[str, Callable[[Decimal, Decimal], Decimal]] = {
    "+": _DECIMALS.add,
    "-": _DECIMALS.subtract,
    "*": _DECIMALS.multiply,
    "/": _DECIMALS.divide,
    "%": _DECIMALS.remainder,
}


def _double(compute: Callable[[float, float], float | None]) -> Operation:
    def found(a: Number, b: Number) -> Number | None:
        try:
            return compute(float(a), float(b))
        except OverflowError:
            return None

    return found


def _modulo(a: float, b: float) -> float | None:
    if b == 0:
        return None
    return math.nan if math.isinf(a) else math.fmod(a, b)


_DOUBLES: dict[str, Callable[[float, float], float | None]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: a / b if b else None,
    "%": _modulo,
}

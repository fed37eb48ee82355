"""The tree of a predicate: frozen, typed, and free of `not`.

Every `not` is pushed down to the comparisons, as De Morgan's rules allow in SQL's logic of three values, too. Then a
condition is true exactly if `and` and `or` of its true parts say so, and "unknown" needs no value of its own: a
comparison with null is simply not true, and neither is its opposite.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

from tailrace.queries.kinds import Kind, kind_of
from tailrace.queries.pattern import LikePattern
from tailrace.types.tree import Type

Scalar = int | Decimal | float | str | bool | None

OPPOSITE = {"=": "<>", "<>": "=", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}
MIRRORED = {"=": "=", "<>": "<>", "<": ">", ">": "<", "<=": ">=", ">=": "<="}


@dataclass(frozen=True)
class Field:
    """A column, or a field of a struct: the names on the way to it."""

    path: tuple[str, ...]
    type: Type

    @property
    def kind(self) -> Kind:
        """Of its values."""
        return kind_of(self.type)


@dataclass(frozen=True)
class Literal:
    """A value in the query."""

    value: Scalar
    kind: Kind


@dataclass(frozen=True)
class Arithmetic:
    """Two numbers and + - * / or %."""

    operator: str
    left: Value
    right: Value
    kind: Kind


Value = Field | Literal | Arithmetic


@dataclass(frozen=True)
class Now:
    """The time at which a row is evaluated."""


NOW = Now()
Time = Field | Now


@dataclass(frozen=True)
class Constant:
    """A condition that is the same for all rows."""

    value: bool


@dataclass(frozen=True)
class Compare:
    """A comparison of two numbers, texts or booleans."""

    operator: str
    left: Value
    right: Value


@dataclass(frozen=True)
class CompareTimes:
    """A comparison of a time with another one plus milliseconds; without another one, these count from 1970."""

    operator: str
    left: Time
    right: Time | None
    milliseconds: int

    @property
    def clock(self) -> bool:
        return isinstance(self.left, Now) or isinstance(self.right, Now)


@dataclass(frozen=True)
class In:
    """Whether a value is in a list, which is sorted and has no repetitions."""

    operand: Value
    values: tuple[Literal, ...]
    negated: bool


@dataclass(frozen=True)
class Like:
    """Whether a text matches a pattern."""

    operand: Field
    pattern: LikePattern
    negated: bool


@dataclass(frozen=True)
class IsNull:
    """Whether there is no value."""

    operand: Value
    negated: bool


@dataclass(frozen=True)
class All:
    """`and` of two or more conditions, in the order of their text."""

    terms: tuple[Condition, ...]


@dataclass(frozen=True)
class Any:
    """`or` of two or more conditions, in the order of their text."""

    terms: tuple[Condition, ...]


Test = Compare | CompareTimes | In | Like | IsNull
Condition = Constant | Test | All | Any

TRUE = Constant(True)
FALSE = Constant(False)

"""The one spelling of a predicate: equal trees have equal text, and the text reads back as the same tree."""

from __future__ import annotations

import re
from decimal import Decimal

from tailrace.queries import moments
from tailrace.queries.parser.tokens import RESERVED
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
    Now,
    Time,
    Value,
)

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_STRENGTH = {"+": 1, "-": 1, "*": 2, "/": 2, "%": 2}


def spell(condition: Condition) -> str:
    """The text of a condition."""
    match condition:
        case Constant(value):
            return "true" if value else "false"
        case Compare(operator, left, right):
            return f"{spell_value(left)} {operator} {spell_value(right)}"
        case CompareTimes(operator, left, right, milliseconds):
            return f"{_time(left)} {operator} {_moment(right, milliseconds)}"
        case In(operand, values, negated):
            listed = ", ".join(map(spell_value, values))
            return f"{spell_value(operand)} {'not ' if negated else ''}in ({listed})"
        case Like(operand, pattern, negated):
            return f"{spell_value(operand)} {'not ' if negated else ''}like {_quoted(pattern.text)}"
        case IsNull(operand, negated):
            return f"{spell_value(operand)} is {'not ' if negated else ''}null"
        case All(terms):
            return " and ".join(f"({spell(term)})" if isinstance(term, Any) else spell(term) for term in terms)
        case Any(terms):
            return " or ".join(map(spell, terms))


def spell_value(value: Value) -> str:
    """The text of a value."""
    match value:
        case Field(path):
            return ".".join(map(_name, path))
        case Literal(held):
            return _literal(held)
        case Arithmetic(operator, left, right):
            strength = _STRENGTH[operator]
            first, second = spell_value(left), spell_value(right)
            if isinstance(left, Arithmetic) and _STRENGTH[left.operator] < strength:
                first = f"({first})"
            if isinstance(right, Arithmetic) and _STRENGTH[right.operator] <= strength:
                second = f"({second})"
            return f"{first} {operator} {second}"


def _literal(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return _quoted(value)
    if isinstance(value, float):
        # The exponent makes the reader take it for a double.
        text = repr(value)
        return text if "e" in text else text + "e0"
    if isinstance(value, Decimal):
        text = f"{value:f}"
        return text if "." in text else text + ".0"
    return str(value)


def _time(time: Time) -> str:
    return "now()" if isinstance(time, Now) else spell_value(time)


def _moment(time: Time | None, milliseconds: int) -> str:
    if time is None:
        return moments.spell_time(milliseconds) or ""
    if milliseconds == 0:
        return _time(time)
    return f"{_time(time)} {'+' if milliseconds > 0 else '-'} {moments.spell_interval(milliseconds)}"


def _name(name: str) -> str:
    if _PLAIN.fullmatch(name) and name.upper() not in RESERVED:
        return name
    return '"' + name.replace('"', '""') + '"'


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"

"""Values in a JSON text, each with its own text, so that parts of what a client sends go on byte for byte."""

from __future__ import annotations

import json
import re
from decimal import Decimal, InvalidOperation
from typing import Any, NamedTuple, NoReturn

_BLANK = re.compile(r"[ \t\n\r]*", re.ASCII)


class JsonSpan(NamedTuple):
    """A value and its own text."""

    value: Any
    text: str


def _refuse(word: str) -> NoReturn:
    raise ValueError(f"{word} is no JSON")


def _number(text: str) -> Decimal:
    try:
        return Decimal(text)
    except InvalidOperation:
        raise ValueError(f"no number has an exponent as large as that of {text[:40]}") from None


_DECODER = json.JSONDecoder(parse_float=_number, parse_constant=_refuse)


def whole(text: str) -> JsonSpan:
    """The one value of a text. Raises ValueError if the text is anything else."""
    found, end = _value(text, _skip(text, 0))
    if _skip(text, end) != len(text):
        raise ValueError(f"expected the end after the value, at character {end}")
    return found


def elements(text: str) -> list[JsonSpan]:
    """The elements of an array. Raises ValueError if the text is anything else."""
    found: list[JsonSpan] = []
    at = _skip(text, _expect(text, _skip(text, 0), "["))
    if text[at : at + 1] != "]":
        while True:
            element, at = _value(text, _skip(text, at))
            found.append(element)
            at = _skip(text, at)
            if text[at : at + 1] == "]":
                break
            at = _expect(text, at, ",")
    if _skip(text, at + 1) != len(text):
        raise ValueError(f"expected the end after the array, at character {at + 1}")
    return found


def members(text: str) -> dict[str, JsonSpan]:
    """The members of an object. Raises ValueError if the text is anything else."""
    found: dict[str, JsonSpan] = {}
    at = _skip(text, _expect(text, _skip(text, 0), "{"))
    if text[at : at + 1] == "}":
        return found
    while True:
        name, at = _value(text, _skip(text, at))
        if not isinstance(name.value, str):
            raise ValueError("expected a name in double quotes")
        at = _expect(text, _skip(text, at), ":")
        found[name.value], at = _value(text, _skip(text, at))
        at = _skip(text, at)
        if text[at : at + 1] == "}":
            return found
        at = _expect(text, at, ",")


def _value(text: str, at: int) -> tuple[JsonSpan, int]:
    try:
        value, end = _DECODER.raw_decode(text, at)
    except StopIteration:
        raise ValueError(f"expected a value at character {at}") from None
    except RecursionError:
        raise ValueError("it is nested too deep") from None
    return JsonSpan(value, text[at:end]), end


def _skip(text: str, at: int) -> int:
    found = _BLANK.match(text, at)
    return found.end() if found is not None else at


def _expect(text: str, at: int, sign: str) -> int:
    if text[at : at + 1] != sign:
        raise ValueError(f"expected {sign} at character {at}")
    return at + 1

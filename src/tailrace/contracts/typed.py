"""Checks decoded values against the types that their dataclass declares, because others may have written anything."""

from __future__ import annotations

import json
import math
import types
from collections.abc import Mapping, Sequence
from dataclasses import is_dataclass
from functools import cache
from typing import Any, Union, get_args, get_origin, get_type_hints

# Kafka, Redis and Spark have numbers of 64 bits.
MAX_NUMBER = 2**63 - 1


def read_object(data: bytes | str) -> dict[str, Any]:
    """The JSON object in a value. Raises ValueError for anything else, however deep it is."""
    try:
        found = json.loads(data)
    except RecursionError:
        raise ValueError("expected a JSON object, got one that is nested too deep") from None
    except ValueError:
        raise ValueError(f"expected a JSON object, got {data[:40]!r}") from None
    if not isinstance(found, dict):
        raise ValueError(f"expected a JSON object, got {str(found)[:40]}")
    return found


def check(held: object) -> None:
    """Raise ValueError at the first field of a dataclass that is not of its type, also within its values."""
    kind: Any = type(held)
    for name, hint in _hints(kind).items():
        value = getattr(held, name)
        if not fits(value, hint):
            raise ValueError(f"expected `{name}` as {hint}, got {str(value)[:40]!r}")


def fits(value: object, hint: Any) -> bool:
    """Whether a value is of an annotated type."""
    if hint is object or hint is Any:
        return True
    if hint is int:
        return type(value) is int and abs(value) <= MAX_NUMBER
    if hint is float:
        return fits(value, int) or (isinstance(value, float) and math.isfinite(value))
    if hint is str:
        return isinstance(value, str) and is_utf8(value)
    if is_dataclass(hint):
        if isinstance(value, hint):  # type: ignore[arg-type]
            check(value)
            return True
        return False
    origin, of = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return any(fits(value, one) for one in of)
    if origin is Mapping:
        return isinstance(value, Mapping) and all(fits(k, of[0]) and fits(v, of[1]) for k, v in value.items())
    if origin in (tuple, Sequence):
        if not isinstance(value, tuple | list):
            return False
        if origin is tuple and of[-1] is not Ellipsis:
            return len(value) == len(of) and all(map(fits, value, of))
        return all(fits(one, of[0]) for one in value)
    return isinstance(value, hint)


def is_utf8(text: str) -> bool:
    """Whether a text can be written as UTF-8: JSON may spell halves of characters."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


@cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)

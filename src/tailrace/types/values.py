"""Values from JSON: each is checked against its type, and each mismatch is reported with its place.

If only one branch of a union accepts a value, it may be written as it is. Otherwise it is written as in
Avro's own JSON, which always works: an object whose one member has the name of the branch. Bytes are base64.
For Avro, dates and times are ISO text or Avro's number, and decimals are numbers or their text.
"""

from __future__ import annotations

import base64
import math
import re
import struct
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

from tailrace.types.tree import DAY, Type

# In a union, texts and numbers take these kinds before all others, so that what a value becomes does not
# depend on how it looks. For numbers the narrowest whole type comes first, then the widest of the others.
_NATURAL = ("text", "integer", "double", "float")
_CLOCK = r"\d\d:\d\d(?::\d\d(?:\.(?P<fraction>\d{1,9}))?)?"
_DAY = r"\d{4}-\d\d-\d\d"
_INSTANT = re.compile(rf"{_DAY}T{_CLOCK}(?:Z|[+-]\d\d:\d\d)?", re.ASCII)
_MOMENTS = {
    "date": re.compile(_DAY, re.ASCII),
    "time": re.compile(_CLOCK, re.ASCII),
    "timestamp": _INSTANT,
    "local timestamp": re.compile(rf"{_DAY}T{_CLOCK}", re.ASCII),
}
_NUMBER = re.compile(r"-?\d{1,100}(\.\d{1,100})?", re.ASCII)
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.ASCII | re.IGNORECASE)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FLOATING = {"float": 32, "double": 64}
_UNITS = {DAY: "days", 1000: "milliseconds", 1: "microseconds"}
_EXPECTED = {
    "null": "null",
    "boolean": "true or false",
    "bytes": "bytes in base64",
    "uuid": "a UUID",
    "array": "an array",
    "map": "an object",
    "record": "an object",
}


@dataclass(frozen=True)
class Mismatch:
    """A value that is not of its type: its place, what was expected there, and what came."""

    where: str
    expected: str
    got: str


def converted(of: Type, value: Any, where: str, wrong: list[Mismatch]) -> Any:
    """What to write for a value that was decoded from JSON, with decimals for fractions. Adds what is wrong."""
    if of.kind == "union":
        return _of_union(of, value, where, wrong)
    if value is None and of.nullable:
        return None
    if of.kind == "record" and isinstance(value, dict):
        return _of_record(of, value, where, wrong)
    if of.kind == "array" and of.of is not None and isinstance(value, list):
        return [converted(of.of, one, f"{where}[{number}]", wrong) for number, one in enumerate(value)]
    if of.kind == "map" and of.of is not None and isinstance(value, dict):
        if of.binary:
            wrong += [Mismatch(where, "names of Unicode characters", got(name)) for name in value if not is_text(name)]
        return {name: converted(of.of, one, within(where, name), wrong) for name, one in value.items()}
    found = _plain(of, value)
    if found is None:
        wrong.append(Mismatch(where, expected(of, value), got(value)))
    return found


def expected(of: Type, instead: object = 0) -> str:
    """What a value of a type is, in words that fit what came instead."""
    match of.kind:
        case "union":
            return " or ".join(map(expected, of.branches))
        case "integer":
            return f"an integer of {of.bits} bits"
        case "float" | "double":
            return f"a number that {_FLOATING[of.kind]} bits can hold" if _is_number(instead) else "a number"
        case "decimal":
            text = f"a number of at most {of.digits[0]} digits, {of.digits[1]} of them fraction"
            return f"{text}, or its text" if of.binary else text
        case "enum":
            return f"one of {', '.join(of.symbols[:20])}{' …' if len(of.symbols) > 20 else ''}"
        case "fixed":
            return f"{of.size} bytes in base64"
        case "date" | "time" | "timestamp" | "local timestamp":
            text = f"a {'date' if of.kind == 'date' else 'time'} such as {moment(of)}"
            since = "" if of.kind == "time" else " since 1970"
            return f"{text}, or its {_UNITS[of.unit]}{since}" if of.unit else text
        case "text" if isinstance(instead, str):
            return "text of Unicode characters"
    return _EXPECTED.get(of.kind, "text")


def moment(of: Type) -> str:
    """An example of a date or a time of a type, as text."""
    if of.kind == "date":
        return "2026-01-31"
    clock = "09:30:00.000000" if of.unit == 1 else "09:30:00.000"
    return clock if of.kind == "time" else f"2026-01-31T{clock}{'Z' if of.kind == 'timestamp' else ''}"


def got(value: object) -> str:
    """A value in a message, cut to a length that is enough to find it."""
    text = f"an {'object' if isinstance(value, dict) else 'array'}" if isinstance(value, dict | list) else repr(value)
    if isinstance(value, bool):
        text = str(value).lower()
    elif isinstance(value, Decimal):
        text = str(value)
    return text if len(text) <= 100 else text[:97] + "…"


def within(where: str, name: str) -> str:
    """The place of a member. Parts of its name that are not UTF-8 are escaped."""
    name = name.encode(errors="backslashreplace").decode()
    return f"{where}.{name}" if where else name


def is_text(value: str) -> bool:
    """Whether UTF-8 can hold a text: an escape such as `\\ud800` alone is half a character."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def floating(value: int | Decimal, kind: str) -> float | None:
    """The nearest `float` or `double` to a number; None if the number is too large."""
    try:
        found = float(value)
        found = found if kind == "double" else float(struct.unpack("<f", struct.pack("<f", found))[0])
    except OverflowError:
        return None
    return found if math.isfinite(found) else None


def _of_record(of: Type, value: dict[str, Any], where: str, wrong: list[Mismatch]) -> Any:
    fields = {field.name: field for field in of.fields}
    if unknown := [name for name in value if name not in fields]:
        others = f"one of the fields {', '.join(fields)}"
        wrong += [Mismatch(within(where, name), others, "another name") for name in unknown]
    found = {}
    for name, field in fields.items():
        if name in value:
            found[name] = converted(field.type, value[name], within(where, name), wrong)
        elif field.optional:
            found[name] = field.default
        else:
            wrong.append(Mismatch(within(where, name), expected(field.type), "nothing"))
    return found


def _of_union(of: Type, value: Any, where: str, wrong: list[Mismatch]) -> Any:
    if value is None and of.nullable:
        return ("null", None)
    branches = [branch for branch in of.branches if branch.kind != "null"]
    held: list[Mismatch] = []
    if isinstance(value, dict) and len(value) == 1:
        ((name, inner),) = value.items()
        named = next((branch for branch in branches if name in (branch.name, branch.name.rpartition(".")[2])), None)
        if named is not None:
            found, held = _attempt(named, inner, within(where, name))
            if not held:
                return (named.name, found)
    tried = [(branch, *_attempt(branch, value, where)) for branch in branches]
    fitting = _preferred([(branch, found) for branch, found, problems in tried if not problems])
    if len(fitting) == 1:
        return (fitting[0][0].name, fitting[0][1])
    if fitting:
        types = " and ".join(branch.name for branch, _ in fitting)
        example = f'{{"{fitting[0][0].name}": …}}'
        wrong.append(
            Mismatch(where, f"the type with the value, such as {example}", f"{got(value)}, which {types} take")
        )
    elif held:
        wrong.extend(held)
    else:
        # If only one branch can have been meant, what is wrong inside it says more.
        records = [problems for branch, _, problems in tried if branch.kind == "record" and isinstance(value, dict)]
        meant = [problems for _, _, problems in tried] if len(tried) == 1 else records
        wrong.extend(meant[0] if len(meant) == 1 else [Mismatch(where, expected(of), got(value))])
    return None


def _attempt(of: Type, value: Any, where: str) -> tuple[Any, list[Mismatch]]:
    wrong: list[Mismatch] = []
    return converted(of, value, where, wrong), wrong


def _preferred(fitting: list[tuple[Type, Any]]) -> list[tuple[Type, Any]]:
    """The one branch for what JSON calls text or a number, if there is one; otherwise all that fit."""
    natural = [one for one in fitting if one[0].kind in _NATURAL]
    return [min(natural, key=lambda one: (_NATURAL.index(one[0].kind), one[0].bits))] if natural else fitting


def _plain(of: Type, value: Any) -> Any:
    """What to write for a value without parts; None if it is not of the type."""
    reader = _READERS.get(of.kind)
    return None if reader is None else reader(of, value)


def _boolean(_: Type, value: object) -> bool | None:
    return value if isinstance(value, bool) else None


def _integer(of: Type, value: Any) -> int | None:
    most = 1 << (of.bits - 1)
    return value if type(value) is int and -most <= value < most else None


def _floating(of: Type, value: Any) -> float | None:
    return floating(value, of.kind) if _is_number(value) else None


def _text(of: Type, value: object) -> str | None:
    return value if isinstance(value, str) and (not of.binary or is_text(value)) else None


def _uuid(_: Type, value: object) -> str | None:
    return value if isinstance(value, str) and _UUID.fullmatch(value) else None


def _enum(of: Type, value: object) -> str | None:
    return value if isinstance(value, str) and value in of.symbols else None


def _bytes(of: Type, value: object) -> bytes | None:
    try:
        data = base64.b64decode(value, validate=True) if isinstance(value, str) else None
    except ValueError:
        return None
    return data if data is None or of.kind == "bytes" or len(data) == of.size else None


def _is_number(value: object) -> bool:
    return isinstance(value, int | Decimal) and type(value) is not bool


def _moment(of: Type, value: Any) -> Any:
    """A date or a time as the number that it is written as; one in a topic of JSON stays text."""
    if type(value) is int and of.unit:
        return value if _is_moment(of, value) else None
    # In topics of JSON a local time may have an offset.
    pattern = _MOMENTS[of.kind] if of.unit or of.kind != "local timestamp" else _INSTANT
    found = pattern.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        return None
    # Digits that the type can't keep are refused, as they would be lost in silence.
    if of.unit and (found.groupdict().get("fraction") or "")[3 if of.unit == 1000 else 6 :].strip("0"):
        return None
    try:
        # Python takes at most six digits.
        text = re.sub(r"(\.\d{6})\d+", r"\1", found[0])
        if of.kind == "time":
            at = datetime.combine(date(1970, 1, 1), time.fromisoformat(text))
        else:
            at = datetime.fromisoformat(text)
        if not of.unit:
            return value
        # A time without an offset is one of UTC, as in topics of JSON.
        at = at if at.tzinfo is not None else at.replace(tzinfo=UTC)
        return (at - _EPOCH) // timedelta(microseconds=of.unit)
    except (ValueError, OverflowError):
        return None


def _is_moment(of: Type, value: int) -> bool:
    """Whether a number is a date or a time that Spark can hold."""
    if of.kind == "time":
        return 0 <= value < DAY // of.unit
    end = 2**31 if of.kind == "date" else 2**63 // of.unit
    return -end <= value < end


def _decimal(of: Type, value: object) -> Any:
    if of.binary and isinstance(value, str) and _NUMBER.fullmatch(value):
        value = Decimal(value)
    if type(value) is int:
        value = Decimal(value)
    precision, scale = of.digits
    if not isinstance(value, Decimal) or not _fits(value, precision, scale):
        return None
    if not of.binary:
        return value
    sign, digits, exponent = value.as_tuple()
    unscaled: int = int("".join(map(str, digits))) * 10 ** (scale + int(exponent))
    unscaled = -unscaled if sign else unscaled
    # Two's complement, the highest byte first, with room for the sign.
    size = of.size or (unscaled if unscaled >= 0 else -unscaled - 1).bit_length() // 8 + 1
    return unscaled.to_bytes(size, "big", signed=True)


def _fits(value: Decimal, precision: int, scale: int) -> bool:
    """Whether a decimal of `precision` digits, `scale` of them fraction, can hold a number."""
    exponent = value.as_tuple().exponent
    return isinstance(exponent, int) and -exponent <= scale and value.adjusted() < precision - scale


_READERS: dict[str, Callable[[Type, Any], Any]] = {
    "boolean": _boolean,
    "integer": _integer,
    "float": _floating,
    "double": _floating,
    "decimal": _decimal,
    "text": _text,
    "unknown": _text,
    "uuid": _uuid,
    "enum": _enum,
    "bytes": _bytes,
    "fixed": _bytes,
    **dict.fromkeys(_MOMENTS, _moment),
}

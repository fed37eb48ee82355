"""Avro's logical types in JSON: times as ISO text or as the number that Avro has, decimals as numbers or their text."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

from tailrace.types.avro_types import BITS, AvroType
from tailrace.types.spark_types import fits

_DATE = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_CLOCK = r"\d\d:\d\d(?::\d\d(?:\.(?P<fraction>\d{1,9}))?)?"
_TIME = re.compile(_CLOCK, re.ASCII)
_LOCAL = re.compile(rf"\d{{4}}-\d\d-\d\dT{_CLOCK}", re.ASCII)
_INSTANT = re.compile(rf"\d{{4}}-\d\d-\d\dT{_CLOCK}(?:Z|[+-]\d\d:\d\d)?", re.ASCII)
_NUMBER = re.compile(r"-?\d{1,100}(\.\d{1,100})?", re.ASCII)
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.ASCII | re.IGNORECASE)

_MICRO = timedelta(microseconds=1)
_DAY = 86_400_000_000

EXPECTED = {
    "date": "a date such as 2026-01-31, or its days since 1970",
    "time-millis": "a time such as 09:30:00.000, or its milliseconds",
    "time-micros": "a time such as 09:30:00.000000, or its microseconds",
    "timestamp-millis": "a time such as 2026-01-31T09:30:00.000Z, or its milliseconds since 1970",
    "timestamp-micros": "a time such as 2026-01-31T09:30:00.000000Z, or its microseconds since 1970",
    "local-timestamp-millis": "a time such as 2026-01-31T09:30:00.000, or its milliseconds since 1970",
    "local-timestamp-micros": "a time such as 2026-01-31T09:30:00.000000, or its microseconds since 1970",
    "uuid": "a UUID",
}


def expected(of: AvroType) -> str:
    """What a value of a logical type is, in words."""
    if of.logical == "decimal":
        return f"a number of at most {of.digits[0]} digits, {of.digits[1]} of them fraction, or its text"
    return EXPECTED[of.logical]


def logical(of: AvroType, value: object) -> Any:
    """What is written for a value from JSON; None where it is not of the type."""
    if of.logical == "decimal":
        return _decimal(of, value)
    if of.logical == "uuid":
        return value if isinstance(value, str) and _UUID.fullmatch(value) else None
    if isinstance(value, str):
        return _read(of.logical, value)
    if type(value) is not int:
        return None
    low, end = _range(of)
    return value if low <= value < end else None


def _range(of: AvroType) -> tuple[int, int]:
    """Which numbers are times; those that Spark can't have are none."""
    if of.logical.startswith("time-"):
        return 0, _DAY // _micros(of.logical)
    end = 2 ** (BITS[of.kind] - 1) // (1 if of.logical == "date" else _micros(of.logical))
    return -end, end


def _micros(logical: str) -> int:
    return 1000 if logical.endswith("-millis") else 1


def _read(logical: str, text: str) -> int | None:
    try:
        if logical == "date":
            return (date.fromisoformat(text) - date(1970, 1, 1)).days if _DATE.fullmatch(text) else None
        pattern = _TIME if logical.startswith("time-") else _LOCAL if logical.startswith("local-") else _INSTANT
        found = pattern.fullmatch(text)
        unit = _micros(logical)
        # Digits that the type can't keep are refused: they would be lost in silence.
        if found is None or (found["fraction"] or "")[3 if unit == 1000 else 6 :].strip("0"):
            return None
        text = re.sub(r"(\.\d{6})\d+", r"\1", text)
        if logical.startswith("time-"):
            at = datetime.combine(date(1970, 1, 1), time.fromisoformat(text))
        else:
            at = datetime.fromisoformat(text)
        # A time without an offset is one of UTC, as in topics of JSON.
        at = at if at.tzinfo is not None else at.replace(tzinfo=UTC)
        return (at - datetime(1970, 1, 1, tzinfo=UTC)) // _MICRO // unit
    except (ValueError, OverflowError):
        return None


def _decimal(of: AvroType, value: object) -> bytes | None:
    if isinstance(value, str) and _NUMBER.fullmatch(value):
        value = Decimal(value)
    if type(value) is int:
        value = Decimal(value)
    precision, scale = of.digits
    if not isinstance(value, Decimal) or not fits(value, precision, scale):
        return None
    sign, digits, exponent = value.as_tuple()
    unscaled: int = int("".join(map(str, digits))) * 10 ** (scale + int(exponent))
    unscaled = -unscaled if sign else unscaled
    # Two's complement, the highest byte first, with room for the sign.
    size = of.size if of.kind == "fixed" else (unscaled if unscaled >= 0 else -unscaled - 1).bit_length() // 8 + 1
    return unscaled.to_bytes(size, "big", signed=True)

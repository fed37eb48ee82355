"""Times and intervals as milliseconds, from and to text."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
_DAY = 86_400_000

# How a row spells years that need a sign.
_FAR = re.compile(
    r"([+-]?\d{4,7})-(\d\d)-(\d\d)(?:[T ](\d\d):(\d\d):(\d\d)(?:\.(\d{3})\d*)?(?:Z|([+-])(\d\d):(\d\d))?)?", re.ASCII
)
_LITERAL = re.compile(
    r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d{1,3})?)?\s*(?:Z|[+-]\d\d:\d\d)?)?", re.ASCII | re.IGNORECASE
)
_PART = re.compile(r"\s*([+-]?)\s*(\d{1,12})(?:\.(\d{1,3}))?\s*([a-z]+)\s*,?", re.ASCII | re.IGNORECASE)
_UNITS = {"week": 7 * _DAY, "day": _DAY, "hour": 3_600_000, "minute": 60_000, "second": 1000, "millisecond": 1}
_SHORT = {"w": "week", "d": "day", "h": "hour", "m": "minute", "min": "minute", "s": "second", "sec": "second"}
_SHORT |= {"ms": "millisecond"}

# The range of times, in both directions.
MAX_INTERVAL = 10_000 * 366 * _DAY

TIME_SHAPE = "a time such as 2026-01-31T09:30:00Z or a date such as 2026-01-31"
INTERVAL_SHAPE = "an interval such as '5 minutes', in weeks, days, hours, minutes, seconds or milliseconds"


def read_cell(text: object) -> int | None:
    """The milliseconds of a timestamp or date in a row; None if it is neither."""
    if not isinstance(text, str):
        return None
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return _far(text)
    return _milliseconds(found)


def read_literal(text: str) -> int | None:
    """The milliseconds of a time in a query; without an offset it is in UTC, without a time midnight."""
    text = text.strip()
    if _LITERAL.fullmatch(text) is None:
        return None
    try:
        return _milliseconds(datetime.fromisoformat(re.sub(r"\s+(?=[Zz+-])", "", text).upper()))
    except ValueError:
        return None


def spell_time(milliseconds: int) -> str | None:
    """A time as a literal of a query; None if it has no spelling there."""
    try:
        found = _EPOCH + milliseconds * _MILLISECOND
    except OverflowError:
        return None
    if milliseconds % _DAY == 0:
        return f"date '{found.date().isoformat()}'"
    return f"timestamp '{found.replace(tzinfo=None).isoformat(timespec='milliseconds')}Z'"


def read_interval(text: str) -> int | None:
    """The milliseconds of an interval such as `5 minutes` or `1 day 2 hours`. Months and years have no fixed length."""
    total = at = 0
    while at < len(text.rstrip()):
        part = _PART.match(text, at)
        if part is None or (unit := _unit(part[4].lower())) is None:
            return None
        fraction = int((part[3] or "").ljust(3, "0"))
        if fraction * _UNITS[unit] % 1000:
            return None
        length = int(part[2]) * _UNITS[unit] + fraction * _UNITS[unit] // 1000
        total += -length if part[1] == "-" else length
        at = part.end()
    return total if at and abs(total) <= MAX_INTERVAL else None


def spell_interval(milliseconds: int) -> str:
    """An interval as a literal of a query, in the largest unit that gives a whole number; without a sign."""
    count = abs(milliseconds)
    unit = next(name for name, size in _UNITS.items() if name != "week" and count % size == 0)
    count //= _UNITS[unit]
    return f"interval '{count} {unit}{'' if count == 1 else 's'}'"


def _unit(name: str) -> str | None:
    name = _SHORT.get(name, name)
    return name if name in _UNITS else name[:-1] if name[:-1] in _UNITS and name.endswith("s") else None


def _milliseconds(found: datetime) -> int:
    if found.tzinfo is None:
        found = found.replace(tzinfo=UTC)
    return (found - _EPOCH) // _MILLISECOND


def _far(text: str) -> int | None:
    """Times in years after 9999 and before 1, which `datetime` does not have."""
    part = _FAR.fullmatch(text)
    if part is None:
        return None
    year, month, day, hour, minute, second = (int(part[i] or 0) for i in range(1, 7))
    if not (1 <= month <= 12 and 1 <= day <= 31 and hour < 24 and minute < 60 and second < 60):
        return None
    # 400 years are a whole number of days, so another year of the same shape stands for this one.
    cycles, like = divmod(year - 1, 400)
    try:
        days = (datetime(like + 1, month, day, tzinfo=UTC) - _EPOCH).days + cycles * 146_097
    except ValueError:
        return None
    offset = (int(part[9] or 0) * 60 + int(part[10] or 0)) * (-1 if part[8] == "-" else 1)
    return days * _DAY + ((hour * 60 + minute - offset) * 60 + second) * 1000 + int(part[7] or 0)

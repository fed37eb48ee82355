"""Durations as declarations spell them: `"1 hour"`, `"90 seconds"`, or short, `"30s"`."""

from __future__ import annotations

import re

_TEXT = re.compile(
    r"\s*(?P<count>\d+(?:\.\d+)?)\s*(?P<unit>ms|s|m|h|d|millisecond|second|minute|hour|day|week)s?\s*", re.ASCII
)
_SECONDS = {
    "ms": 0.001,
    "millisecond": 0.001,
    "s": 1.0,
    "second": 1.0,
    "m": 60.0,
    "minute": 60.0,
    "h": 3600.0,
    "hour": 3600.0,
    "d": 86400.0,
    "day": 86400.0,
    "week": 604800.0,
}
EXPECTED = 'a duration such as "30 seconds", "10 minutes", "1 hour" or "7 days"'


def seconds(text: str) -> float:
    """The seconds in a duration. Raises ValueError for any other text."""
    match = _TEXT.fullmatch(text)
    if match is None:
        raise ValueError(text)
    return float(match["count"]) * _SECONDS[match["unit"]]


def spark_text(text: str) -> str:
    """The same duration as Spark reads it."""
    return f"{round(seconds(text) * 1000)} milliseconds"

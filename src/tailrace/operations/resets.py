"""Resets: the offsets at which a view that is built anew begins to read. No I/O."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from tailrace.errors import SettingError

# Topic → partition → offset; topic → partition → (earliest, next).
Offsets = Mapping[str, Mapping[int, int]]
Bounds = Mapping[str, Mapping[int, tuple[int, int]]]

_DURATION = re.compile(
    r"P(?:(?P<days>\d+)D)?(?:T(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+(?:\.\d+)?)S)?)?", re.ASCII
)


@dataclass(frozen=True)
class Target:
    """Where to begin: `kind` is earliest, latest, offset, shift, duration or datetime; `text` is its argument."""

    kind: str
    text: str = ""

    def __str__(self) -> str:
        return f"{self.kind} {self.text}".strip()


def check_target(target: Target) -> None:
    """Raise SettingError for a target whose text can't be used."""
    if target.kind in ("offset", "shift") and not re.fullmatch(r"-?\d+", target.text, re.ASCII):
        raise SettingError(f"expected a whole number of records, got {target.text!r}")
    if target.kind == "offset" and int(target.text) < 0:
        raise SettingError(f"--to-offset: expected an offset, 0 or more, got {target.text!r}")
    if target.kind in ("duration", "datetime"):
        moment(target, datetime.now(UTC))


def moment(target: Target, now: datetime) -> datetime:
    """The time that a target of kind duration or datetime means."""
    if target.kind == "duration":
        match = _DURATION.fullmatch(target.text)
        parts = {name: float(value) for name, value in (match.groupdict() if match else {}).items() if value}
        if not parts:
            raise SettingError(
                f"--by-duration: expected an ISO 8601 duration such as PT5M, PT1H30M or P1D, got {target.text!r}"
            )
        return now - timedelta(**parts)
    try:
        found = datetime.fromisoformat(target.text)
    except ValueError:
        raise SettingError(
            f"--to-datetime: expected a time such as 2026-01-31T12:00:00Z, got {target.text!r}"
        ) from None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


def starts(
    target: Target,
    bounds: Bounds,
    processed: Offsets,
    at_time: Callable[[datetime], Offsets],
    now: datetime,
) -> dict[str, dict[int, int]]:
    """The offset to begin at, per partition, moved into the range that the topic holds.

    `processed` is where the view is now. `at_time` gives the first offsets of a time.
    """
    if target.kind in ("duration", "datetime"):
        wanted = at_time(moment(target, now))
    elif target.kind == "shift":
        shift = int(target.text)
        wanted = {
            topic: {p: processed.get(topic, {}).get(p, first) + shift for p, (first, _) in of.items()}
            for topic, of in bounds.items()
        }
    else:
        wanted = {
            topic: {
                p: {"earliest": first, "latest": end}.get(target.kind, -1)
                if target.kind != "offset"
                else int(target.text)
                for p, (first, end) in of.items()
            }
            for topic, of in bounds.items()
        }
    return {
        topic: {p: min(max(wanted.get(topic, {}).get(p, end), first), end) for p, (first, end) in of.items()}
        for topic, of in bounds.items()
    }

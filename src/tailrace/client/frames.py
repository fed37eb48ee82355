"""What a subscription reports: changes of what it holds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Row:
    """What a key holds now; in a query: and that it matches."""

    key: str
    row: Any


@dataclass(frozen=True, slots=True)
class Gone:
    """The key holds nothing any more; in a query: or does not match any more."""

    key: str


@dataclass(frozen=True, slots=True)
class Event:
    """The next event of a feed. Keep `position` to continue after it."""

    event: Any
    position: str | None


@dataclass(frozen=True, slots=True)
class Ready:
    """Everything up to here has been reported: from now on changes are news."""


@dataclass(frozen=True, slots=True)
class Reset:
    """The copy can't be resumed. It stays until everything has come anew; then the differences are reported."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Progress:
    """The answer has to wait for a restore, which has come so far."""

    offset: int | None
    target: int | None


Change = Row | Gone | Event | Ready | Reset | Progress

"""What a subscription tells of: changes of what it holds."""

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
    """The next event of a feed. Who keeps `position` can go on after it."""

    event: Any
    position: str | None


@dataclass(frozen=True, slots=True)
class Ready:
    """Everything up to here has been told: from now on changes are news."""


@dataclass(frozen=True, slots=True)
class Reset:
    """What is held can't be gone on with. It stays until everything has come anew; then the differences are told."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Progress:
    """The answer has to wait for a restore, which has come so far."""

    offset: int | None
    target: int | None


Change = Row | Gone | Event | Ready | Reset | Progress

"""Records that a user's own test gives to a view."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any


@dataclass(frozen=True)
class Record:
    """A record with everything that Kafka knows of it. `value`: a row, raw bytes, or None, which deletes."""

    value: Mapping[str, Any] | bytes | None
    key: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)
    timestamp: datetime = datetime(2026, 1, 1, tzinfo=UTC)
    partition: int = 0


Given = Mapping[str, Iterable[Mapping[str, Any] | Record]]

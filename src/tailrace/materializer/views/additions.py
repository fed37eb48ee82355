"""Adding to changelogs: what the materializer writes to them comes back to it as any other record, with an offset."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence

from tailrace.contracts.record import Change
from tailrace.errors import Unreachable
from tailrace.kafka.additions import Additions
from tailrace.kafka.changelogs import Partition

log = logging.getLogger(__name__)

_RETRY_AFTER = 5.0


class Adding:
    """Writes to changelogs, and leaves Kafka alone for a while after it has not taken something."""

    def __init__(self, additions: Additions) -> None:
        self._additions = additions
        self._retry_at = 0.0
        self.problem: str | None = None

    @property
    def possible(self) -> bool:
        """False for a while after a failure."""
        return time.monotonic() >= self._retry_at

    def add(self, changes: Sequence[tuple[Partition, Change]]) -> bool:
        """Add changes to their changelogs; False where any may be missing: try again when it is possible."""
        if not self.possible:
            return False
        try:
            self._additions.write(changes)
        except Unreachable as error:
            self._retry_at = time.monotonic() + _RETRY_AFTER
            if self.problem is None:
                log.error("%s", error)
            self.problem = str(error)
            return False
        self.problem = None
        return True


def tombstone(key: bytes, generation: int, version: int) -> Change:
    """A change, made now, that says a key is gone."""
    return Change(key, None, generation, version, int(time.time() * 1000), -1, added=True)

"""Resting: a partition that fails in a way nobody foresaw is left alone for a while, and the others go on."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TypeVar

from tailrace.kafka.changelogs import Partition
from tailrace.materializer.counters import Counters
from tailrace.store.write.writer import Unavailable

log = logging.getLogger(__name__)

_REST = 5.0

Subject = TypeVar("Subject")


class Resting:
    """`close` has a partition opened again; it is to be asked first whether that may be now."""

    def __init__(self, counters: Counters, close: Callable[[Partition], None]) -> None:
        self._counters = counters
        self._close = close
        self._until: dict[Partition, float] = {}

    def blocks(self, partition: Partition) -> bool:
        """Whether a partition must not be opened now."""
        return bool(self._until) and self._until.get(partition, 0.0) > time.monotonic()

    def alone(self, partition: Partition, step: Callable[[Subject], None], subject: Subject) -> None:
        """Do something for one partition: what it breaks closes that one for a while. Raises Unavailable."""
        try:
            step(subject)
        except Unavailable:
            raise
        except Exception:
            log.exception("%s[%d] failed, and is opened again in %.0f s", *partition, _REST)
            self._counters.set_aside.labels("partition").inc()
            self._until[partition] = time.monotonic() + _REST
            self._close(partition)

"""How many partitions topics have, checked every few seconds in the background."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import suppress

from tailrace.errors import Unreachable
from tailrace.kafka.brokers import Brokers
from tailrace.kafka.topics import Topics

EVERY = 2.0
_TIMEOUT = 5.0


class PartitionCounts:
    """Follows the partitions of some topics from a thread of its own. `known` are the counts to begin with."""

    def __init__(self, brokers: Brokers, names: Sequence[str], known: dict[str, int], *, every: float = EVERY) -> None:
        self._topics = Topics(brokers, timeout=_TIMEOUT)
        self._names = sorted(names)
        self._counts = dict(known)
        self._every = every
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="partitions", daemon=True)
        self._thread.start()

    def current(self) -> dict[str, int]:
        """The partitions of each topic, as they were a moment ago."""
        with self._lock:
            return dict(self._counts)

    def close(self) -> None:
        """Stop looking."""
        self._stop.set()

    def _run(self) -> None:
        while not self._stop.wait(self._every):
            # The queries report brokers that do not answer, or refuse.
            with suppress(Unreachable):
                found = self._topics.describe(self._names)
                with self._lock:
                    self._counts.update({name: topic.partitions for name, topic in found.items()})

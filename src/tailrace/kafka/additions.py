"""Additions: records that a materializer, and not the pipeline, writes to changelogs."""

from __future__ import annotations

from collections.abc import Iterable

from tailrace.contracts.record import Change
from tailrace.errors import Unreachable
from tailrace.kafka.brokers import Brokers
from tailrace.kafka.changelogs import Partition
from tailrace.kafka.delivery import Delivery, Outgoing


class Additions:
    """Writes changes to the partitions that they belong to, and waits until the brokers have them."""

    def __init__(self, brokers: Brokers) -> None:
        self._brokers = brokers
        self._delivery = Delivery(brokers, "additions")

    def write(self, changes: Iterable[tuple[Partition, Change]]) -> None:
        """Write changes. Raises Unreachable if any of them may not have been written."""
        problem = self._delivery.write(
            Outgoing(topic, partition, change.key, change.value, [*change.headers()])
            for (topic, partition), change in changes
        )
        if problem is not None:
            raise Unreachable(
                f"Kafka at {self._brokers} did not take what was added to a changelog: {problem}. See whether the "
                "brokers answer, and whether the materializer may write to changelog topics"
            )

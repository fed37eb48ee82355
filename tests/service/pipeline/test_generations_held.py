"""The generations that a changelog holds are found in its last records."""

from __future__ import annotations

from materializing import Changelog
from tailrace.contracts.partitions import partition_of
from tailrace.contracts.record import Change
from tailrace.dev.broker import Broker
from tailrace.kafka.additions import Additions
from tailrace.kafka.brokers import Brokers
from tailrace.kafka.generations import highest_generation


def test_the_highest_generation_of_a_changelog_is_found_in_whichever_partition_it_is(
    broker: Broker, fresh: str
) -> None:
    log = Changelog(broker, fresh)
    partitions = log.entry.partitions
    assert highest_generation(Brokers(broker.address), log.view, partitions, "test") == 0
    written = [(b"a", 3), (b"b", 7), (b"c", 2)]
    Additions(Brokers(broker.address)).write(
        ((log.view, partition_of(key, partitions)), Change(key, b"{}", generation, 1, 0, -1))
        for key, generation in written
    )
    assert highest_generation(Brokers(broker.address), log.view, partitions, "test") == 7


def test_records_that_are_no_changes_count_for_nothing(broker: Broker, fresh: str) -> None:
    log = Changelog(broker, fresh)
    log.put_raw(b"k", b"not a change", [("g", b"many")])
    assert highest_generation(Brokers(broker.address), log.view, log.entry.partitions, "test") == 0

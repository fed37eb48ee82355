"""Additions to a changelog: in the partition they are for, with all that they say, or an error."""

from __future__ import annotations

import pytest

from materializing import Changelog
from tailrace.contracts.partitions import partition_of
from tailrace.contracts.record import Change
from tailrace.dev.broker import Broker
from tailrace.dev.ports import free_port
from tailrace.errors import Unreachable
from tailrace.kafka.additions import Additions
from tailrace.kafka.brokers import Brokers


def test_an_addition_is_read_as_it_was_written_in_the_partition_of_its_key(broker: Broker, fresh: str) -> None:
    log = Changelog(broker, fresh)
    additions = Additions(Brokers(broker.address))
    changes = [Change(b"%d" % n, b"{}" if n % 2 else None, 1, 2, 3, -1, n, added=True) for n in range(10)]
    additions.write(((log.view, partition_of(change.key, log.entry.partitions)), change) for change in changes)
    for change in changes:
        (found,) = log.records(change.key)
        assert (found.value, found.rank, found.timestamp) == (change.value, change.rank, change.timestamp)
        assert found.expires == change.expires and found.added


def test_what_kafka_does_not_take_is_an_error_and_the_next_write_begins_anew(broker: Broker, fresh: str) -> None:
    log = Changelog(broker, fresh)
    change = Change(b"k", None, 1, 1, 0, -1, added=True)
    additions = Additions(Brokers(broker.address))
    with pytest.raises(Unreachable, match="may write to changelog topics"):
        additions.write([((log.view, log.entry.partitions + 5), change)])
    additions.write([((log.view, partition_of(b"k", log.entry.partitions)), change)])
    assert len(log.records(b"k")) == 1


def test_brokers_that_do_not_answer_are_an_error() -> None:
    additions = Additions(Brokers(f"127.0.0.1:{free_port()}"))
    with pytest.raises(Unreachable, match="did not take"):
        additions.write([(("topic", 0), Change(b"k", None, 1, 1, 0, -1, added=True))])

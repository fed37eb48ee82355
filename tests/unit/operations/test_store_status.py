"""How far the store is with a changelog, in numbers and in words."""

from __future__ import annotations

from dataclasses import replace

from tailrace.operations.store_status import StoredPartition, partitions, summary
from tailrace.store.layout.stored_position import StoredPosition


def test_a_partition_is_behind_by_what_comes_after_its_offset() -> None:
    (one,) = partitions([StoredPosition(9, 5)], {0: (0, 15)})
    assert (one.offset, one.end, one.behind, one.restored) == (9, 15, 5, None)
    assert summary([one]) == "5 (0 s)" and summary([replace(one, behind=5, behind_seconds=7.4)]) == "5 (7 s)"


def test_a_partition_that_has_everything_is_not_behind() -> None:
    found = partitions([StoredPosition(14, 5), StoredPosition(-1, -1)], {0: (3, 15), 1: (0, 0)})
    assert [one.behind for one in found] == [0, 0] and summary(found) == "0"


def test_a_restore_says_how_much_is_done() -> None:
    found = partitions([StoredPosition(59, 99), StoredPosition(-1, 9)], {0: (20, 100), 1: (0, 10)})
    assert [one.restored for one in found] == [0.5, 0.0]
    assert summary(found) == "restoring, 0%" and summary(found[:1]) == "restoring, 50%"


def test_records_that_retention_has_removed_are_not_behind() -> None:
    (one,) = partitions([StoredPosition(3, 9)], {0: (8, 12)})
    assert one.behind == 4


def test_a_store_that_holds_nothing_or_does_not_answer_says_so() -> None:
    found = partitions([StoredPosition(None, None), StoredPosition(3, 3)], {0: (0, 5), 1: (0, 4)})
    assert found[0] == StoredPartition(0, None, 5, 5, 0.0, 0.0)
    assert summary(found) == "nothing stored" and summary(None) == "unknown"

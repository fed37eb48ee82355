"""Which partition may be handed over when."""

from __future__ import annotations

import pytest

from tailrace.contracts.catalog import CatalogView, Column
from tailrace.materializer.views.partition import ViewPartition


def opened(stored: int, since: dict[str, int]) -> ViewPartition:
    entry = CatalogView("v", "log", "id", 2, 3, (Column("k", "string"),), (), {}, since=since)
    return ViewPartition(entry, 1, "0123abcd", stored, 10, 2)


@pytest.mark.parametrize(("since", "offset"), [({}, -1), ({"0": 7}, -1), ({"1": 7}, 7), ({"0": 1, "1": -1}, -1)])
def test_a_partition_that_the_catalog_does_not_name_may_serve_at_once(since: dict[str, int], offset: int) -> None:
    assert opened(0, since).since == offset


def test_a_partition_is_known_by_its_changelog_to_kafka_and_by_its_view_to_the_store() -> None:
    held = opened(9, {})
    assert (held.partition, held.place, held.view) == (("log", 1), ("v", 1, "0123abcd"), "v")
    assert not held.whole
    held.stored = 10
    assert held.whole

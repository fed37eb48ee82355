"""Expiries in the store: found at their time, and gone with their rows."""

from __future__ import annotations

import pytest

from store_bench import PLACE, Bench
from tailrace.dev.redis_server import RedisServer
from tailrace.store.write.expiries import Due
from tailrace.store.write.hand_overs import Served
from tailrace.store.write.writer import PositionMoved


@pytest.fixture
def bench(redis_server: RedisServer, fresh: str) -> Bench:
    return Bench(redis_server.url, f"test:{fresh}")


def test_rows_are_due_at_their_time_in_their_order_and_with_their_version(bench: Bench) -> None:
    bench.put((b"late", 1, 3, b"{}"), expires=2**63 - 1)
    bench.put((b"b", 1, 3, b"{}"), expires=200)
    bench.put((b"a", 1, 4, b"{}"), expires=100)
    bench.put((b"never", 1, 5, b"{}"))
    assert bench.expiries.due(*PLACE, 99, 10) == []
    assert bench.expiries.due(*PLACE, 100, 10) == [Due(b"a", 1, 4)]
    assert bench.expiries.due(*PLACE, 10**13, 10) == [Due(b"a", 1, 4), Due(b"b", 1, 3)]
    assert bench.expiries.due(*PLACE, 10**13, 1) == [Due(b"a", 1, 4)]
    assert bench.expiries.due("v", 0, "fedc9876", 10**13, 10) == PositionMoved(None)


def test_an_expiry_goes_with_its_row_and_changes_with_it(bench: Bench) -> None:
    for key in (b"gone", b"kept", b"longer", b"stale"):
        bench.put((key, 1, 1, b"{}"), expires=100)
    bench.put((b"gone", 1, 2, None))
    bench.put((b"kept", 1, 2, b"{}"))
    bench.put((b"longer", 1, 2, b"{}"), expires=300)
    bench.put((b"stale", 1, 0, b"{}"), expires=300)
    assert bench.expiries.due(*PLACE, 200, 10) == [Due(b"stale", 1, 1)]
    assert bench.expiries.due(*PLACE, 300, 10) == [Due(b"stale", 1, 1), Due(b"longer", 1, 2)]


def test_expiries_of_rows_kept_back_count_from_the_hand_over_on(bench: Bench) -> None:
    bench.put((b"a", 1, 1, b"{}"), expires=50)
    bench.put((b"a", 2, 7, b"{}"), (b"b", 2, 7, b"{}"), expires=100)
    assert bench.expiries.due(*PLACE, 100, 10) == [Due(b"a", 1, 1)]
    assert bench.hand_overs.serve(*PLACE, 2, -1) == Served()
    assert bench.expiries.due(*PLACE, 100, 10) == [Due(b"a", 2, 7), Due(b"b", 2, 7)]

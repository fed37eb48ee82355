"""Redis is lost right before a call of the materializer: whatever the call was for, the partition is opened again."""

from __future__ import annotations

from dataclasses import replace

import pytest

from losing_writer import LosingWriter
from materializing import Changelog, running, still
from running import eventually
from store_bench import PLACE, Bench
from tailrace.contracts.partitions import partition_of
from tailrace.dev.broker import Broker
from tailrace.dev.redis_server import RedisServer
from tailrace.kafka.additions import Additions
from tailrace.kafka.brokers import Brokers
from tailrace.materializer.materializer import Materializer
from tailrace.materializer.views.added_records import AddedRecords
from tailrace.materializer.views.partition import ViewPartition
from tailrace.materializer.views.upkeep import HandOver
from tailrace.store.write.hand_overs import OldKeys, Served
from tailrace.store.write.writer import PositionMoved

KEY = b"a"
PARTITION = partition_of(KEY, 3)


@pytest.fixture
def log(broker: Broker, fresh: str) -> Changelog:
    return Changelog(broker, fresh)


def opens_again(log: Changelog, redis_server: RedisServer, script: str) -> None:
    """One call of a script meets a Redis without the position: after the same step the partition is closed."""
    writer = LosingWriter(redis_server.url, log.prefix, script, log.keys(KEY).position)
    waiting = f"{log.view}[{PARTITION}] is waiting to be opened"
    with still(log, writer, patience=0.0) as materializer:
        eventually(lambda: stepped(materializer) and writer.lost, f"{script} is called")
        assert waiting in materializer.reasons()
        eventually(lambda: stepped(materializer) and materializer.reasons() == [], "it is open again")


def stepped(materializer: Materializer) -> bool:
    materializer.step()
    return True


def test_a_gap_at_the_end_of_a_changelog(log: Changelog, redis_server: RedisServer) -> None:
    log.put_in_transaction(KEY, 1)
    opens_again(log, redis_server, "apply")
    assert log.rows(redis_server.url) == {KEY: (1, 1, b"{}")}


def test_a_note_that_a_partition_is_complete(log: Changelog, redis_server: RedisServer) -> None:
    log.put(KEY, 1)
    with running(log, redis_server.url):
        eventually(lambda: KEY in log.rows(redis_server.url), "the row")
    log.put(KEY, 2)
    opens_again(log, redis_server, "as_of")


def test_a_build_that_is_given_up(log: Changelog, redis_server: RedisServer) -> None:
    log.put(KEY, 1)
    log.put(KEY, 1, generation=2)
    opens_again(log, redis_server, "abandon")
    with running(log, redis_server.url, patience=0.0):
        eventually(lambda: log.rows(redis_server.url, kept=True) == {}, "it is given up after all")


def test_rows_that_expire(log: Changelog, redis_server: RedisServer) -> None:
    log.put(KEY, 1, expires=1000)
    opens_again(log, redis_server, "due")


def test_tombstones_that_are_forgotten(log: Changelog, redis_server: RedisServer) -> None:
    log.put(KEY, 1, None)
    opens_again(log, redis_server, "prune")


@pytest.mark.parametrize("lost", [True, False])
def test_keys_that_only_an_earlier_build_had(log: Changelog, redis_server: RedisServer, lost: bool) -> None:
    bench = Bench(redis_server.url, log.prefix)
    bench.put((KEY, 1, 1, b"{}"))
    assert bench.hand_overs.serve(*PLACE, 2, -1) == Served()
    entry = replace(log.entry, name="v", generation=2)
    held = ViewPartition(entry, 0, PLACE[2], bench.offset, bench.offset, 2)
    hand_over = HandOver(bench.hand_overs, AddedRecords(Additions(Brokers(log.broker.address))))
    if lost:
        bench.client.delete(*bench.keys.all)
    else:
        assert bench.hand_overs.old_keys(*PLACE, 2, 0, 10) == OldKeys([KEY], [KEY], 0)
        bench.hand_overs.forget("v", 0, [KEY])
        assert bench.hand_overs.serve(*PLACE, 3, -1) == Served()
    assert hand_over.tend(held) == PositionMoved(None if lost else bench.offset)
    assert held.old, "nothing is known of them"

"""Compaction removes tombstones before they were read; no row of a key that is gone comes or stays back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest
import redis
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

from materializing import PARTITIONS, Changelog, ready, running
from running import eventually
from tailrace.contracts.partitions import partition_of
from tailrace.dev.broker import Broker
from tailrace.dev.redis_server import RedisServer

# As soon as a segment is closed, and nothing of a tombstone is kept.
AT_ONCE = {
    "cleanup.policy": "compact",
    "segment.ms": "50",
    "min.cleanable.dirty.ratio": "0.0",
    "min.compaction.lag.ms": "0",
    "delete.retention.ms": "0",
}
GONE = b"gone"
NUMBER = partition_of(GONE, PARTITIONS)


@pytest.fixture
def compacting(broker: Broker) -> Iterator[Broker]:
    """The broker of the run, while its cleaner does not rest."""
    admin = AdminClient({"bootstrap.servers": broker.address})

    def alter(operation: AlterConfigOpType) -> None:
        entry = ConfigEntry("log.cleaner.backoff.ms", "50", incremental_operation=operation)
        resource = ConfigResource(ConfigResource.Type.BROKER, "1", incremental_configs=[entry])
        for future in admin.incremental_alter_configs([resource]).values():
            future.result(30)

    alter(AlterConfigOpType.SET)
    yield broker
    alter(AlterConfigOpType.DELETE)


def compact(log: Changelog) -> None:
    """Write other keys of the partition until the broker has removed every record of the key that is gone."""
    others = [key for key in (b"other-%d" % n for n in range(100)) if partition_of(key, PARTITIONS) == NUMBER]
    version = 10

    def removed() -> bool:
        nonlocal version
        version += 1
        log.put(others[0], version)
        return log.records(GONE) == []

    eventually(removed, "compaction")


def forgotten(client: redis.Redis, log: Changelog) -> None:
    """Redis has lost the position, and nothing else."""
    client.delete(log.keys(GONE).position)


def kept(client: redis.Redis, log: Changelog) -> None:
    """Redis has the position of before."""
    assert client.exists(log.keys(GONE).position)


@pytest.mark.parametrize("position", [forgotten, kept], ids=lambda one: one.__name__)
def test_a_key_whose_tombstone_was_compacted_away_is_gone_after_a_restart(
    position: Callable[[redis.Redis, Changelog], None],
    compacting: Broker,
    redis_server: RedisServer,
    fresh: str,
) -> None:
    log = Changelog(compacting, fresh, config=AT_ONCE)
    log.put(GONE, 1)
    log.put(b"stays", 1)
    with running(log, redis_server.url) as materializer:
        ready(materializer)
        eventually(lambda: log.present(redis_server.url) == {GONE, b"stays"}, "both rows")
    log.put(GONE, 2, None)
    compact(log)
    position(redis.Redis.from_url(redis_server.url), log)
    with running(log, redis_server.url) as materializer:
        ready(materializer)
        eventually(lambda: GONE not in log.present(redis_server.url), "the key is gone")
        assert b"stays" in log.present(redis_server.url)


def test_a_store_in_step_is_noted_as_complete_and_read_on_from(
    broker: Broker, redis_server: RedisServer, fresh: str
) -> None:
    log = Changelog(broker, fresh)
    client = redis.Redis.from_url(redis_server.url)
    keys = log.keys(GONE)

    def as_of() -> int:
        return int(cast(Any, client.hget(cast(str, keys.position), "as-of")) or 0)

    log.put(GONE, 1)
    with running(log, redis_server.url) as materializer:
        ready(materializer)
        eventually(lambda: log.present(redis_server.url) == {GONE}, "the row")
    before = as_of()
    # A row that a restore would remove.
    client.hset(cast(str, keys.rows), "mark", "1 1 0 0 {}")
    log.put(GONE, 2)
    with running(log, redis_server.url) as materializer:
        ready(materializer)
        eventually(lambda: before < as_of(), "a later time is noted")
        assert log.rows(redis_server.url) == {GONE: (1, 2, b"{}"), b"mark": (1, 1, b"{}")}, "it was read on from there"

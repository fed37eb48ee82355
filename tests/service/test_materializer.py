"""The materializer between a real broker and a real Redis: whatever happens, Redis follows the changelog."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import redis
from confluent_kafka import Producer

from running import eventually
from services import NewRedis
from tailrace.catalog import APP_RECORD, Catalog, CatalogView, Column, catalog_topic
from tailrace.dev.broker import Broker
from tailrace.dev.redis_server import RedisServer
from tailrace.kafka.catalog_topic import CatalogReader, CatalogWriter
from tailrace.kafka.changelogs import Changelogs
from tailrace.kafka.topics import COMPACTED, Topics
from tailrace.materializer.catalog_copy import CatalogCopy
from tailrace.materializer.counters import Counters
from tailrace.materializer.materializer import Materializer
from tailrace.partitions import partition_of
from tailrace.store.keys import catalog_key, partition_keys
from tailrace.store.row import unpack
from tailrace.store.writer import Writer

PARTITIONS = 3


class Changelog:
    """An app with one view, its changelog written by hand."""

    def __init__(self, broker: Broker, fresh: str) -> None:
        self.app = f"app-{fresh}"
        self.view = f"view-{fresh}"
        self.prefix = f"test:{fresh}"
        self.broker = broker
        self._producer = Producer({"bootstrap.servers": broker.address, "partitioner": "murmur2"})
        topics = Topics(broker.address)
        topics.create(catalog_topic(self.app), partitions=1, replication=1, config=COMPACTED)
        topics.create(self.view, partitions=PARTITIONS, replication=1, config=COMPACTED)
        topic_id = topics.describe([self.view])[self.view].id
        view = CatalogView(self.view, self.view, topic_id, PARTITIONS, 1, (Column("k", "string"),), (), {})
        writer = CatalogWriter(broker.address, catalog_topic(self.app))
        writer.put(APP_RECORD, Catalog(self.app, {self.view: view}).encode())
        writer.flush()

    def put(self, key: bytes, version: int, value: bytes | None = b"{}", generation: int = 1) -> None:
        self.put_raw(key, value, [("g", b"%d" % generation), ("v", b"%d" % version), ("t", b"0")])

    def put_raw(self, key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes]]) -> None:
        self._producer.produce(self.view, value, key=key, headers=headers)  # type: ignore[arg-type]
        assert self._producer.flush(30) == 0

    def rows(self, url: str) -> dict[bytes, tuple[int, int, bytes | None]]:
        client = redis.Redis.from_url(url)
        found = {}
        try:
            for number in range(PARTITIONS):
                keys = partition_keys(self.prefix, self.view, number)
                for name in (keys.rows, keys.gone):
                    for key, data in client.hgetall(name).items():
                        row = unpack(data)  # type: ignore[arg-type]
                        found[key] = (row.generation, row.version, row.value)
        except redis.ConnectionError:
            return {}
        finally:
            client.close()
        return found  # type: ignore[return-value]


@pytest.fixture
def log(broker: Broker, fresh: str) -> Changelog:
    return Changelog(broker, fresh)


@contextmanager
def running(log: Changelog, url: str) -> Iterator[Materializer]:
    """A materializer that steps in a thread of its own."""
    writer = Writer(url, log.prefix)
    reader = CatalogReader(log.broker.address, catalog_topic(log.app))
    changelogs = Changelogs(log.broker.address, f"tailrace.{log.app}.materializer")
    materializer = Materializer(changelogs, CatalogCopy(reader, writer), writer, Counters())
    stop = threading.Event()

    def steps() -> None:
        while not stop.is_set():
            materializer.step()

    thread = threading.Thread(target=steps)
    thread.start()
    try:
        yield materializer
    finally:
        stop.set()
        thread.join()
        changelogs.close()
        reader.close()
        writer.close()


def test_rows_follow_the_newest_version_and_the_newest_generation(log: Changelog, redis_server: RedisServer) -> None:
    with running(log, redis_server.url) as materializer:
        eventually(lambda: materializer.reasons() == [], "the materializer is ready")
        log.put(b"a", 1)
        log.put(b"a", 3, b'{"n":3}')
        log.put(b"a", 2, b'{"n":2}')
        log.put(b"b", 5)
        log.put(b"b", 6, None)
        log.put(b"b", 5)
        log.put(b"c", 900, b'{"old":1}')
        log.put(b"c", 1, b'{"new":1}', generation=2)
        log.put(b"c", 901, b'{"old":2}')
        expected = {b"a": (1, 3, b'{"n":3}'), b"b": (1, 6, None), b"c": (2, 1, b'{"new":1}')}
        eventually(lambda: log.rows(redis_server.url) == expected, "rows of the highest rank")


def test_a_record_that_is_no_change_is_passed_over_and_the_next_one_is_applied(
    log: Changelog, redis_server: RedisServer
) -> None:
    for n in range(20):
        log.put_raw(b"%d" % n, b"foreign", [])
    log.put_raw(None, b"keyless", [("g", b"1"), ("v", b"1"), ("t", b"0")])
    for n in range(20):
        log.put(b"%d" % n, 1)
    with running(log, redis_server.url):
        eventually(lambda: len(log.rows(redis_server.url)) == 20, "the good records after the bad ones")


def test_a_redis_emptied_at_quiet_is_filled_again_with_rows_and_catalog(log: Changelog, new_redis: NewRedis) -> None:
    server = new_redis()
    for n in range(50):
        log.put(b"%d" % n, n)
    with running(log, server.url) as materializer:
        eventually(lambda: len(log.rows(server.url)) == 50, "all rows")
        before = log.rows(server.url)
        client = redis.Redis.from_url(server.url)
        client.flushall()
        eventually(lambda: log.rows(server.url) == before and materializer.reasons() == [], "all rows again")
        eventually(lambda: bool(client.exists(catalog_key(log.prefix))), "the catalog again")


def test_a_redis_that_dies_and_comes_back_is_waited_for(log: Changelog, new_redis: NewRedis) -> None:
    server = new_redis()
    with running(log, server.url) as materializer:
        log.put(b"a", 1)
        eventually(lambda: b"a" in log.rows(server.url), "the first row")
        server.kill()
        log.put(b"b", 1)
        eventually(lambda: "Redis" in " ".join(materializer.reasons()), "the materializer says that Redis is away")
        server.start()
        eventually(lambda: log.rows(server.url).keys() == {b"a", b"b"}, "both rows")
        eventually(lambda: materializer.reasons() == [], "the materializer is ready again")


def test_a_position_past_the_end_of_the_changelog_is_not_believed(log: Changelog, redis_server: RedisServer) -> None:
    log.put(b"a", 1)
    with running(log, redis_server.url):
        eventually(lambda: b"a" in log.rows(redis_server.url), "the row")
    client = redis.Redis.from_url(redis_server.url)
    keys = partition_keys(log.prefix, log.view, partition_of(b"a", PARTITIONS))
    client.hset(keys.position, "offset", "4000")
    client.hset(keys.rows, "never-written", "1 1 3999 0 {}")
    with running(log, redis_server.url):
        eventually(lambda: log.rows(redis_server.url) == {b"a": (1, 1, b"{}")}, "only what the changelog has")


def test_two_instances_share_the_partitions_and_a_third_of_the_work_moves_without_a_gap(
    log: Changelog, redis_server: RedisServer
) -> None:
    with running(log, redis_server.url):
        for n in range(100):
            log.put(b"%d" % n, 1)
        with running(log, redis_server.url):
            for n in range(100):
                log.put(b"%d" % n, 2)
            eventually(lambda: {v for _, v, _ in log.rows(redis_server.url).values()} == {2}, "second versions")
        for n in range(100):
            log.put(b"%d" % n, 3)
        eventually(lambda: [v for _, v, _ in log.rows(redis_server.url).values()] == [3] * 100, "third versions")

"""A materializer between a real broker and a real Redis, and a changelog that the test writes itself."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Protocol, cast

import redis
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from redis.exceptions import RedisClusterException

from redis_topologies import client_of
from running import eventually
from tailrace.contracts.catalog import (
    APP_RECORD,
    PROGRESS_RECORDS,
    Catalog,
    CatalogView,
    Column,
    ViewProgress,
    catalog_topic,
)
from tailrace.contracts.partitions import partition_of
from tailrace.contracts.record import Change, decode_change
from tailrace.dev.broker import Broker
from tailrace.kafka.additions import Additions
from tailrace.kafka.brokers import Brokers
from tailrace.kafka.catalog_topic import CatalogReader, CatalogWriter
from tailrace.kafka.changelogs import Changelogs
from tailrace.kafka.commands_topic import CommandsReader
from tailrace.kafka.dead_letters import DeadLetters
from tailrace.kafka.topics import COMPACTED, Topics
from tailrace.materializer.catalog_copy import CatalogCopy
from tailrace.materializer.counters import MaterializerCounters
from tailrace.materializer.dead_letters import DeadLetterKeeper
from tailrace.materializer.materializer import Materializer
from tailrace.materializer.queries.matcher import Matcher
from tailrace.materializer.views.upkeep import Upkeep
from tailrace.store.layout.keys import PartitionKeys, partition_keys
from tailrace.store.layout.row import unpack
from tailrace.store.write.match_writer import MatchWriter
from tailrace.store.write.writer import StoreWriter

PARTITIONS = 3

Rows = dict[bytes, tuple[int, int, bytes | None]]


class Changelog:
    """An app with one view, its changelog and its catalog written by hand."""

    def __init__(
        self,
        broker: Broker,
        fresh: str,
        columns: tuple[Column, ...] = (),
        *,
        config: Mapping[str, str] = COMPACTED,
    ) -> None:
        self.app = f"app-{fresh}"
        self.view = f"view-{fresh}"
        self.prefix = f"test:{fresh}"
        self.broker = broker
        self._producer = Producer(
            {"bootstrap.servers": broker.address, "partitioner": "murmur2", "message.max.bytes": 8 * 1024 * 1024}
        )
        topics = Topics(Brokers(broker.address))
        topics.create(catalog_topic(self.app), partitions=1, replication=1, config=COMPACTED)
        topics.create(self.view, partitions=PARTITIONS, replication=1, config=config)
        topic_id = topics.describe([self.view])[self.view].id
        self._catalogs = CatalogWriter(Brokers(broker.address), catalog_topic(self.app))
        self.entry = CatalogView(self.view, self.view, topic_id, PARTITIONS, 1, (Column("k", "string"),), columns, {})
        self.name_build(1)

    def name_build(self, generation: int, *, next: int | None = None, since: Mapping[int, int] | None = None) -> None:
        """Write a catalog that names the build to serve, and the next one."""
        following = None if next is None else replace(self.entry, generation=next)
        offsets = {str(number): offset for number, offset in (since or {}).items()}
        entry = replace(self.entry, generation=generation, next=following, since=offsets)
        self._catalogs.put(APP_RECORD, Catalog(self.app, {self.view: entry}).encode())
        self._catalogs.flush()

    def finish_batch(self, number: int, generation: int = 1) -> None:
        """Write that the pipeline has finished a batch."""
        progress = ViewProgress(self.view, generation, number, 0)
        self._catalogs.put(PROGRESS_RECORDS + self.view, progress.encode())
        self._catalogs.flush()

    def put(
        self,
        key: bytes,
        version: int,
        value: bytes | None = b"{}",
        generation: int = 1,
        *,
        expires: int | None = None,
        added: bool = False,
    ) -> None:
        """Write one change and wait until the broker has it."""
        change = Change(key, value, generation, version, 0, -1, expires, added)
        self.put_raw(key, value, change.headers())

    def put_in_transaction(self, key: bytes, version: int, value: bytes | None = b"{}") -> None:
        """Write one change in a transaction: the partition ends with a marker, which is no record."""
        producer = Producer(
            {"bootstrap.servers": self.broker.address, "partitioner": "murmur2", "transactional.id": self.app}
        )
        producer.init_transactions(30)
        producer.begin_transaction()
        headers = cast(Any, Change(key, value, 1, version, 0, -1).headers())
        producer.produce(self.view, value, key=key, headers=headers)
        producer.commit_transaction(30)

    def put_later(self, key: bytes, version: int, value: bytes | None) -> None:
        """Write one change without waiting; `flush` waits."""
        headers = cast(Any, Change(key, value, 1, version, 0, -1).headers())
        self._producer.produce(self.view, value, key=key, headers=headers)

    def flush(self) -> None:
        """Wait until the broker has all that was written."""
        assert self._producer.flush(30) == 0

    def put_raw(self, key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes]]) -> None:
        """Write any record."""
        self._producer.produce(self.view, value, key=key, headers=headers)  # type: ignore[arg-type]
        assert self._producer.flush(30) == 0

    def put_many(self, changes: Iterable[tuple[bytes, int, bytes | None]]) -> None:
        """Write changes (key, version, value) and wait until the broker has all of them."""
        for key, version, value in changes:
            headers = Change(key, value, 1, version, 0, -1).headers()
            self._producer.produce(self.view, value, key=key, headers=headers)  # type: ignore[arg-type]
        assert self._producer.flush(30) == 0

    def ends(self) -> dict[int, int]:
        """Per partition the offset of the last record; -1 if there is none."""
        consumer = self._consumer()
        try:
            found = {}
            for number in range(PARTITIONS):
                bounds = consumer.get_watermark_offsets(TopicPartition(self.view, number), timeout=30)
                assert bounds is not None
                found[number] = bounds[1] - 1
            return found
        finally:
            consumer.close()

    def records(self, key: bytes) -> list[Change]:
        """All changes of a key in the changelog."""
        number = partition_of(key, PARTITIONS)
        last = self.ends()[number]
        consumer = self._consumer()
        consumer.assign([TopicPartition(self.view, number, OFFSET_BEGINNING)])
        found: list[Change] = []
        offset, deadline = -1, time.monotonic() + 60
        while offset < last:
            assert time.monotonic() < deadline, "the changelog can be read"
            message = cast(Any, consumer.poll(1))
            if message is None or message.error() is not None:
                continue
            offset = message.offset()
            if message.key() == key:
                found.append(decode_change(message.key(), message.value(), message.headers(), offset))
        consumer.close()
        return found

    def keys(self, key: bytes) -> PartitionKeys:
        """The Redis keys of the partition of a key."""
        return partition_keys(self.prefix, self.view, partition_of(key, PARTITIONS))

    def rows(self, url: str, *, kept: bool = False) -> Rows:
        """The rows and tombstones that Redis serves, or those that it keeps back; nothing if it is away."""
        found: Rows = {}
        try:
            client = client_of(url)
            for number in range(PARTITIONS):
                keys = partition_keys(self.prefix, self.view, number)
                for name in (keys.next_rows, keys.next_gone) if kept else (keys.rows, keys.gone):
                    for key, data in cast(dict[bytes, bytes], client.hgetall(cast(str, name))).items():
                        row = unpack(data)
                        found[key] = (row.generation, row.version, row.value)
            client.close()
        except (redis.RedisError, RedisClusterException):
            return {}
        return found

    def present(self, url: str) -> set[bytes]:
        """The keys that have a row."""
        return {key for key, (_, _, value) in self.rows(url).items() if value is not None}

    def _consumer(self) -> Consumer:
        return Consumer({"bootstrap.servers": self.broker.address, "group.id": "test", "enable.auto.commit": False})


class App(Protocol):
    """What a materializer must know about an app whose changelogs a test writes."""

    app: str
    prefix: str
    broker: Broker


@contextmanager
def running(log: App, url: str, **options: Any) -> Iterator[Materializer]:
    """A materializer that steps in its own thread. The options are those of `still`."""
    with still(log, StoreWriter(url, log.prefix), **options) as materializer:
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


@contextmanager
def still(
    log: App,
    writer: StoreWriter,
    *,
    patience: float = 30.0,
    tombstones: float = 86_400.0,
    grace: float = 0.5,
    most: int = 8000,
    counters: MaterializerCounters | None = None,
) -> Iterator[Materializer]:
    """A materializer that makes a step when the test tells it to.

    Settings are as for `Upkeep` and `Changelogs`; `grace` is for listeners that register again.
    """
    reader = CatalogReader(Brokers(log.broker.address), catalog_topic(log.app))
    changelogs = Changelogs(Brokers(log.broker.address), f"tailrace.{log.app}.materializer", most=most)
    counters = counters or MaterializerCounters()
    catalog = CatalogCopy(reader, writer, counters)
    upkeep = Upkeep(
        writer,
        Additions(Brokers(log.broker.address)),
        counters,
        finished=catalog.finished,
        patience=patience,
        tombstones=tombstones,
    )
    dead_letters = DeadLetterKeeper(DeadLetters(Brokers(log.broker.address)), changelogs, counters)
    commands = CommandsReader(Brokers(log.broker.address), log.app)
    matcher = Matcher(commands, MatchWriter(writer), counters)
    materializer = Materializer(changelogs, catalog, writer, upkeep, dead_letters, matcher, counters, grace=grace)
    try:
        yield materializer
    finally:
        materializer.stop()
        changelogs.close()
        reader.close()
        commands.close()
        writer.close()


def ready(materializer: Materializer) -> None:
    """Wait until a materializer says that it is ready."""
    eventually(lambda: materializer.reasons() == [], "the materializer is ready")

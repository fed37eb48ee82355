"""How fresh views are: from what flows through a materializer, by Redis, to `tailrace status` and /health/ready."""

from __future__ import annotations

import time
from argparse import Namespace
from collections.abc import Callable
from dataclasses import replace

import httpx
import pytest
import redis
from confluent_kafka import Producer
from prometheus_client import CollectorRegistry

from feeding import FeedLog
from gateway_process import GatewayProcess, Store
from materializing import PARTITIONS, Changelog, running
from running import eventually
from services import NewRedis
from tailrace.contracts.catalog import (
    APP_RECORD,
    PROGRESS_RECORDS,
    Catalog,
    CatalogFeed,
    CatalogView,
    ViewProgress,
    catalog_topic,
)
from tailrace.contracts.event import FeedEvent
from tailrace.contracts.freshness import FORGOTTEN, Delay, Report
from tailrace.contracts.record import Change
from tailrace.dev.broker import Broker
from tailrace.dev.redis_server import RedisServer
from tailrace.health import HealthServer
from tailrace.kafka.brokers import Brokers
from tailrace.kafka.catalog_topic import CatalogWriter
from tailrace.kafka.topics import EVENTS, Topics
from tailrace.materializer.counters import MaterializerCounters
from tailrace.materializer.materializer import Materializer
from tailrace.operations.status import ViewStatus, status
from tailrace.settings import Settings
from tailrace.store.layout.keys import freshness_key
from tailrace.store.write.reports import Reports
from tailrace.store.write.writer import StoreWriter

HOUR = 3_600_000


def now() -> int:
    return int(time.time() * 1000)


class Source:
    """A source topic that the catalog names, and what the pipeline says of it."""

    def __init__(self, broker: Broker, app: str, entry: CatalogView | CatalogFeed, fresh: str) -> None:
        self.topic = f"source-{fresh}"
        topics = Topics(Brokers(broker.address))
        topics.create(self.topic, partitions=2, replication=1, config=EVENTS)
        named = replace(entry, sources={self.topic: topics.describe([self.topic])[self.topic].id})
        self._name = entry.name
        self._catalogs = CatalogWriter(Brokers(broker.address), catalog_topic(app))
        found = (
            Catalog(app, {entry.name: named})
            if isinstance(named, CatalogView)
            else Catalog(app, {}, {entry.name: named})
        )
        self._catalogs.put(APP_RECORD, found.encode())
        self._producer = Producer({"bootstrap.servers": broker.address})
        self.say("live")

    def say(self, mode: str, degraded: tuple[str, ...] = (), **offsets: int) -> None:
        """Write the progress of a pipeline that has finished batches up to these offsets, p0 and p1."""
        processed = {self.topic: {name.removeprefix("p"): offset for name, offset in offsets.items()}}
        said = ViewProgress(self._name, 1, 1, sum(offsets.values()), mode=mode, offsets=processed, degraded=degraded)
        self._catalogs.put(PROGRESS_RECORDS + self._name, said.encode())
        self._catalogs.flush()

    def produce(self, partition: int, timestamp: int) -> None:
        self._producer.produce(self.topic, b"{}", partition=partition, timestamp=timestamp)
        assert self._producer.flush(30) == 0


@pytest.fixture
def log(broker: Broker, fresh: str) -> Changelog:
    return Changelog(broker, fresh)


def opened(*materializers: Materializer) -> None:
    """Wait until all partitions are read: what is written from then on is live."""
    eventually(
        lambda: (
            sum(len(one.views.open) for one in materializers) == PARTITIONS
            and all(not m.reasons() for m in materializers)
        ),
        "all partitions are open",
    )


def put(log: Changelog, key: bytes, version: int, timestamp: int, generation: int = 1) -> None:
    log.put_raw(key, b"{}", Change(key, b"{}", generation, version, timestamp, -1).headers())


def shown(log: Changelog | FeedLog, url: str) -> ViewStatus:
    (found,) = status(
        log.app, Settings.read(Namespace(kafka=log.broker.address, redis=url, prefix=log.prefix), {})
    ).views
    return found


def test_a_live_view_that_has_served_everything_is_not_behind_before_its_batch_ends(
    log: Changelog, redis_server: RedisServer, fresh: str
) -> None:
    source, url = Source(log.broker, log.app, log.entry, fresh), redis_server.url
    with running(log, url) as materializer:
        opened(materializer)
        first = now() - 1000
        for n in range(5):
            source.produce(n % 2, first + n)
        assert (shown(log, url).behind, shown(log, url).behind_estimated) == (5, False)
        for n in range(5):
            put(log, b"%d" % n, 1, first + n)
        eventually(lambda: shown(log, url).behind == 0, "everything has been served")
        found = shown(log, url)
        assert (found.behind_estimated, found.newest, found.inputs) == (True, first + 4, 0)
        assert found.delay is not None and found.delay.rows == 5 and found.delay.max_ms < HOUR
        assert found.degraded == []
        source.produce(0, first + 500)
        source.produce(0, first + 501)
        assert (shown(log, url).behind, shown(log, url).behind_estimated) == (2, True)
        put(log, b"0", 2, first + 500)
        eventually(lambda: shown(log, url).behind == 1, "one of two has been served")
    assert shown(log, url).behind == 1, "what an ended materializer has stored is stored"
    source.say("live", p0=5, p1=2)
    assert (shown(log, url).behind, shown(log, url).inputs) == (0, 7), "a finished batch tells exactly"


def test_timestamps_do_not_tell_of_a_view_that_catches_up_and_reasons_are_shown(
    log: Changelog, redis_server: RedisServer, fresh: str
) -> None:
    source, url = Source(log.broker, log.app, log.entry, fresh), redis_server.url
    source.say("catching-up", ("a task waits",))
    with running(log, url) as materializer:
        opened(materializer)
        for n in range(4):
            source.produce(0, now() - HOUR + n)
        put(log, b"a", 1, now())
        eventually(lambda: shown(log, url).newest is not None, "the row has come")
        found = shown(log, url)
        assert (found.behind, found.behind_estimated, found.degraded) == (4, False, ["a task waits"])


def test_a_restore_is_no_delay_and_rows_that_are_kept_back_have_not_come(log: Changelog, new_redis: NewRedis) -> None:
    url = new_redis().url
    for n in range(20):
        put(log, b"%d" % n, 1, now() - HOUR)
    with running(log, url) as materializer:
        opened(materializer)
        eventually(lambda: shown(log, url).newest is not None, "it has been reported")
        assert shown(log, url).delay is None
        log.name_build(1, next=2)
        for n in range(20):
            put(log, b"%d" % n, 1, now() - HOUR, generation=2)
        eventually(lambda: len(log.rows(url, kept=True)) == 20, "the next build is kept back")
        put(log, b"1", 2, now())
        eventually(lambda: shown(log, url).delay is not None, "a row has come")
        delay = shown(log, url).delay
        assert delay is not None and delay.rows == 1 and delay.max_ms < HOUR
        redis.Redis.from_url(url).flushall()
        eventually(lambda: len(log.rows(url)) == 20 and materializer.reasons() == [], "all rows again")
        eventually(lambda: shown(log, url).delay is not None, "it has been reported again")
        again = shown(log, url).delay
        assert again is not None and again.rows == 1 and again.max_ms < HOUR


def test_timestamps_of_any_kind_break_nothing(log: Changelog, redis_server: RedisServer) -> None:
    url = redis_server.url
    with running(log, url) as materializer:
        opened(materializer)

        def versions() -> set[tuple[bytes, int]]:
            return {(key, version) for key, (_, version, _) in log.rows(url).items()}

        for version, timestamp in enumerate((0, now() + HOUR, 10**17, now()), 1):
            put(log, b"a", version, timestamp)
            eventually(lambda v=version: (b"a", v) in versions(), "the row")  # type: ignore[misc]
        eventually(lambda: shown(log, url).delay is not None, "it has been reported")
        found = shown(log, url)
        assert found.newest is not None and found.newest < now() + HOUR / 2


def test_feeds_have_a_delay_too(broker: Broker, redis_server: RedisServer, fresh: str) -> None:
    log, url = FeedLog(broker, fresh), redis_server.url
    source = Source(broker, log.app, log.entry, fresh)
    with running(log, url) as materializer:
        eventually(lambda: log.stored(url) is not None and materializer.reasons() == [], "the feed is read")
        at = now()
        for n in range(3):
            source.produce(0, at + n)
            log.put_raw(b"ann", b"{}", FeedEvent(b"ann", b"{}", 1, n + 1, at + n, -1, b"s:0").headers())
        eventually(lambda: shown(log, url).behind == 0, "everything has been served")
        delay = shown(log, url).delay
        assert delay is not None and delay.rows == 3 and shown(log, url).newest == at + 2


def test_two_materializers_report_together_and_one_that_has_ended_is_forgotten(
    log: Changelog, redis_server: RedisServer
) -> None:
    url = redis_server.url
    writer = StoreWriter(url, log.prefix)
    dead = Report(now() - FORGOTTEN - 1000, "l", 1, 7, 0.0, 5, {5: 1})
    Reports(writer).put("dead", {log.view: dead, "gone": dead}, dead.at)
    client = redis.Redis.from_url(url)
    assert client.hlen(freshness_key(log.prefix)) == 2 and client.pttl(freshness_key(log.prefix)) > 0
    with running(log, url) as first, running(log, url) as second:
        eventually(lambda: len(Reports(writer).all().get(log.view, [])) == 2, "each reports on its own partitions")
        assert "gone" not in Reports(writer).all()
        opened(first, second)
        for n in range(30):
            put(log, b"%d" % n, 1, now())
        eventually(lambda: (shown(log, url).delay or Delay(0, 0, 0)).rows == 30, "the rows of both")
    writer.close()


def test_the_delay_is_a_metric(log: Changelog, redis_server: RedisServer) -> None:
    counters = MaterializerCounters()
    with running(log, redis_server.url, counters=counters) as materializer:
        opened(materializer)
        put(log, b"a", 1, now())

        def shown(quantile: str) -> float | None:
            labels = {"view": log.view, "quantile": quantile}
            return counters.registry.get_sample_value("tailrace_delay_seconds", labels)

        eventually(lambda: shown("0.5") is not None, "half of the rows took so long at most")
        eventually(lambda: shown("1") is not None, "the longest delay")


def test_a_gateway_says_how_fresh_views_are_and_stays_ready_when_some_are_stale(
    gateway: GatewayProcess, store: Store
) -> None:
    lineage = store.catalog.lineage(store.catalog.views["averages"])
    report = gateway.get("/health/ready").json()
    assert report["degraded"] == [] and report["views"]["averages"]["delay"] is None
    assert report["views"]["averages"]["behind_seconds"] is None, "nobody has reported"
    reports = Reports(store.writer)
    reports.put("one", {"averages": Report(now(), lineage, 1, now(), 0.0, 41, {9: 3, 11: 1})}, now())
    report = gateway.get("/health/ready").json()
    assert report["views"]["averages"]["delay"] == {"p50_ms": 9, "max_ms": 41, "rows": 4}
    assert report["views"]["averages"]["behind_seconds"] == 0.0 and report["degraded"] == []

    said = ViewProgress("averages", 1, 3, 9, mode="failed", degraded=("a task waits",))
    store.writer.put_catalog(PROGRESS_RECORDS + "averages", said.encode())
    reports.put("one", {"averages": Report(now() - 60_000, lineage, 1, now(), 0.0, 41, {9: 3})}, now())

    def degraded() -> list[str]:
        answer = gateway.get("/health/ready")
        assert answer.status_code == 200 and answer.json()["ready"] is True
        found = answer.json()["degraded"]
        assert all(one["view"] == "averages" for one in found)
        return [one["reason"] for one in found]

    eventually(lambda: len(degraded()) == 3, "three reasons")
    failed, waits, silent = degraded()
    assert "failed" in failed and waits == "a task waits" and "no materializer has reported" in silent


def test_a_process_that_is_ready_says_what_is_degraded() -> None:
    reasons: list[str] = []
    stale = [{"view": "averages", "reason": "a task waits"}]
    servers: list[Callable[[], HealthServer]] = [
        lambda: HealthServer(0, CollectorRegistry(), lambda: reasons, degraded=lambda: stale),
        lambda: HealthServer(0, CollectorRegistry(), lambda: reasons),
    ]
    for start, expected in zip(servers, (stale, []), strict=True):
        server = start()
        try:
            answer = httpx.get(f"http://127.0.0.1:{server.port}/health/ready", timeout=30)
            assert answer.status_code == 200 and answer.json() == {"ready": True, "reasons": [], "degraded": expected}
        finally:
            server.close()

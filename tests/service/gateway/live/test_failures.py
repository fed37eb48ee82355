"""The gateway while Redis is lost, restored, frozen or cut off, while views are rebuilt, and when it must stop."""

from __future__ import annotations

import os
import re
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest
import redis

from gateway_process import GatewayProcess, Store, row, view
from running import eventually
from services import NewRedis
from tailrace.dev.redis_server import RedisServer
from tailrace.store.layout.keys import default_prefix, partition_keys
from tailrace.store.layout.row import StoredRow

KEY = "362"
PATH = f"/views/averages/{KEY}"

NewGateway = Callable[..., GatewayProcess]


@pytest.fixture
def server(new_redis: NewRedis) -> RedisServer:
    return new_redis()


@pytest.fixture
def store(server: RedisServer, fresh: str) -> Store:
    return Store(server.url, fresh, view("averages", partitions=1))


@pytest.fixture
def new_gateway(server: RedisServer, fresh: str, tmp_path: Path) -> Iterator[NewGateway]:
    started: list[GatewayProcess] = []

    def start(**timing: Any) -> GatewayProcess:
        started.append(GatewayProcess(tmp_path, server.url, fresh, **timing))
        return started[-1]

    yield start
    for gateway in started:
        gateway.close()


def filled(store: Store, version: int = 1) -> None:
    store.publish_catalog()
    store.begin()
    store.put("averages", KEY, version, row(version))


def test_before_the_catalog_nobody_can_know(new_gateway: NewGateway, store: Store) -> None:
    gateway = new_gateway()
    for path in (PATH, f"{PATH}/events"):
        found = gateway.get(path)
        assert found.status_code == 503 and found.json()["error"] == "no catalog yet"
        assert found.headers["retry-after"] == "1"
    report = gateway.get("/health/ready")
    assert report.status_code == 503 and "catalog" in report.json()["reasons"][0]
    assert gateway.get("/health/live").status_code == 200
    filled(store)
    gateway.wait_ready()
    assert gateway.get(PATH).content == row(1)


def test_while_a_partition_is_restored_a_missing_key_is_not_unknown(new_gateway: NewGateway, store: Store) -> None:
    store.publish_catalog()
    store.begin(target=10)
    gateway = new_gateway()
    eventually(lambda: gateway.get(PATH).json()["error"] == "being restored", "the catalog is there")
    found = gateway.get(PATH)
    assert found.status_code == 503 and (found.json()["offset"], found.json()["target"]) == (-1, 10)
    store.put("averages", KEY, 1, row(1), offset=4)
    assert gateway.get(PATH).status_code == 503, "an older row than was shown before must not be shown"
    ready = gateway.get("/health/ready")
    assert ready.status_code == 503 and "is being restored" in ready.json()["reasons"][0]
    tap = gateway.follow(f"{PATH}/events")
    progress = tap.any_frame()
    assert (progress.event, progress.id, progress.data) == ("progress", None, {"offset": 4, "target": 10})
    store.put("averages", KEY, 3, row(3), offset=9)
    store.reach("averages", 0, 10)
    assert [frame.data.get("version") for frame in tap.frames("ready")] == [3, None]
    assert gateway.get(PATH).content == row(3)
    gateway.wait_ready()


def test_a_lost_message_is_made_up_for(new_gateway: NewGateway, store: Store, server: RedisServer, fresh: str) -> None:
    filled(store)
    gateway = new_gateway()
    gateway.wait_ready()
    tap = gateway.follow(f"{PATH}/events")
    tap.frames("ready")
    # Written, but not published: to a gateway that is a message lost on the way.
    names = partition_keys(default_prefix(fresh), "averages", 0)
    redis.Redis.from_url(server.url).hset(cast(str, names.rows), KEY, cast(str, StoredRow(1, 2, 7, 0, row(2)).pack()))
    assert tap.frame().data == {"version": 2}
    assert gateway.metric("tailrace_gateway_repaired_total") == 1


def test_a_killed_pub_sub_link_is_replaced_and_the_gap_repaired(
    new_gateway: NewGateway, store: Store, server: RedisServer
) -> None:
    filled(store)
    # Only the repair after a reconnect can help here.
    gateway = new_gateway(sweep=3600)
    gateway.wait_ready()
    taps = [gateway.follow(f"{PATH}/events") for _ in range(3)]
    for tap in taps:
        tap.frames("ready")
    client = redis.Redis.from_url(server.url)
    for version in range(2, 12):
        client.client_kill_filter(_type="pubsub")
        store.put("averages", KEY, version, row(version))
    for tap in taps:
        seen = [1]
        while seen[-1] < 11:
            seen.append(tap.frame().data["version"])
        assert seen == sorted(set(seen)), "no version goes back"
    assert gateway.metric("tailrace_gateway_link_reconnects_total") >= 1


def test_a_frozen_redis_is_noticed_and_followers_go_on_when_it_thaws(
    new_gateway: NewGateway, store: Store, server: RedisServer
) -> None:
    filled(store)
    gateway = new_gateway(sweep=3600)
    gateway.wait_ready()
    tap = gateway.follow(f"{PATH}/events")
    tap.frames("ready")
    os.killpg(server.part.pid, signal.SIGSTOP)
    try:
        eventually(lambda: gateway.metric("tailrace_gateway_link_up") == 0, "the silent link is noticed")
        tap.comment()
    finally:
        os.killpg(server.part.pid, signal.SIGCONT)
    gateway.wait_ready()
    store.put("averages", KEY, 2, row(2))
    assert tap.frame().data == {"version": 2}


def test_a_restarted_redis_costs_followers_nothing(new_gateway: NewGateway, store: Store, server: RedisServer) -> None:
    filled(store)
    gateway = new_gateway()
    gateway.wait_ready()
    tap = gateway.follow(f"{PATH}/events")
    position = tap.frames("ready")[-1].id
    server.kill()
    eventually(lambda: gateway.get(PATH).status_code == 503, "lookups say that Redis is away")
    assert gateway.get(PATH).json()["error"] == "Redis is unavailable"
    assert gateway.get("/health/ready").status_code == 503 and gateway.get("/health/live").status_code == 200
    tap.comment()
    late = gateway.follow(f"{PATH}/events", headers={"Last-Event-ID": str(position)})
    assert late.status == 200, "who comes now waits: a browser would give up on an error"
    server.start()
    gateway.wait_ready()
    store.put("averages", KEY, 2, row(2))
    assert tap.frame().data == {"version": 2}
    assert {frame.event for frame in late.frames("ready")} <= {"row", "ready"}


def test_redis_emptied_and_restored_shows_followers_nothing_old(
    new_gateway: NewGateway, store: Store, server: RedisServer
) -> None:
    filled(store, version=5)
    store.put("averages", "gone", 3, row(3))
    store.put("averages", "gone", 4, None)
    store.reach("averages", 0, 20)
    gateway = new_gateway()
    gateway.wait_ready()
    tap, gone = gateway.follow(f"{PATH}/events"), gateway.follow("/views/averages/gone/events")
    position = tap.frames("ready")[-1].id
    assert gone.frames("ready")[0].event == "ready"

    redis.Redis.from_url(server.url).flushall()
    eventually(lambda: gateway.get(PATH).status_code == 503, "a lookup does not say 404")
    tap.comment()
    store.begin(target=20)
    store.put("averages", KEY, 2, row(2), offset=2)
    store.put("averages", "gone", 3, row(3), offset=3)
    resumed = gateway.follow(f"{PATH}/events", headers={"Last-Event-ID": str(position)})
    assert resumed.any_frame().event == "progress"
    store.publish_catalog()
    tap.comment()
    gone.comment()
    store.put("averages", "gone", 4, None, offset=4)
    store.put("averages", KEY, 5, row(5), offset=15)
    store.reach("averages", 0, 20)
    gateway.wait_ready()
    assert resumed.frame().event == "ready", "it has seen all that was restored"
    store.put("averages", KEY, 6, row(6))
    store.put("averages", "gone", 5, row(5))
    assert tap.frame().data == resumed.frame().data == {"version": 6}
    assert gone.frame().data == {"version": 5}


def test_a_row_that_a_restore_no_longer_finds_is_gone(
    new_gateway: NewGateway, store: Store, server: RedisServer
) -> None:
    filled(store)
    gateway = new_gateway()
    gateway.wait_ready()
    tap = gateway.follow(f"{PATH}/events")
    seen = tap.frames("ready")[0].id
    redis.Redis.from_url(server.url).flushall()
    # Its tombstone was compacted away: the changelog says nothing of the key any more.
    store.begin(target=30)
    store.reach("averages", 0, 30)
    gone = tap.frame()
    assert (gone.event, gone.data) == ("gone", {"movie_id": 362})
    resumed = gateway.follow(f"{PATH}/events", headers={"Last-Event-ID": str(seen)})
    assert [frame.event for frame in resumed.frames("ready")] == ["gone", "ready"]
    idle = gateway.follow(f"{PATH}/events", headers={"Last-Event-ID": str(gone.id)})
    assert idle.frame().event == "ready"


@pytest.mark.parametrize("change", ["generation", "changelog", "partitions"])
def test_a_view_rebuilt_under_followers_resets_them(new_gateway: NewGateway, store: Store, change: str) -> None:
    filled(store, version=50)
    gateway = new_gateway(sweep=3600)
    gateway.wait_ready()
    taps = [gateway.follow(f"{PATH}/events") for _ in range(3)]
    for tap in taps:
        tap.frames("ready")
    old = store.catalog.views["averages"]
    generation = 2 if change == "generation" else 1
    new = view("averages", partitions=3 if change == "partitions" else 1, generation=generation)
    if change != "generation":
        new = type(new)(**{**vars(new), "topic_id": "made anew"})
    assert new != old
    store.replace(new)
    if change == "generation":
        store.serve("averages")
    else:
        store.begin()
    store.put("averages", KEY, 1, row(1), generation=generation)
    for tap in taps:
        frames = [tap.frame()]
        while frames[-1].event != "ready" or frames[-1].data["generation"] != generation:
            frames.append(tap.frame())
        events = [frame.event for frame in frames]
        assert "reset" in events, events
        assert next(frame for frame in frames if frame.event == "reset").data["reason"] == "rebuilt"
    store.put("averages", KEY, 2, row(2), generation=generation)
    for tap in taps:
        while (frame := tap.frame()).data != {"version": 2}:
            assert frame.data == {"version": 1}


def test_followers_of_a_removed_view_are_let_go(new_gateway: NewGateway, store: Store) -> None:
    filled(store)
    gateway = new_gateway()
    gateway.wait_ready()
    tap = gateway.follow(f"{PATH}/events")
    tap.frames("ready")
    store.replace(view("other"))
    close = tap.frame()
    assert (close.event, close.id, close.data["reason"], close.data["retry"]) == ("close", None, "gone", False)
    assert list(tap.rest()) == [] and tap.ended
    assert gateway.get(f"{PATH}/events").status_code == 404


def test_a_drain_ends_every_stream_properly(new_gateway: NewGateway, store: Store) -> None:
    filled(store)
    gateway = new_gateway()
    gateway.wait_ready()
    taps = [gateway.follow(f"{PATH}/events") for _ in range(20)]
    positions = [tap.frames("ready")[-1].id for tap in taps]
    stuck = gateway.follow(f"{PATH}/events", buffer=4096)
    stuck.frames("ready")
    idle = socket.create_connection(("127.0.0.1", gateway.port))
    for version in range(2, 200):
        store.put("averages", KEY, version, row(version, pad="x" * 65536))
    for tap in taps:
        while tap.frame().data["version"] < 199:
            pass
    assert gateway.stop() == 0
    for tap in taps:
        close = tap.frame()
        assert (close.event, close.id, close.data["reason"]) == ("close", None, "shutdown")
        assert [block for block in tap.rest() if block != ":"] == [], "nothing but the end"
        assert tap.ended and tap.head["transfer-encoding"] == "chunked"
    assert len(set(positions)) == 1
    with pytest.raises(ConnectionError):
        socket.create_connection(("127.0.0.1", gateway.port))
    idle.close()
    assert re.search(r"drain=started streams=21", gateway.log.read_text())


def test_a_client_resumes_on_another_gateway(new_gateway: NewGateway, store: Store) -> None:
    filled(store)
    first = new_gateway()
    first.wait_ready()
    tap = first.follow(f"{PATH}/events")
    position = tap.frames("ready")[-1].id
    assert first.stop() == 0
    store.put("averages", KEY, 2, row(2))
    second = new_gateway()
    second.wait_ready()
    again = second.follow(f"{PATH}/events", headers={"Last-Event-ID": str(position)})
    assert [frame.data.get("version") for frame in again.frames("ready")] == [2, None]

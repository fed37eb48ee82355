"""Feeds while messages are lost, Redis is emptied or cut off, gateways die, and feeds are declared anew."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import cast

import pytest
import redis

from feed_serving import FEED, FeedStore, begun
from gateway_process import Frame, GatewayProcess, Tap
from running import eventually
from services import NewRedis
from tailrace.dev.redis_server import RedisServer

NewGateway = Callable[..., GatewayProcess]


@pytest.fixture
def server(new_redis: NewRedis) -> RedisServer:
    return new_redis()


@pytest.fixture
def store(server: RedisServer, fresh: str) -> FeedStore:
    return begun(FeedStore(server.url, fresh))


@pytest.fixture
def new_gateway(server: RedisServer, fresh: str, tmp_path: Path) -> Iterator[NewGateway]:
    started: list[GatewayProcess] = []

    def start(**timing: float) -> GatewayProcess:
        started.append(GatewayProcess(tmp_path, server.url, fresh, **timing))
        started[-1].wait_ready()
        return started[-1]

    yield start
    for gateway in started:
        if gateway.process.returncode != -signal.SIGKILL:
            gateway.close()


def follow(gateway: GatewayProcess, position: str | None = None) -> Tap:
    headers = {} if position is None else {"Last-Event-ID": position}
    return gateway.follow(f"/feeds/{FEED}/ann/events", headers=headers)


def texts(tap: Tap, count: int) -> list[str]:
    """The next events; fails where another frame comes."""
    frames = [tap.frame() for _ in range(count)]
    assert {frame.event for frame in frames} <= {"event"}, frames
    return [frame.data["text"] for frame in frames]


def told(frames: list[Frame]) -> list[str]:
    return [frame.data["text"] if frame.event == "event" else frame.event for frame in frames]


def test_a_lost_message_is_read_before_the_next_one_is_passed_on(new_gateway: NewGateway, store: FeedStore) -> None:
    # No check of registrations can help here: the next message itself shows that one was lost.
    gateway = new_gateway(lease=3600)
    taps = [follow(gateway) for _ in range(2)]
    for tap in taps:
        tap.frames("ready")
    store.put("ann", "1")
    store.put_unheard("ann", "2")
    store.put_unheard("ann", "3")
    store.put("ann", "4", "5")
    for tap in taps:
        assert texts(tap, 5) == ["1", "2", "3", "4", "5"]
    assert gateway.metric("tailrace_gateway_repaired_total") >= 2


def test_a_lost_message_that_nothing_follows_is_found(new_gateway: NewGateway, store: FeedStore) -> None:
    gateway = new_gateway(lease=1.5)
    tap = follow(gateway)
    tap.frames("ready")
    offset = store.put_unheard("ann", "1")
    frame = tap.frame()
    assert frame.data == {"text": "1"} and frame.id == store.position(offset)
    assert gateway.metric("tailrace_gateway_repaired_total") == 1


def test_a_killed_pub_sub_link_costs_no_event_and_repeats_none(
    new_gateway: NewGateway, store: FeedStore, server: RedisServer
) -> None:
    gateway = new_gateway(lease=3600)
    taps = [follow(gateway) for _ in range(3)]
    for tap in taps:
        tap.frames("ready")
    client = redis.Redis.from_url(server.url)
    for n in range(1, 11):
        client.client_kill_filter(_type="pubsub")
        store.put("ann", f"{2 * n - 1}", f"{2 * n}")
    for tap in taps:
        assert texts(tap, 20) == [f"{n}" for n in range(1, 21)]
    eventually(lambda: gateway.metric("tailrace_gateway_link_reconnects_total") >= 1, "the link was replaced")


def test_a_restarted_redis_costs_followers_nothing(
    new_gateway: NewGateway, store: FeedStore, server: RedisServer
) -> None:
    gateway = new_gateway(lease=1.5)
    tap = follow(gateway)
    position = tap.frame().id
    server.kill()
    late = follow(gateway, position)
    assert late.status == 200, "who comes now waits: a browser would give up on an error"
    server.start()
    gateway.wait_ready()
    store.put("ann", "1")
    assert texts(tap, 1) == ["1"]
    assert told(late.frames("ready")) in (["1", "ready"], ["ready"])


@pytest.mark.parametrize("covered", [True, False])
def test_redis_emptied_and_restored_gives_followers_the_exact_suffix_or_tells_them(
    new_gateway: NewGateway, store: FeedStore, server: RedisServer, covered: bool
) -> None:
    gateway = new_gateway(lease=1.5)
    tap = follow(gateway)
    position = tap.frame().id
    store.put("ann", "0", "1", "2")
    assert texts(tap, 3) == ["0", "1", "2"]
    redis.Redis.from_url(server.url).flushall()
    eventually(lambda: store.listening() == {b"ann"}, "the client is registered again")
    # As a materializer does: it keeps what is after `since`, and publishes it again.
    store.declare()
    store.begin(start=0, since=-1 if covered else 4, target=5)
    report = gateway.get("/health/ready")
    assert report.status_code == 503 and f"feed {FEED}, partition 0 is being restored" in report.json()["reasons"][0]
    late = follow(gateway, position)
    progress = late.any_frame()
    assert (progress.event, progress.data) == ("progress", {"offset": -1, "target": 5})
    store.put("ann", "0", "1", "2")
    store.put("ann", "3", "4", "5")
    store.put("ann", "6")
    if covered:
        assert texts(tap, 4) == ["3", "4", "5", "6"]
        assert told(late.frames("ready"))[:6] == ["0", "1", "2", "3", "4", "5"]
    else:
        for one in (tap, late):
            frames = one.frames("ready")
            assert told(frames)[:2] == ["reset", "5"] and frames[0].data["reason"] == "missed"


def test_a_changelog_that_has_lost_what_was_sent_is_told(
    new_gateway: NewGateway, store: FeedStore, server: RedisServer
) -> None:
    gateway = new_gateway(lease=1.5, patience=0.5)
    tap = follow(gateway)
    tap.frames("ready")
    store.put("ann", "0", "1", "2")
    assert texts(tap, 3) == ["0", "1", "2"]
    store.begin()
    store.put("ann", "other")
    frames = tap.frames("ready")
    assert told(frames) == ["reset", "other", "ready"] and frames[0].data["reason"] == "ahead"
    store.put("ann", "next")
    assert texts(tap, 1) == ["next"]


def test_a_killed_gateway_leaves_registrations_that_expire_and_positions_that_any_other_takes(
    new_gateway: NewGateway, store: FeedStore
) -> None:
    first, second = new_gateway(), new_gateway()
    tap = follow(first)
    tap.frames("ready")
    store.put("ann", "1")
    position = tap.frame().id
    first.kill()
    store.put("ann", "2", "3")
    again = follow(second, position)
    assert told(again.frames("ready")) == ["2", "3", "ready"]
    store.put("ann", "4")
    assert texts(again, 1) == ["4"]


def test_nothing_is_left_of_a_killed_gateway_and_its_clients_are_told(
    new_gateway: NewGateway, server: RedisServer, fresh: str
) -> None:
    store = begun(FeedStore(server.url, fresh, hold=0.0))
    first, second = new_gateway(lease=2.0), new_gateway(lease=2.0)
    taps = [first.follow(f"/feeds/{FEED}/{client}/events") for client in ("ann", "bob", "bob")]
    for tap in taps:
        tap.frames("ready")
    store.put("ann", "1")
    position = taps[0].frame().id
    first.kill()

    def swept() -> bool:
        store.sweep()
        return store.held() == set()

    eventually(swept, "its registrations have expired, and all that was kept with them")
    store.put("ann", "2")
    assert store.held() == set(), "nobody listens"
    again = follow(second, position)
    reset, ready = again.frames("ready")
    assert reset.data["reason"] == "missed" and ready.id == store.position(store.offset)


def test_a_gateway_that_was_stopped_for_longer_than_its_lease_tells_its_clients(
    new_gateway: NewGateway, server: RedisServer, fresh: str
) -> None:
    store = begun(FeedStore(server.url, fresh, hold=0.0))
    gateway = new_gateway(lease=2.0)
    tap = follow(gateway)
    tap.frames("ready")
    store.put("ann", "1")
    assert texts(tap, 1) == ["1"]
    gateway.process.send_signal(signal.SIGSTOP)
    try:

        def lapsed() -> bool:
            store.sweep()
            return store.listening() == set()

        eventually(lapsed, "the registration has expired")
        store.put("ann", "missed")
    finally:
        gateway.process.send_signal(signal.SIGCONT)
    frames = tap.frames("ready")
    assert told(frames) == ["reset", "ready"] and frames[0].data["reason"] == "missed"
    store.put("ann", "2")
    assert texts(tap, 1) == ["2"]


def test_a_drained_gateway_signs_its_clients_off(new_gateway: NewGateway, store: FeedStore) -> None:
    gateway = new_gateway(lease=3600)
    tap = follow(gateway)
    tap.frames("ready")
    assert gateway.stop() == 0
    assert store.redis.hlen(cast(str, store.keys.leases)) == 0
    assert store.listening() == {b"ann"}, "it is held"


def test_a_feed_that_is_declared_anew_goes_on(new_gateway: NewGateway, store: FeedStore) -> None:
    gateway = new_gateway(lease=3600)
    tap = follow(gateway)
    tap.frames("ready")
    store.put("ann", "1")
    store.declare(generation=2, hold=60.0)
    store.put("ann", "2")
    frames = [tap.frame(), tap.frame()]
    assert told(frames) == ["1", "2"], "no reset, nothing twice"
    assert [frame.id for frame in frames] == [store.position(0, 1), store.position(1, 2)]

    def declared() -> bool:
        again = follow(gateway, frames[0].id)
        found = again.frames("ready")
        assert told(found) == ["2", "ready"]
        again.close()
        return bool(found[-1].data["generation"] == 2)

    eventually(declared, "the new declaration is there")


def test_a_changelog_made_anew_under_followers_resets_them(new_gateway: NewGateway, store: FeedStore) -> None:
    gateway = new_gateway()
    taps = [follow(gateway) for _ in range(2)]
    for tap in taps:
        tap.frames("ready")
    store.put("ann", "1")
    old, _ = (tap.frame().id for tap in taps)
    store.declare(topic_id="made anew")
    store.begin()
    for tap in taps:
        frames = tap.frames("ready")
        assert told(frames) == ["reset", "ready"] and frames[0].data["reason"] == "rebuilt"
    store.put("ann", "2")
    for tap in taps:
        assert texts(tap, 1) == ["2"]
    late = follow(gateway, old)
    frames = late.frames("ready")
    assert told(frames) == ["reset", "2", "ready"] and frames[0].data["reason"] == "foreign"
    assert store.listening() == {b"ann"}


def test_followers_of_a_removed_feed_are_let_go(new_gateway: NewGateway, store: FeedStore) -> None:
    gateway = new_gateway()
    tap = follow(gateway)
    tap.frames("ready")
    store.declare(removed=True)
    close = tap.frame()
    assert (close.event, close.data["reason"], close.data["retry"]) == ("close", "gone", False)
    assert list(tap.rest()) == [] and tap.ended
    assert gateway.get(f"/feeds/{FEED}/ann/events").status_code == 404


def test_a_slow_client_that_never_reads_is_cut_off(
    store: FeedStore, server: RedisServer, fresh: str, tmp_path: Path
) -> None:
    gateway = GatewayProcess(tmp_path, server.url, fresh, {"feed-backlog": "1000"}, lease=3600)
    gateway.wait_ready()
    slow = gateway.follow(f"/feeds/{FEED}/ann/events", buffer=4096)
    slow.frames("ready")

    client = f"{slow._socket.getsockname()[1]:04X}"

    def established() -> bool:
        """Whether the gateway holds its side of the connection open, whatever the client still has to read."""
        lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
        own = f":{gateway.port:04X}"
        return [line[3] for line in lines if line[1].endswith(own) and line[2].endswith(f":{client}")] == ["01"]

    assert established()
    for _ in range(300):
        store.put("ann", "x" * 30_000)
    eventually(lambda: gateway.metric("tailrace_gateway_feed_listeners") == 0, "it is let go")
    eventually(lambda: not established(), "and its connection is closed")
    slow.close()
    gateway.close()


def test_before_the_catalog_nobody_can_know(server: RedisServer, fresh: str, tmp_path: Path) -> None:
    gateway = GatewayProcess(tmp_path, server.url, fresh)
    found = gateway.get(f"/feeds/{FEED}/ann/events")
    assert found.status_code == 503 and found.json()["error"] == "no catalog yet"
    gateway.close()


def test_churn_leaves_nothing_behind(new_gateway: NewGateway, server: RedisServer, fresh: str) -> None:
    store = begun(FeedStore(server.url, fresh, hold=0.0))
    gateway = new_gateway()
    descriptors = Path(f"/proc/{gateway.process.pid}/fd")
    before = len(list(descriptors.iterdir()))
    for n in range(150):
        tap = gateway.follow(f"/feeds/{FEED}/{n % 40}/events")
        if n % 3:
            tap.frames("ready")
        tap.close()
    for sample in ("tailrace_gateway_feed_listeners", 'tailrace_gateway_connections{surface="sse"}'):
        eventually(lambda sample=sample: gateway.metric(sample) == 0, f"{sample} is 0")  # type: ignore[misc]

    def swept() -> bool:
        store.sweep()
        return store.held() == set()

    eventually(swept, "nothing is left in Redis")
    assert store.redis.pubsub_channels(store.keys.channels + b"*") == []
    # Of pooled connections to Redis some may stay.
    eventually(lambda: len(list(descriptors.iterdir())) <= before + 10, "no descriptor is left open")

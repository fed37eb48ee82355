"""Several keys on one connection, on a real Redis: one position for all, and never one that claims too much."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
import redis

from gateway_process import Frame, GatewayProcess, Store, Tap, row, view
from services import NewRedis
from tailrace.contracts.position import Position
from tailrace.dev.redis_server import RedisServer


def path(*keys: str, name: str = "averages") -> str:
    return f"/views/{name}/events?" + "&".join(f"key={quote(key, safe='')}" for key in keys)


def named(key: str, version: int) -> bytes:
    return row(version, key=key)


def put(store: Store, key: str, version: int, name: str = "averages") -> int:
    return store.put(name, key, version, named(key, version))


def versions(frames: list[Frame]) -> dict[str, int]:
    return {frame.data["key"]: frame.data["version"] for frame in frames if frame.event == "row"}


def test_rows_of_several_keys_come_with_one_position_at_the_end(gateway: GatewayProcess, store: Store) -> None:
    keys = ["10", "11", "12", "13"]
    for key in keys:
        put(store, key, 1)
    tap = gateway.follow(path(*keys, "none"))
    frames = tap.frames("ready")
    assert versions(frames) == dict.fromkeys(keys, 1)
    assert [frame.id for frame in frames[:-1]] == 4 * [None]
    position = Position.parse(str(frames[-1].id))
    assert position is not None and position.offsets == {p: store.offsets["averages", p] for p in (0, 1)}
    offset = put(store, "12", 2)
    changed = tap.frame()
    assert changed.data == {"version": 2, "key": "12"}
    moved = Position.parse(str(changed.id))
    assert moved is not None and moved.offsets[store.partition("averages", "12")] == offset
    store.put("averages", "13", 2, None)
    gone = tap.frame()
    assert (gone.event, gone.data) == ("gone", {"movie_id": 13})
    tap.close()


def test_a_resume_gives_the_exact_suffix_of_every_key_and_a_second_idle_one_nothing(
    gateway: GatewayProcess, store: Store
) -> None:
    keys = [str(key) for key in range(20, 40)]
    for key in keys:
        put(store, key, 1)
    tap = gateway.follow(path(*keys))
    tap.frames("ready")
    for version in (2, 3):
        for key in keys[::2]:
            put(store, key, version)
    seen: dict[str, int] = {}
    position = None
    while position is None or set(seen.values()) != {3} or len(seen) < 10:
        frame = tap.frame()
        seen[frame.data["key"]] = frame.data["version"]
        position = frame.id or position
    tap.close()
    for _ in range(2):
        idle = gateway.follow(path(*keys), headers={"Last-Event-ID": position})
        ready = idle.frame()
        assert ready.event == "ready"
        idle.close()
    put(store, "21", 2)
    put(store, "30", 4)
    store.put("averages", "39", 2, None)
    again = gateway.follow(path(*keys), headers={"Last-Event-ID": position})
    frames = again.frames("ready")
    assert versions(frames) == {"21": 2, "30": 4}
    assert [frame.data for frame in frames if frame.event == "gone"] == [{"movie_id": 39}]
    again.close()
    idle = gateway.follow(path(*keys), headers={"Last-Event-ID": str(frames[-1].id)})
    assert idle.frame().event == "ready"
    idle.close()


def test_a_position_that_cannot_be_used_resets_all_keys_once(gateway: GatewayProcess, store: Store) -> None:
    put(store, "40", 1)
    put(store, "41", 1)
    lineage = store.catalog.lineage(store.catalog.views["averages"])
    for position, reason in (("x", "unreadable"), (f"{lineage}.1.0-0.1-999999", "ahead")):
        tap = gateway.follow(path("40", "41"), headers={"Last-Event-ID": position})
        frames = tap.frames("ready")
        assert [frame.event for frame in frames] == ["reset", "row", "row", "ready"]
        assert frames[0].data["reason"] == reason
        tap.close()


def test_a_slow_client_of_several_keys_gets_the_newest_of_each_and_can_resume(
    gateway: GatewayProcess, store: Store
) -> None:
    keys, last = ["50", "51", "52"], 120
    tap = gateway.follow(path(*keys), buffer=4096)
    tap.frames("ready")
    for version in range(1, last + 1):
        for key in keys:
            store.put("averages", key, version, row(version, key=key, pad="x" * 32768))
    copies: dict[str, list[int]] = {key: [0] for key in keys}
    position = None
    while any(seen[-1] < last for seen in copies.values()) or position is None:
        frame = tap.frame()
        copies[frame.data["key"]].append(frame.data["version"])
        position = frame.id or position
    for seen in copies.values():
        assert seen == sorted(set(seen)) and len(seen) < last
    tap.close()
    put(store, "51", last + 1)
    again = gateway.follow(path(*keys), headers={"Last-Event-ID": position})
    found = versions(again.frames("ready"))
    assert found["51"] == last + 1
    again.close()


@pytest.mark.parametrize(
    ("query", "status", "error"),
    [
        ("key=1&where=true", 400, "key and where"),
        ("key=%ff", 400, "unreadable key"),
    ],
)
def test_keys_that_cannot_be_followed_are_refused_before_the_stream(
    gateway: GatewayProcess, query: str, status: int, error: str
) -> None:
    found = gateway.get(f"/views/averages/events?{query}")
    assert (found.status_code, found.json()["error"]) == (status, error)
    assert gateway.get("/views/nowhere/events?key=1").status_code == 404


def test_hostile_keys_are_followed_like_any_other(gateway: GatewayProcess, store: Store) -> None:
    keys = ["", "a/b", "ü €", "a&key=b", "100%", "events", "\n\r", '"{}"']
    for key in keys:
        put(store, key, 1, "names")
    tap = gateway.follow(path(*keys, name="names"))
    assert versions(tap.frames("ready")) == dict.fromkeys(keys, 1)
    tap.close()
    socket = gateway.socket()
    found = socket.subscribe("a", view="names", keys=keys)
    assert {one["key"]: one["row"]["key"] for one in found[:-1]} == {key: key for key in keys}
    socket.close()
    assert json.loads(gateway.get("/views/names/%65vents").content)["key"] == "events"


class Restless:
    """A client that loses its connection again and again, and holds a copy by what it was sent."""

    def __init__(self, gateway: GatewayProcess, keys: list[str]) -> None:
        self._gateway = gateway
        self._path = path(*keys)
        self.copy: dict[str, int] = {}
        self._last: str | None = None
        self._tap: Tap | None = None

    def reconnect(self) -> None:
        if self._tap is not None:
            self._tap.close()
        headers = {"Last-Event-ID": self._last} if self._last else {}
        self._tap = self._gateway.follow(self._path, headers=headers)
        while self._read() != "ready":
            pass

    def wait(self, key: str, version: int) -> None:
        while self.copy.get(key, 0) < version:
            self._read()

    def _read(self) -> str:
        assert self._tap is not None
        frame = self._tap.frame()
        if frame.event == "reset":
            self.copy.clear()
        elif frame.event == "row":
            self.copy[frame.data["key"]] = frame.data["version"]
        self._last = frame.id or self._last
        return frame.event


@pytest.fixture
def server(new_redis: NewRedis) -> RedisServer:
    return new_redis()


@pytest.fixture
def own(server: RedisServer, fresh: str, tmp_path: Path) -> Iterator[tuple[GatewayProcess, Store]]:
    """A store and a gateway of the test's own, whose link it may kill."""
    store = Store(server.url, fresh, view("averages"))
    store.publish_catalog()
    store.begin()
    # Only the repair after a reconnect can help here.
    gateway = GatewayProcess(tmp_path, server.url, fresh, sweep=3600)
    gateway.wait_ready()
    yield gateway, store
    gateway.close()


def test_while_the_link_is_killed_no_position_claims_a_change_that_was_lost(
    own: tuple[GatewayProcess, Store], server: RedisServer
) -> None:
    gateway, store = own
    seed = random.randrange(1 << 32)
    chance = random.Random(seed)
    keys = [str(key) for key in range(12)]
    client, admin = Restless(gateway, keys), redis.Redis.from_url(server.url)
    client.reconnect()
    newest: dict[str, int] = {}
    for version in range(1, 60):
        changed = chance.sample(keys, 3)
        for number, key in enumerate(changed):
            if number == 1 and version % 3 == 0:
                admin.client_kill_filter(_type="pubsub")
            put(store, key, version)
            newest[key] = version
        client.wait(chance.choice(changed), version)
        if chance.random() < 0.5:
            client.reconnect()
    for key, version in newest.items():
        client.wait(key, version)
    assert client.copy == newest, f"seed {seed}"
    assert gateway.metric("tailrace_gateway_link_reconnects_total") > 0


def test_a_view_rebuilt_under_several_keys_resets_each_subscription_once(own: tuple[GatewayProcess, Store]) -> None:
    gateway, store = own
    for key in ("1", "2"):
        put(store, key, 5)
    tap, socket = gateway.follow(path("1", "2")), gateway.socket()
    tap.frames("ready")
    socket.subscribe("a", view="averages", keys=["1", "2"])
    socket.subscribe("b", view="averages", keys=["1"])
    store.replace(view("averages", generation=2))
    store.serve("averages")
    for key in ("1", "2"):
        store.put("averages", key, 1, named(key, 1), generation=2)
    frames = tap.frames("ready")
    assert [frame.event for frame in frames if frame.event == "reset"] == ["reset"]
    found = [*socket.messages("ready"), *socket.messages("ready")]
    resets = [one["id"] for one in found if one["type"] == "reset"]
    assert sorted(resets) == ["a", "b"]
    put_again = store.put("averages", "2", 2, named("2", 2), generation=2)
    while (frame := tap.frame()).data.get("version") != 2:
        pass
    position = Position.parse(str(frame.id))
    assert position is not None and position.generation == 2
    assert position.offsets[store.partition("averages", "2")] == put_again


def test_a_view_that_is_removed_ends_its_subscriptions_and_no_other(own: tuple[GatewayProcess, Store]) -> None:
    gateway, store = own
    store.replace(view("averages"), view("other", partitions=1))
    store.begin()
    gateway.wait_ready()
    socket = gateway.socket()
    socket.subscribe("a", view="averages", keys=["1", "2"])
    socket.subscribe("b", view="other", keys=["1"])
    store.replace(view("other", partitions=1))
    error = socket.message()
    assert (error["type"], error["id"], error["error"], error["retry"]) == ("error", "a", "unknown view", False)
    store.put("other", "1", 1, row(1))
    assert socket.message()["view"] == "other"

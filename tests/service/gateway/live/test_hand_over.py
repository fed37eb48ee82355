"""The gateway while a view is handed over: old rows until the switch, then one reset, and never an old row again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gateway_process import GatewayProcess, Store, row, view
from running import eventually
from tailrace.dev.redis_server import RedisServer

KEY = "362"
PATH = f"/views/averages/{KEY}"

NewGateway = Callable[..., GatewayProcess]


@pytest.fixture
def store(redis_server: RedisServer, fresh: str) -> Store:
    """Generation 1 is served, generation 2 is complete and kept back."""
    store = Store(redis_server.url, fresh, view("averages", partitions=1))
    store.publish_catalog()
    store.begin()
    store.put("averages", KEY, 50, row(50))
    store.put("averages", "old", 50, row(50))
    store.put("averages", KEY, 1, row(1, build=2), generation=2)
    return store


@pytest.fixture
def new_gateway(redis_server: RedisServer, fresh: str, tmp_path: Path) -> Iterator[NewGateway]:
    started: list[GatewayProcess] = []

    def start(**timing: Any) -> GatewayProcess:
        started.append(GatewayProcess(tmp_path, redis_server.url, fresh, **timing))
        started[-1].wait_ready()
        return started[-1]

    yield start
    for gateway in started:
        gateway.close()


def name_build(gateway: GatewayProcess, store: Store) -> None:
    """The catalog names generation 2, and the gateway has read it."""
    store.replace(view("averages", partitions=1, generation=2))
    sample = 'tailrace_generation{view="averages"}'
    eventually(lambda: gateway.metric(sample) == 2, "the gateway has the catalog")


def test_a_lookup_gives_the_old_row_until_the_switch_and_the_new_one_after_it(
    new_gateway: NewGateway, store: Store
) -> None:
    gateway = new_gateway()
    before = gateway.get(PATH)
    assert before.content == row(50) and ".1.0-0" in before.headers["etag"]
    name_build(gateway, store)
    during = gateway.get(PATH)
    assert (during.status_code, during.content) == (200, row(50))
    assert during.headers["etag"] == before.headers["etag"]
    assert gateway.get(PATH, if_none_match=before.headers["etag"]).status_code == 304
    assert gateway.get("/health/ready").status_code == 200
    store.serve("averages")
    after = gateway.get(PATH, if_none_match=before.headers["etag"])
    assert after.content == row(1, build=2) and ".2.0-2" in after.headers["etag"]
    assert gateway.get("/views/averages/old").status_code == 404
    ready = gateway.get("/health/ready").json()
    assert ready["ready"] and ready["views"]["averages"]["partitions"]["0"]["generation"] == 2


def test_a_follower_gets_one_reset_and_then_only_new_rows(new_gateway: NewGateway, store: Store) -> None:
    gateway = new_gateway(sweep=0.1)
    tap, old = gateway.follow(f"{PATH}/events"), gateway.follow("/views/averages/old/events")
    for one in (tap, old):
        assert [frame.data.get("version") for frame in one.frames("ready")] == [50, None]
    name_build(gateway, store)
    assert tap.any_frame().event == "progress", "it is told that it must wait"
    # The old build still writes, and the sweep still reads.
    store.put("averages", KEY, 51, row(51))
    store.put("averages", KEY, 2, row(2, build=2), generation=2)
    for _ in range(5):
        assert tap.any_frame().event == "progress"
    store.serve("averages")
    assert [(frame.event, frame.data.get("version")) for frame in tap.frames("ready")] == [
        ("reset", None),
        ("row", 2),
        ("ready", None),
    ]
    assert [frame.event for frame in old.frames("ready")] == ["reset", "ready"]
    store.put("averages", KEY, 99, row(99))
    store.put("averages", KEY, 3, row(3, build=2), generation=2)
    assert tap.any_frame().data == {"version": 3, "build": 2}


def test_a_partition_that_is_switched_before_the_gateway_knows_shows_old_followers_nothing(
    new_gateway: NewGateway, store: Store
) -> None:
    gateway = new_gateway(sweep=0.1)
    tap = gateway.follow(f"{PATH}/events")
    tap.frames("ready")
    known = store.catalog
    store.catalog = type(known)(store.app, {"averages": view("averages", partitions=1, generation=2)})
    store.serve("averages")
    store.put("averages", KEY, 60, row(60, build=2), generation=2)
    tap.comment()
    late = gateway.follow(f"{PATH}/events")
    assert late.any_frame().event == "progress"
    position = store.position("averages", KEY, store.offsets["averages", 0], generation=2)
    ahead = gateway.follow(f"{PATH}/events", headers={"Last-Event-ID": position})
    assert ahead.any_frame().event == "progress"
    name_build(gateway, store)
    assert [frame.event for frame in tap.frames("ready")] == ["reset", "row", "ready"]
    assert [frame.event for frame in late.frames("ready")] == ["row", "ready"], "it was never told of the old build"
    assert [frame.event for frame in ahead.frames("ready")] == ["ready"], "its position is of the new build"


def test_a_position_of_the_old_build_gets_a_reset_once_the_new_one_is_served(
    new_gateway: NewGateway, store: Store
) -> None:
    gateway = new_gateway()
    tap = gateway.follow(f"{PATH}/events")
    position = tap.frames("ready")[-1].id
    tap.close()
    name_build(gateway, store)
    again = gateway.follow(f"{PATH}/events", headers={"Last-Event-ID": str(position)})
    assert again.any_frame().event == "progress"
    store.serve("averages")
    reset, new, ready = again.frames("ready")
    assert (reset.data["reason"], new.data, ready.data["generation"]) == ("generation", {"version": 1, "build": 2}, 2)
    idle = gateway.follow(f"{PATH}/events", headers={"Last-Event-ID": str(ready.id)})
    assert idle.frame().event == "ready"


def test_a_position_of_a_build_that_never_comes_gets_a_reset(new_gateway: NewGateway, store: Store) -> None:
    gateway = new_gateway(patience=0.5)
    position = store.position("averages", KEY, 0, generation=2)
    tap = gateway.follow(f"{PATH}/events", headers={"Last-Event-ID": position})
    assert tap.any_frame().event == "progress"
    reset, old, _ = tap.frames("ready")
    assert (reset.data["reason"], old.data) == ("generation", {"version": 50})

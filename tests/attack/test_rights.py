"""Rights that a client tries to get around, against a real gateway and materializer: the same rows everywhere."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from access_tokens import bearer, settings, token
from feed_serving import FEED, FeedStore, begun
from gateway_process import GatewayProcess, Tap, row
from materializing import ready, running
from order_store import order_store
from running import eventually
from streaming import Streams
from tailrace.contracts.catalog import Catalog
from tailrace.contracts.partitions import partition_of
from tailrace.contracts.position import Position
from tailrace.dev.broker import Broker
from tailrace.dev.redis_server import RedisServer


@pytest.fixture(scope="module")
def streams(broker: Broker) -> Streams:
    return Streams(broker, "attack-rights")


@pytest.fixture(scope="module")
def gateway(
    streams: Streams, redis_server: RedisServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[GatewayProcess]:
    log, directory = streams.log, tmp_path_factory.mktemp("gateway")
    with running(log, redis_server.url) as materializer:
        ready(materializer)
        given = settings(directory) | {"kafka": log.broker.address, "prefix": log.prefix}
        process = GatewayProcess(directory, redis_server.url, log.app, given)
        process.wait_ready()
        yield process
        process.close()


def put(streams: Streams, rows: dict[str, dict[str, Any]]) -> None:
    streams.log.put_many([(key.encode(), 1, json.dumps({"k": key, **row}).encode()) for key, row in rows.items()])


def test_a_made_up_position_of_a_stream_shows_no_key_that_was_removed_from_it(
    gateway: GatewayProcess, streams: Streams
) -> None:
    log, admin = streams.log, bearer(token("admin"))
    put(streams, {"mine": {"n": 1, "s": "c7"}, "theirs": {"n": 1, "s": "c8"}})
    opened = httpx.post(
        f"{gateway.url}/streams", json={"view": log.view, "keys": ["mine", "theirs"]}, headers=admin, timeout=30
    )
    path = f"{gateway.url}/streams/{opened.json()['id']}"
    assert httpx.post(f"{path}/begin", headers=admin, timeout=30).status_code == 200
    assert httpx.patch(path, json={"remove": ["theirs"]}, headers=admin, timeout=30).json()["keys"] == ["mine"]
    lineage, number = Catalog(log.app, {}).lineage(log.entry), partition_of(b"mine", log.entry.partitions)
    position = str(Position(lineage, 1, {number: 0}))
    own = bearer(token("c7", rights={"views": {log.view: ["mine"]}}))
    for held, gone in ((admin, ["theirs"]), (own, [])):
        tap = gateway.follow(opened.json()["events"], headers={**held, "Last-Event-ID": position})
        frames = tap.frames("ready")
        assert [frame.data["k"] for frame in frames if frame.event == "gone"] == gone
        tap.close()


@pytest.fixture(scope="module")
def shop(redis_server: RedisServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    """A gateway over `orders`, whose key is a number, and `names`, whose key is a text; the order 7 is of c8."""
    store, directory = order_store(redis_server.url, "attack-rights-shop"), tmp_path_factory.mktemp("shop")
    store.put("orders", "7", 1, row(1, order_id=7, customer="c8"))
    process = GatewayProcess(directory, redis_server.url, store.app, settings(directory))
    process.wait_ready()
    yield process
    process.close()


@pytest.mark.parametrize(
    ("sub", "views"),
    [
        # A name that is refused, under one that is allowed.
        ("c7", {"*": True, "orders": False}),
        ("c7", {"*": True, "ord*": False}),
        # A list that is too long to be read whole.
        ("c7", {"orders": {"where": "customer not in ({many})"}}),
        ("c7", {"orders": {"where": "customer not in ({odd})"}}),
        ("c7", {"orders": ["{many}"]}),
        ("c7", {"orders": ["7", "{odd}"]}),
        # A text that is no number as the view writes it.
        ("0007", {"orders": ["{sub}"]}),
        ("+7", {"orders": ["{sub}"]}),
        ("c7", {"orders": ["7", "{sub}"]}),
        # As many columns as the key does not have.
        ("c7", {"orders": [["*", "*"]]}),
        ("c7", {"orders": ["7", ["*", "*"]]}),
        # Claims that are empty.
        ("", {"orders": {"where": "customer <> {sub}"}}),
        ("", {"orders": {"where": "customer <> '{sub}'"}}),
        ("", {"orders": {"where": "customer <> {sub:text}"}}),
        ("c7", {"orders": {"where": "customer not in ({hole})"}}),
        ("c7", {"orders": {"where": None}}),
        ("c7", {"orders": {"keys": ["7"], "where": None}}),
        ("c7", {"*": True, "*rders": False}),
    ],
)
def test_rights_that_cannot_be_understood_whole_are_refused_whole(
    shop: GatewayProcess, sub: str, views: dict[str, Any]
) -> None:
    many = [f"c{n}" for n in range(2000, 3100)]
    held = bearer(token(sub, rights={"views": views}, many=[*many, "c8"], odd=["c9", None], hole=["c9", ""]))
    for path in ("/views/orders/7", "/views/orders", "/views/orders?where=true", "/views/orders/7/events"):
        found = shop.follow(path, headers=held)
        assert found.status == 403, path
        found.close()


def test_refused_rights_are_told_in_the_log_and_the_claims_in_them_are_not(shop: GatewayProcess) -> None:
    rights = {"views": {"orders": {"where": "customer <> {weird}"}, "names": ["a", ["b", "c"]]}}
    held = bearer(token("c7", rights=rights, weird={"secret": "hidden"}))
    for path in ("/views/orders", "/views/orders", "/views/names"):
        assert shop.get(path, **held).status_code == 403
    lines = [line for line in shop.log.read_text().splitlines() if "rights=refused" in line]
    assert sum("the claim weird" in line for line in lines) == 1 and any("name='names'" in line for line in lines)
    assert "hidden" not in "".join(lines)


def seen(tap: Tap, keys: set[str]) -> set[str]:
    """The keys of the rows of a snapshot; a client that is refused sees none."""
    try:
        if tap.status == 403:
            return set()
        assert tap.status == 200
        return {frame.data["k"] for frame in tap.frames("ready") if frame.event == "row"} & keys
    finally:
        tap.close()


def test_lookup_listing_key_stream_query_stream_and_feed_show_the_same_rows(
    gateway: GatewayProcess, streams: Streams, redis_server: RedisServer, tmp_path: Path
) -> None:
    random, view = Random(7), streams.log.view
    keys = ["a", "ab", "b/1", "c_", "7", "0007"]
    put(streams, {key: {"n": n, "s": random.choice(["a", "b", "c7"])} for n, key in enumerate(keys)})
    put(streams, {"last": {"n": 99, "s": "last"}})
    admin = bearer(token("admin"))
    eventually(lambda: len(gateway.get(f"/views/{view}", **admin).json()["rows"]) > len(keys), "every row is there")
    feeds = begun(FeedStore(redis_server.url, "attack-rights-feeds"))
    feeding = GatewayProcess(tmp_path, redis_server.url, feeds.app, settings(tmp_path), lease=3600)
    feeding.wait_ready()
    patterns = ["a", "a*", "b/*", "{sub}", "{sub}*", "{teams}", "{none}", "c_*", "7", "*"]
    filters = [None, None, "s = {sub}", "s <> {sub}", "s not in ({teams})", "n > 3"]
    shown = 0
    for _ in range(4):
        grant: dict[str, Any] = {"keys": random.sample(patterns, random.randint(1, 2))}
        if random.random() < 0.1:
            grant["keys"].append(["*", "*"])
        if (where := random.choice(filters)) is not None:
            grant["where"] = where
        rights = {"views": {"*": True, view: grant}, "feeds": {"*": True, FEED: grant["keys"]}}
        claims: dict[str, Any] = {"teams": random.choice([["a", "ab"], ["a", ""], [], ["c_", "7"]])}
        own = bearer(token(random.choice(["a", "c7", "7", ""]), rights=rights, **claims))
        answers = {key: gateway.get(f"/views/{view}/{quote(key, safe='')}", **own).status_code for key in keys}
        assert set(answers.values()) <= {200, 403, 404}
        found = {key for key, status in answers.items() if status == 200}
        listed = gateway.get(f"/views/{view}", **own)
        assert listed.status_code in (200, 403)
        assert {one["k"] for one in listed.json().get("rows", ())} & set(keys) == found, rights
        taps = {key: gateway.follow(f"/views/{view}/{quote(key, safe='')}/events", headers=own) for key in keys}
        assert set().union(*(seen(tap, {key}) for key, tap in taps.items())) == found, rights
        for path in (f"/views/{view}/events", f"/views/{view}/events?where={quote('n > 1 or true')}"):
            assert seen(gateway.follow(path, headers=own), set(keys)) == found, rights
        # A feed has no filter: who may have the key may have the feed of this name.
        for key, status in answers.items():
            tap = feeding.follow(f"/feeds/{FEED}/{quote(key, safe='')}/events", headers=own)
            assert tap.status == (403 if status == 403 and where is None else tap.status), (key, rights)
            assert tap.status == 200 or status == 403, (key, rights)
            tap.close()
        shown += len(found)
    assert shown, "some rights show something"
    feeding.close()

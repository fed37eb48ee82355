"""Listings over a real Redis: pages, queries, entity tags, and what is newer than a position."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest
import redis

from gateway_process import GatewayProcess, Store, view
from running import eventually
from tailrace.catalog import CatalogView, Column
from tailrace.dev.redis_server import RedisServer
from tailrace.gateway.scan import EXAMINED
from tailrace.store.keys import default_prefix, partition_keys

NewGateway = Callable[..., GatewayProcess]


def orders(*, partitions: int = 2, generation: int = 1) -> CatalogView:
    columns = (Column("status", "string"), Column("total", "decimal(10,2)"), Column("ends_at", "timestamp"))
    return replace(view("orders", "order_id bigint", partitions=partitions, generation=generation), columns=columns)


def order(number: int, status: str = "open", **more: Any) -> bytes:
    """A row, spelled as no encoder of ours would: what comes back must be these bytes."""
    held = {"order_id": number, "status": status, **more}
    return json.dumps(held, separators=(", ", ": ")).encode()


@pytest.fixture
def store(redis_server: RedisServer, fresh: str) -> Store:
    store = Store(redis_server.url, fresh, orders())
    store.publish_catalog()
    store.begin()
    return store


@pytest.fixture
def gateway(redis_server: RedisServer, store: Store, tmp_path: Path) -> Iterator[GatewayProcess]:
    process = GatewayProcess(tmp_path, redis_server.url, store.app, sweep=3600)
    process.wait_ready()
    yield process
    process.close()


def put(store: Store, *numbers: int, version: int = 1, status: str = "open", **more: Any) -> None:
    for number in numbers:
        store.put("orders", str(number), version, order(number, status), **more)


def path(**parameters: object) -> str:
    given = {name: value for name, value in parameters.items() if value is not None}
    return "/views/orders?" + "&".join(f"{name}={quote(str(value), safe='')}" for name, value in given.items())


def listed(gateway: GatewayProcess, **parameters: object) -> dict[str, Any]:
    found = gateway.get(path(**parameters))
    assert found.status_code == 200, found.text
    page: dict[str, Any] = found.json()
    return page


def all_pages(gateway: GatewayProcess, **parameters: object) -> list[dict[str, Any]]:
    pages = [listed(gateway, **parameters)]
    while (following := pages[-1]["next"]) is not None:
        pages.append(listed(gateway, page=following, **parameters))
    return pages


def numbers(*pages: dict[str, Any]) -> list[int]:
    return sorted(row["order_id"] for page in pages for row in page["rows"])


def test_a_listing_has_every_row_as_it_is_stored_and_the_position_of_the_view(
    gateway: GatewayProcess, store: Store
) -> None:
    put(store, 1, 2, 3)
    store.put("orders", "2", 2, None)
    found = gateway.get("/views/orders")
    assert found.status_code == 200 and found.headers["content-type"] == "application/json"
    assert order(1) in found.content and order(3) in found.content
    page = found.json()
    assert numbers(page) == [1, 3] and page["next"] is None and "gone" not in page
    lineage = store.catalog.lineage(store.catalog.views["orders"])
    held = {p: offset for (_, p), offset in store.offsets.items() if offset >= 0}
    assert page["position"] == f"{lineage}.1" + "".join(f".{p}-{o}" for p, o in sorted(held.items()))
    assert isinstance(page["as_of"], int)
    head = httpx.head(f"{gateway.url}/views/orders")
    assert (head.status_code, head.content, head.headers["etag"]) == (200, b"", found.headers["etag"])


def test_an_empty_view_is_an_empty_listing(gateway: GatewayProcess) -> None:
    page = listed(gateway)
    assert (page["rows"], page["next"]) == ([], None)
    assert listed(gateway, after=page["position"])["rows"] == []


@pytest.mark.parametrize("limit", [1, 7, 100])
def test_pages_together_have_every_row_once_and_none_is_longer_than_the_limit(
    gateway: GatewayProcess, store: Store, limit: int
) -> None:
    put(store, *range(60))
    # Too long for Redis to keep the whole hash as one small piece, which a scan gives at once.
    for number in range(60, 200):
        store.put("orders", str(number), 1, order(number, "open", note="x" * 100))
    pages = all_pages(gateway, limit=limit)
    assert numbers(*pages) == list(range(200))
    assert all(len(page["rows"]) <= limit for page in pages)
    assert len({page["position"] for page in pages}) == 1


def test_a_query_lists_the_rows_that_match_it(gateway: GatewayProcess, store: Store) -> None:
    put(store, 1, 2, 3, 4)
    put(store, 2, 4, version=2, status="done")
    assert numbers(listed(gateway, where="status = 'open'")) == [1, 3]
    assert numbers(listed(gateway, where="status = 'done' and order_id > 2")) == [4]
    assert numbers(*all_pages(gateway, where="status = 'open' or order_id = 4", limit=1)) == [1, 3, 4]
    assert listed(gateway, where="status = 'none'")["rows"] == []


def test_a_page_of_rows_that_hardly_match_ends_early_and_goes_on(
    gateway: GatewayProcess, store: Store, redis_server: RedisServer
) -> None:
    name = partition_keys(default_prefix(store.app), "orders", 0).rows
    redis.Redis.from_url(redis_server.url).hset(
        name, mapping={f"{n}": b"1 1 0 0 " + order(n, "done") for n in range(EXAMINED + 1000)}
    )
    put(store, 1_000_000)
    pages = all_pages(gateway, where="status = 'open'")
    assert len(pages) > 1 and pages[0]["next"] is not None
    assert numbers(*pages) == [1_000_000]


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("statsu = 'open'", "status"),
        ("status = 5", "two of a kind"),
        ("(", ""),
        ("1 = 1 or " * 4000 + "true", "at most"),
    ],
)
def test_a_query_that_cant_be_used_is_told_what_was_expected(
    gateway: GatewayProcess, where: str, expected: str
) -> None:
    found = gateway.get(path(where=where))
    assert found.status_code == 400 and found.json()["error"] == "unusable query"
    assert expected in found.json()["expected"] and found.json()["remedy"]


def test_a_limit_that_is_none_is_refused(gateway: GatewayProcess) -> None:
    for limit in ("0", "1001", "many", "-1"):
        found = gateway.get(path(limit=limit))
        assert found.status_code == 422 and found.json()["problems"][0]["where"] == "query.limit"


def test_a_page_that_is_made_up_or_of_another_listing_is_refused(gateway: GatewayProcess, store: Store) -> None:
    put(store, *range(30))
    following = listed(gateway, limit=10, where="order_id >= 0")["next"]
    assert following
    mangled = following[:-2] + ("AA" if following[-2:] != "AA" else "BB")
    for page, where in ((following, None), (following, "order_id >= 1"), ("x", None), (mangled, "order_id >= 0")):
        found = gateway.get(path(page=page, where=where, limit=10))
        assert found.status_code == 400 and found.json()["error"] == "unreadable page"
    # The same query in another spelling is the same listing, and the limit is the page's own.
    assert len(listed(gateway, page=following, where="0 <= order_id", limit=5)["rows"]) == 5


def test_a_listing_that_has_not_changed_is_answered_with_304(gateway: GatewayProcess, store: Store) -> None:
    put(store, 1, 2)
    found = gateway.get(path(where="status = 'open'"))
    tag = found.headers["etag"]
    assert found.headers["cache-control"] == "no-cache" and "Authorization" in found.headers["vary"]
    again = gateway.get(path(where="status = 'open'"), If_None_Match=tag)
    assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", tag)
    for other in (path(), path(where="status = 'done'"), path(where="status = 'open'", limit=1)):
        assert gateway.get(other, If_None_Match=tag).status_code == 200
    put(store, 2, version=2)
    assert gateway.get(path(where="status = 'open'"), If_None_Match=tag).status_code == 200


def test_a_query_with_the_clock_is_never_answered_from_a_cache(gateway: GatewayProcess, store: Store) -> None:
    put(store, 1)
    found = gateway.get(path(where="ends_at > now() or status = 'open'"))
    assert numbers(found.json()) == [1]
    assert "etag" not in found.headers and found.headers["cache-control"] == "no-store"


def test_after_gives_what_has_changed_and_what_is_gone(gateway: GatewayProcess, store: Store) -> None:
    put(store, *range(1, 9))
    position = listed(gateway, where="status = 'open'")["position"]
    assert listed(gateway, where="status = 'open'", after=position)["rows"] == []
    put(store, 1, 9, version=2)
    put(store, 2, version=2, status="done")
    store.put("orders", "3", 2, None)
    newer = listed(gateway, where="status = 'open'", after=position)
    assert numbers(newer) == [1, 9] and "reset" not in newer
    assert sorted(one["order_id"] for one in newer["gone"]) == [2, 3]
    assert listed(gateway, where="status = 'open'", after=newer["position"]) == {
        **newer,
        "rows": [],
        "gone": [],
    }


def test_after_is_paged_as_any_listing(gateway: GatewayProcess, store: Store) -> None:
    put(store, *range(40))
    position = listed(gateway)["position"]
    put(store, *range(10, 30), version=2)
    for number in range(30, 40):
        store.put("orders", str(number), 2, None)
    pages = all_pages(gateway, after=position, limit=7)
    assert numbers(*pages) == list(range(10, 30))
    assert sorted(one["order_id"] for page in pages for one in page["gone"]) == list(range(30, 40))
    assert all(len(page["rows"]) + len(page["gone"]) <= 7 for page in pages)


def test_a_listing_with_a_position_that_cant_be_used_has_everything_and_says_why(
    gateway: GatewayProcess, store: Store
) -> None:
    put(store, 1, 2)
    lineage = store.catalog.lineage(store.catalog.views["orders"])
    for position, reason in (
        ("nonsense", "unreadable"),
        ("00000000.1.0-1", "foreign"),
        (f"{lineage}.0.0-1", "generation"),
        (f"{lineage}.2.0-1", "generation"),
        (f"{lineage}.1.0-900", "ahead"),
    ):
        page = listed(gateway, after=position)
        assert (page["reset"]["reason"], numbers(page)) == (reason, [1, 2]) and page["reset"]["message"]
        assert "gone" not in page
    now = listed(gateway, where="status = 'open' and ends_at > now()")["position"]
    assert listed(gateway, where="status = 'open' and ends_at > now()", after=now)["reset"]["reason"] == "query"


def test_what_has_gone_before_the_restore_is_not_known_and_gets_a_reset(
    redis_server: RedisServer, fresh: str, tmp_path: Path
) -> None:
    store = Store(redis_server.url, fresh, orders(partitions=1))
    store.publish_catalog()
    store.begin(target=5)
    gateway = GatewayProcess(tmp_path, redis_server.url, fresh)
    restoring = gateway.get("/views/orders")
    eventually(lambda: gateway.get("/views/orders").json()["error"] == "being restored", "the catalog is read")
    restoring = gateway.get("/views/orders")
    assert restoring.status_code == 503 and restoring.json()["target"] == 5 and restoring.headers["retry-after"]
    put(store, *range(6))
    lineage = store.catalog.lineage(store.catalog.views["orders"])
    assert listed(gateway, after=f"{lineage}.1.0-4")["reset"]["reason"] == "forgotten"
    put(store, 1, version=2)
    page = listed(gateway, after=f"{lineage}.1.0-5")
    assert "reset" not in page and numbers(page) == [1]
    gateway.close()


def test_a_page_of_the_build_before_is_outdated(gateway: GatewayProcess, store: Store) -> None:
    put(store, *range(30))
    put(store, *range(5), generation=2)
    first = listed(gateway, limit=10)
    store.replace(orders(generation=2))
    sample = 'tailrace_generation{view="orders"}'
    eventually(lambda: gateway.metric(sample) == 2, "the gateway has the catalog")
    # Until the store is handed over, it is the old build that is listed.
    assert numbers(listed(gateway)) == list(range(30)) and ".1." in listed(gateway)["position"]
    assert len(listed(gateway, limit=10, page=first["next"])["rows"]) == 10
    store.serve("orders")
    outdated = gateway.get(path(limit=10, page=first["next"]))
    assert outdated.status_code == 410 and outdated.json()["error"] == "outdated page"
    page = listed(gateway, after=first["position"])
    assert (page["reset"]["reason"], numbers(page)) == ("generation", list(range(5)))


def test_a_view_that_is_handed_over_in_part_is_not_listed(
    gateway: GatewayProcess, store: Store, redis_server: RedisServer
) -> None:
    put(store, *range(10))
    put(store, *range(10), generation=2)
    store.replace(orders(generation=2))
    key = partition_keys(default_prefix(store.app), "orders", 0).position
    redis.Redis.from_url(redis_server.url).hset(key, "generation", 2)
    found = gateway.get("/views/orders")
    assert found.status_code == 503 and found.json()["error"] == "being handed over"


def test_rows_that_change_between_pages_are_in_what_follows_the_position(gateway: GatewayProcess, store: Store) -> None:
    for number in range(300):
        store.put("orders", str(number), 1, order(number, "open", note="x" * 80))
    held: dict[int, str] = {}
    first = listed(gateway, limit=50)
    pages = [first]
    for number in range(0, 300, 3):
        store.put("orders", str(number), 2, None)
        put(store, number + 1, version=2, status="done")
        put(store, 1000 + number)
    while pages[-1]["next"] is not None:
        pages.append(listed(gateway, limit=50, page=pages[-1]["next"]))
    for page in [*pages, *all_pages(gateway, after=first["position"])]:
        assert "reset" not in page
        held.update({row["order_id"]: row["status"] for row in page["rows"]})
        for gone in page.get("gone", []):
            held.pop(gone["order_id"], None)
    assert held == {row["order_id"]: row["status"] for page in all_pages(gateway) for row in page["rows"]}
    assert len(held) == 300


def test_a_page_is_taken_up_again_after_redis_was_restarted(
    new_redis: Callable[..., RedisServer], fresh: str, tmp_path: Path
) -> None:
    server = new_redis()
    store = Store(server.url, fresh, orders(partitions=1))
    store.publish_catalog()
    store.begin()
    for number in range(400):
        store.put("orders", str(number), 1, order(number, "open", note="x" * 80))
    gateway = GatewayProcess(tmp_path, server.url, fresh)
    gateway.wait_ready()
    first = listed(gateway, limit=100)
    redis.Redis.from_url(server.url).save()
    server.stop()
    server.start()
    gateway.wait_ready()
    pages = [first]
    while pages[-1]["next"] is not None:
        pages.append(listed(gateway, limit=100, page=pages[-1]["next"]))
    assert sorted(set(numbers(*pages))) == list(range(400))
    gateway.close()

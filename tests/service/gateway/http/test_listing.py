"""Listings over a real Redis: pages, queries, entity tags, and what is newer than a position."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
import redis

from gateway_process import GatewayProcess, Store, view
from running import eventually
from tailrace.contracts.catalog import CatalogView, Column
from tailrace.dev.redis_server import RedisServer
from tailrace.gateway.http.listings.scan import EXAMINED
from tailrace.store.layout.keys import default_prefix, partition_keys

APP = "test-gateway-listing"


def orders(name: str, *, partitions: int = 2, generation: int = 1) -> CatalogView:
    columns = (Column("status", "string"), Column("total", "decimal(10,2)"), Column("ends_at", "timestamp"))
    return replace(view(name, "order_id bigint", partitions=partitions, generation=generation), columns=columns)


def order(number: int, status: str = "open", **more: Any) -> bytes:
    """A row, spelled as no encoder of ours would: what comes back must be these bytes."""
    held = {"order_id": number, "status": status, **more}
    return json.dumps(held, separators=(", ", ": ")).encode()


class Orders:
    """A view of orders of its own, in a store that the test fills, and a gateway that lists it."""

    def __init__(self, gateway: GatewayProcess, store: Store, name: str) -> None:
        self.gateway = gateway
        self.store = store
        self.name = name
        self.lineage = store.catalog.lineage(store.catalog.views[name])

    def put(self, *numbers: int, version: int = 1, status: str = "open", generation: int = 1, **more: Any) -> None:
        for number in numbers:
            value = order(number, status, **more)
            self.store.put(self.name, str(number), version, value, generation=generation)

    def remove(self, *numbers: int, version: int = 2) -> None:
        for number in numbers:
            self.store.put(self.name, str(number), version, None)

    def get(self, if_none_match: str | None = None, **parameters: object) -> httpx.Response:
        headers = {"If-None-Match": if_none_match} if if_none_match is not None else {}
        given = {name: str(value) for name, value in parameters.items() if value is not None}
        return httpx.get(f"{self.gateway.url}/views/{self.name}", params=given, headers=headers, timeout=30)

    def listed(self, **parameters: object) -> dict[str, Any]:
        found = self.get(None, **parameters)
        assert found.status_code == 200, found.text
        page: dict[str, Any] = found.json()
        return page

    def pages(self, page: dict[str, Any] | None = None, **parameters: object) -> list[dict[str, Any]]:
        """All pages of a listing, or all that come after a page."""
        pages = [page if page is not None else self.listed(**parameters)]
        while (following := pages[-1]["next"]) is not None:
            pages.append(self.listed(page=following, **parameters))
        return pages


@pytest.fixture(scope="module")
def gateway(redis_server: RedisServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    directory = tmp_path_factory.mktemp("gateway")
    process = GatewayProcess(directory, redis_server.url, APP, sweep=3600)
    yield process
    process.close()


@pytest.fixture
def shop(gateway: GatewayProcess, redis_server: RedisServer, fresh: str) -> Orders:
    name = f"orders-{fresh}"
    store = Store(redis_server.url, APP, orders(name))
    store.begin()
    store.publish_catalog()
    eventually(lambda: gateway.get(f"/views/{name}").status_code == 200, "the gateway has the catalog")
    return Orders(gateway, store, name)


def numbers(*pages: dict[str, Any]) -> list[int]:
    return sorted(row["order_id"] for page in pages for row in page["rows"])


def test_a_listing_has_every_row_as_it_is_stored_and_the_position_of_the_view(shop: Orders) -> None:
    shop.put(1, 2, 3)
    shop.remove(2)
    found = shop.get()
    assert found.status_code == 200 and found.headers["content-type"] == "application/json"
    assert order(1) in found.content and order(3) in found.content
    page = found.json()
    assert numbers(page) == [1, 3] and page["next"] is None and "gone" not in page
    held = {p: offset for (_, p), offset in shop.store.offsets.items() if offset >= 0}
    assert page["position"] == f"{shop.lineage}.1" + "".join(f".{p}-{o}" for p, o in sorted(held.items()))
    assert isinstance(page["as_of"], int)
    head = httpx.head(f"{shop.gateway.url}/views/{shop.name}")
    assert (head.status_code, head.content, head.headers["etag"]) == (200, b"", found.headers["etag"])


def test_an_empty_view_is_an_empty_listing(shop: Orders) -> None:
    page = shop.listed()
    assert (page["rows"], page["next"]) == ([], None)
    assert shop.listed(after=page["position"])["rows"] == []


@pytest.mark.parametrize(("limit", "count"), [(1, 20), (7, 200), (100, 200)])
def test_pages_together_have_every_row_once_and_none_is_longer_than_the_limit(
    shop: Orders, limit: int, count: int
) -> None:
    shop.put(*range(0, count, 2))
    # Too long for Redis to keep the whole hash as one small piece, which a scan gives at once.
    shop.put(*range(1, count, 2), note="x" * 100)
    pages = shop.pages(limit=limit)
    assert numbers(*pages) == list(range(count))
    assert all(len(page["rows"]) <= limit for page in pages)
    assert len({page["position"] for page in pages}) == 1


def test_a_query_lists_the_rows_that_match_it(shop: Orders) -> None:
    shop.put(1, 2, 3, 4)
    shop.put(2, 4, version=2, status="done")
    assert numbers(shop.listed(where="status = 'open'")) == [1, 3]
    assert numbers(shop.listed(where="status = 'done' and order_id > 2")) == [4]
    assert numbers(*shop.pages(where="status = 'open' or order_id = 4", limit=1)) == [1, 3, 4]
    assert shop.listed(where="status = 'none'")["rows"] == []


def test_a_query_for_certain_keys_reads_these_and_no_others(shop: Orders, redis_server: RedisServer) -> None:
    shop.put(*range(20))
    shop.put(4, version=2, status="done")
    position = shop.listed()["position"]
    server = redis.Redis.from_url(redis_server.url)
    server.config_resetstat()
    assert numbers(shop.listed(where="order_id in (1, 4, 7, 99)")) == [1, 4, 7]
    assert numbers(shop.listed(where="order_id in (1, 4, 7) and status = 'open'")) == [1, 7]
    assert "cmdstat_hscan" not in server.info("commandstats")
    shop.put(1, version=2)
    shop.put(2, version=2)
    shop.remove(7)
    newer = shop.listed(where="order_id in (1, 4, 7, 99)", after=position)
    assert (numbers(newer), newer["gone"]) == ([1], [{"order_id": 7}])
    assert numbers(*shop.pages(where="order_id in (1, 2, 3, 4, 5)", limit=2)) == [1, 2, 3, 4, 5]


def test_a_page_of_rows_that_hardly_match_ends_early_and_goes_on(shop: Orders, redis_server: RedisServer) -> None:
    name = partition_keys(default_prefix(APP), shop.name, 0).rows
    redis.Redis.from_url(redis_server.url).hset(
        name, mapping={f"{n}": b"1 1 0 0 " + order(n, "done") for n in range(EXAMINED + 1000)}
    )
    shop.put(1_000_000)
    pages = shop.pages(where="status = 'open'")
    assert len(pages) > 1 and pages[0]["next"] is not None
    assert numbers(*pages) == [1_000_000]


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("statsu = 'open'", "status"),
        ("status = 5", "two of a kind"),
        ("(", ""),
        (f"order_id in ({','.join(map(str, range(1001)))})", "1000"),
    ],
)
def test_a_query_that_cant_be_used_is_told_what_was_expected(shop: Orders, where: str, expected: str) -> None:
    found = shop.get(where=where)
    assert found.status_code == 400 and found.json()["error"] == "unusable query"
    assert expected in found.json()["expected"] and found.json()["remedy"]


def test_a_limit_that_is_none_is_refused(shop: Orders) -> None:
    for limit in ("0", "1001", "many", "-1"):
        found = shop.get(limit=limit)
        assert found.status_code == 422 and found.json()["problems"][0]["where"] == "query.limit"


def test_a_page_that_is_made_up_or_of_another_listing_is_refused(shop: Orders) -> None:
    shop.put(*range(30))
    following = shop.listed(limit=10, where="order_id >= 0")["next"]
    assert following
    mangled = following[:-2] + ("AA" if following[-2:] != "AA" else "BB")
    for page, where in ((following, None), (following, "order_id >= 1"), ("x", None), (mangled, "order_id >= 0")):
        found = shop.get(page=page, where=where, limit=10)
        assert found.status_code == 400 and found.json()["error"] == "unreadable page"
    # The same query in another spelling is the same listing, and the limit is the page's own.
    assert len(shop.listed(page=following, where="0 <= order_id", limit=5)["rows"]) == 5


def test_a_listing_that_has_not_changed_is_answered_with_304(shop: Orders) -> None:
    shop.put(1, 2)
    found = shop.get(where="status = 'open'")
    tag = found.headers["etag"]
    assert found.headers["cache-control"] == "no-cache" and "Authorization" in found.headers["vary"]
    again = shop.get(if_none_match=tag, where="status = 'open'")
    assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", tag)
    others: list[dict[str, object]] = [{}, {"where": "status = 'done'"}, {"where": "status = 'open'", "limit": 1}]
    for other in others:
        assert shop.get(if_none_match=tag, **other).status_code == 200
    shop.put(2, version=2)
    assert shop.get(if_none_match=tag, where="status = 'open'").status_code == 200


def test_a_query_with_the_clock_is_never_answered_from_a_cache(shop: Orders) -> None:
    shop.put(1)
    found = shop.get(where="ends_at > now() or status = 'open'")
    assert numbers(found.json()) == [1]
    assert "etag" not in found.headers and found.headers["cache-control"] == "no-store"


def test_after_gives_what_has_changed_and_what_is_gone(shop: Orders) -> None:
    shop.put(*range(1, 9))
    position = shop.listed(where="status = 'open'")["position"]
    assert shop.listed(where="status = 'open'", after=position)["rows"] == []
    shop.put(1, 9, version=2)
    shop.put(2, version=2, status="done")
    shop.remove(3)
    newer = shop.listed(where="status = 'open'", after=position)
    assert numbers(newer) == [1, 9] and "reset" not in newer
    assert sorted(one["order_id"] for one in newer["gone"]) == [2, 3]
    assert shop.listed(where="status = 'open'", after=newer["position"]) == {
        **newer,
        "rows": [],
        "gone": [],
    }


def test_after_is_paged_as_any_listing(shop: Orders) -> None:
    shop.put(*range(40))
    position = shop.listed()["position"]
    shop.put(*range(10, 30), version=2)
    for number in range(30, 40):
        shop.remove(number)
    pages = shop.pages(after=position, limit=7)
    assert numbers(*pages) == list(range(10, 30))
    assert sorted(one["order_id"] for page in pages for one in page["gone"]) == list(range(30, 40))
    assert all(len(page["rows"]) + len(page["gone"]) <= 7 for page in pages)


def test_a_listing_with_a_position_that_cant_be_used_has_everything_and_says_why(shop: Orders) -> None:
    shop.put(1, 2)
    for position, reason in (
        ("nonsense", "unreadable"),
        ("00000000.1.0-1", "foreign"),
        (f"{shop.lineage}.0.0-1", "generation"),
        (f"{shop.lineage}.2.0-1", "generation"),
        (f"{shop.lineage}.1.0-900", "ahead"),
    ):
        page = shop.listed(after=position)
        assert (page["reset"]["reason"], numbers(page)) == (reason, [1, 2]) and page["reset"]["message"]
        assert "gone" not in page
    now = shop.listed(where="status = 'open' and ends_at > now()")["position"]
    assert shop.listed(where="status = 'open' and ends_at > now()", after=now)["reset"]["reason"] == "query"


def test_what_has_gone_before_the_restore_is_not_known_and_gets_a_reset(
    gateway: GatewayProcess, redis_server: RedisServer, fresh: str
) -> None:
    store = Store(redis_server.url, APP, orders(fresh, partitions=1))
    store.begin(target=5)
    store.publish_catalog()
    shop = Orders(gateway, store, fresh)
    eventually(lambda: shop.get().status_code == 503, "the gateway has the catalog")
    restoring = shop.get()
    assert restoring.json()["error"] == "being restored"
    assert restoring.json()["target"] == 5 and restoring.headers["retry-after"]
    shop.put(*range(6))
    assert shop.listed(after=f"{shop.lineage}.1.0-4")["reset"]["reason"] == "forgotten"
    shop.put(1, version=2)
    page = shop.listed(after=f"{shop.lineage}.1.0-5")
    assert "reset" not in page and numbers(page) == [1]


def test_a_page_of_the_build_before_is_outdated(shop: Orders) -> None:
    shop.put(*range(30))
    shop.put(*range(5), generation=2)
    first = shop.listed(limit=10)
    shop.store.replace(orders(shop.name, generation=2))
    sample = f'tailrace_generation{{view="{shop.name}"}}'
    eventually(lambda: shop.gateway.metric(sample) == 2, "the gateway has the catalog")
    # Until the store is handed over, it is the old build that is listed.
    assert numbers(shop.listed()) == list(range(30)) and ".1." in shop.listed()["position"]
    assert len(shop.listed(limit=10, page=first["next"])["rows"]) == 10
    shop.store.serve(shop.name)
    outdated = shop.get(limit=10, page=first["next"])
    assert outdated.status_code == 410 and outdated.json()["error"] == "outdated page"
    page = shop.listed(after=first["position"])
    assert (page["reset"]["reason"], numbers(page)) == ("generation", list(range(5)))


def test_a_view_that_is_handed_over_in_part_is_not_listed(shop: Orders, redis_server: RedisServer) -> None:
    shop.put(*range(10))
    shop.put(*range(10), generation=2)
    key = partition_keys(default_prefix(APP), shop.name, 0).position
    redis.Redis.from_url(redis_server.url).hset(key, "generation", 2)
    found = shop.get()
    assert found.status_code == 503 and found.json()["error"] == "being handed over"


def test_rows_that_change_between_pages_are_in_what_follows_the_position(shop: Orders) -> None:
    for number in range(300):
        shop.put(number, note="x" * 80)
    held: dict[int, str] = {}
    first = shop.listed(limit=50)
    pages = [first]
    for number in range(0, 300, 3):
        shop.remove(number)
        shop.put(number + 1, version=2, status="done")
        shop.put(1000 + number)
    while pages[-1]["next"] is not None:
        pages.append(shop.listed(limit=50, page=pages[-1]["next"]))
    for page in [*pages, *shop.pages(after=first["position"])]:
        assert "reset" not in page
        held.update({row["order_id"]: row["status"] for row in page["rows"]})
        for gone in page.get("gone", []):
            held.pop(gone["order_id"], None)
    assert held == {row["order_id"]: row["status"] for page in shop.pages() for row in page["rows"]}
    assert len(held) == 300


def test_a_page_is_taken_up_again_after_redis_was_restarted(
    new_redis: Callable[..., RedisServer], fresh: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    server = new_redis()
    store = Store(server.url, fresh, orders("orders", partitions=1))
    store.publish_catalog()
    store.begin()
    gateway = GatewayProcess(tmp_path, server.url, fresh)
    request.addfinalizer(gateway.close)
    gateway.wait_ready()
    shop = Orders(gateway, store, "orders")
    shop.put(*range(400), note="x" * 80)
    first = shop.listed(limit=100)
    redis.Redis.from_url(server.url).save()
    server.stop()
    server.start()
    gateway.wait_ready()
    pages = shop.pages(first, limit=100)
    assert sorted(set(numbers(*pages))) == list(range(400))

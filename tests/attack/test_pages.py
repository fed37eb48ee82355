"""Pages and positions that somebody made up, against real gateways: no key outside of the client's rights is shown."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Iterator
from dataclasses import replace
from hashlib import sha256
from typing import Any
from urllib.parse import quote

import httpx
import pytest
import redis as redis_client

from access_tokens import bearer, settings, token
from gateway_process import GatewayProcess, Store, row, view
from tailrace.contracts.catalog import Column
from tailrace.dev.redis_server import RedisServer
from tailrace.queries import parse
from tailrace.store.connection.servers import AsyncServers
from tailrace.store.layout.keys import default_prefix
from tailrace.store.read.page_keys import PERIOD, PageKeys

APP = "attack-pages"
COLUMNS = (Column("order_id", "bigint"), Column("customer", "string"))
OWN = {"views": {"orders": {"where": "customer = {sub}"}}}
ONE = {"views": {"orders": ["3"]}}


@pytest.fixture(scope="module")
def orders(redis_server: RedisServer) -> Store:
    """Orders of two customers, some of them deleted again."""
    store = Store(redis_server.url, APP, replace(view("orders", "order_id bigint"), columns=COLUMNS))
    store.publish_catalog()
    store.begin()
    for n in range(40):
        store.put("orders", str(n), 1, row(1, order_id=n, customer="c7" if n % 4 == 3 else "c8"))
    for n in range(0, 40, 8):
        store.put("orders", str(n), 2, None)
    return store


@pytest.fixture(scope="module")
def gateways(
    redis_server: RedisServer, orders: Store, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[list[GatewayProcess]]:
    directory = tmp_path_factory.mktemp("pages")
    started = [GatewayProcess(directory, redis_server.url, APP, settings(directory)) for _ in range(2)]
    for one in started:
        one.wait_ready()
    yield started
    for one in started:
        one.close()


def listed(gateway: GatewayProcess, held: str, **asked: Any) -> httpx.Response:
    query = "&".join(f"{name}={quote(str(value), safe='')}" for name, value in asked.items())
    return gateway.get(f"/views/orders?{query}", **bearer(held))


def forged(store: Store, digests: list[str], after: str = "") -> str:
    """A page that begins at the first row and wants everything since the first record, with a sum as its check."""
    lineage = store.catalog.lineage(store.catalog.views["orders"])
    offsets = [[p, store.offsets["orders", p]] for p in range(2)]
    payload = json.dumps([1, offsets, [[0, 0], [1, 0]], 0, False, 0, "", ""], separators=(",", ":")).encode()
    check = sha256("\0".join((lineage, after, *digests)).encode() + b"\0" + payload).digest()[:8]
    return base64.urlsafe_b64encode(check + payload).rstrip(b"=").decode()


@pytest.mark.parametrize(("rights", "filter"), [(OWN, "(customer = 'c7')"), (ONE, '("order_id" = (3))')])
def test_a_page_that_somebody_made_up_shows_nothing(
    gateways: list[GatewayProcess], orders: Store, rights: object, filter: str
) -> None:
    held, digest = token("c7", rights=rights), parse(filter, COLUMNS).digest
    for where, digests in ((None, [digest]), ("false", [parse("false", COLUMNS).digest, digest])):
        asked = {"page": forged(orders, digests), **({} if where is None else {"where": where})}
        found = listed(gateways[0], held, **asked)
        assert "gone" not in found.json(), f"{len(found.json()['gone'])} keys are shown"
        assert (found.status_code, found.json()["error"]) == (400, "unreadable page")


def test_no_byte_of_a_page_may_be_changed(gateways: list[GatewayProcess]) -> None:
    held = token("c7", rights=OWN)
    page = listed(gateways[0], held, limit=2).json()["next"]
    data = base64.urlsafe_b64decode(page + "=" * (-len(page) % 4))
    assert listed(gateways[0], held, limit=2, page=page).status_code == 200
    for changed in (
        data.replace(b"null", b"[[0,0],[1,0]]"),
        data.replace(b"[0,", b"[1,"),
        data[:-1] + bytes([data[-1] ^ 1]),
        bytes([data[0] ^ 1]) + data[1:],
        data[:4],
        b"",
    ):
        text = base64.urlsafe_b64encode(changed).rstrip(b"=").decode()
        assert listed(gateways[0], held, limit=2, page=text or "-").status_code == 400, changed


def test_a_page_is_for_the_client_and_the_rights_that_it_was_made_for(gateways: list[GatewayProcess]) -> None:
    gateway, everything = gateways[0], {"views": {"orders": True}}
    whole = token("c7", rights=everything)
    first = listed(gateway, whole, limit=2).json()
    after = first["position"].partition(".")[0] + ".1.0-0.1-0"
    newer = listed(gateway, whole, limit=2, after=after).json()
    assert newer["next"] and ("gone" in newer or newer["reset"])
    own = listed(gateway, token("c7", rights=OWN), limit=2).json()["next"]
    for page, held, asked in (
        (first["next"], token("c7", rights=OWN), {}),
        (first["next"], token("c7", rights=OWN), {"where": "true"}),
        (first["next"], token("c8", rights=everything), {}),
        (newer["next"], token("c7", rights=OWN), {"after": after}),
        (newer["next"], token("c7", rights=ONE), {"after": after}),
        (own, token("c8", rights=OWN), {}),
        (own, token("c8", rights={"views": {"orders": {"where": "customer = 'c7'"}}}), {}),
        # The filter is no query of the client's own, though it has the same text.
        (own, whole, {"where": "customer = 'c7'"}),
        (own, token("c7", rights=ONE), {}),
    ):
        found = listed(gateway, held, limit=2, page=page, **asked)
        assert (found.status_code, found.json()["error"]) == (400, "unreadable page"), (held, asked)
    # Another token with the same rights goes on.
    assert listed(gateway, token("c7", rights=OWN, jti="another"), limit=2, page=own).status_code == 200


def test_every_gateway_takes_a_page_of_another_until_redis_is_emptied(
    gateways: list[GatewayProcess], redis_server: RedisServer
) -> None:
    held = token("c7", rights=OWN)
    rows, page = list[int](), None
    for n in range(20):
        found = listed(gateways[n % 2], held, limit=3, **({} if page is None else {"page": page}))
        assert found.status_code == 200, found.text
        rows += [one["order_id"] for one in found.json()["rows"]]
        page = found.json()["next"]
        if page is None:
            break
    assert sorted(rows) == list(range(3, 40, 4))
    page = listed(gateways[0], held, limit=3).json()["next"]
    client = redis_client.Redis.from_url(redis_server.url)
    names = list(client.scan_iter(f"{default_prefix(APP)}:page-key:*"))
    assert len(names) == 1 and client.ttl(names[0]) > 0
    client.delete(*names)
    for gateway in gateways:
        found = listed(gateway, held, limit=3, page=page)
        assert (found.status_code, found.json()["error"]) == (400, "unreadable page")
    page = listed(gateways[0], held, limit=3).json()["next"]
    assert listed(gateways[1], held, limit=3, page=page).status_code == 200


def test_a_page_is_good_for_a_day_at_least_and_for_two_at_most(redis_server: RedisServer, fresh: str) -> None:
    now = [20_000 * PERIOD + 5.0]

    async def go() -> None:
        servers = [AsyncServers(redis_server.url) for _ in range(2)]
        one, other = (PageKeys(each, fresh, lambda: now[0]) for each in servers)
        first = await one.current()
        assert first == await other.current() == await other.named(first.number), "the first one makes it"
        now[0] += PERIOD
        second = await other.current()
        assert second.number == first.number + 1 and second.secret != first.secret
        assert [await one.named(key.number) for key in (first, second)] == [first, second]
        now[0] += PERIOD
        assert [await one.named(key.number) for key in (first, second)] == [None, second]
        assert await one.named(first.number + 2) is None, "who checks makes none"
        for each in servers:
            await each.close()

    asyncio.run(go())

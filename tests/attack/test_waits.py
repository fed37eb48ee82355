"""Requests that wait, against a real gateway: they end with token and client, and tell nothing of hidden rows."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from confluent_kafka import Producer

from access_tokens import bearer, settings, token
from gateway_process import GatewayProcess, Store, row, view
from running import eventually
from tailrace.contracts.catalog import PROGRESS_RECORDS, Column, ViewProgress
from tailrace.dev.broker import Broker
from tailrace.dev.redis_server import RedisServer
from tailrace.kafka.brokers import Brokers
from tailrace.kafka.topics import Topics
from tailrace.store.layout.keys import default_prefix
from tailrace.store.read.revocations import revoke

APP, SOURCE, CHANGELOG = "attack-waits", "attack-waits-source", "attack-waits-changelog"
OWN = {"views": {"orders": {"where": "customer = {sub}"}}}


@pytest.fixture(scope="module")
def store(redis_server: RedisServer, broker: Broker) -> Store:
    """Orders that tell by their rows which records they have taken in; the order 2 is of c8, and 3 was."""
    Topics(Brokers(broker.address)).create(CHANGELOG, partitions=1, replication=1, config={})
    producer = Producer({"bootstrap.servers": broker.address})
    producer.produce(CHANGELOG, b"{}", key=b"1")
    assert producer.flush(30) == 0
    columns = (Column("order_id", "bigint"), Column("customer", "string"))
    orders = replace(view("orders", "order_id bigint", partitions=1), columns=columns, changelog=CHANGELOG)
    store = Store(redis_server.url, APP, replace(orders, sources={SOURCE: "id"}, by_offset=True))
    store.publish_catalog()
    store.begin()
    for n, customer in ((1, "c7"), (2, "c8"), (3, "c8")):
        store.put("orders", str(n), 18, row(18, order_id=n, customer=customer))
    store.put("orders", "3", 19, None)
    return store


@pytest.fixture(scope="module")
def gateway(
    redis_server: RedisServer, broker: Broker, store: Store, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[GatewayProcess]:
    directory = tmp_path_factory.mktemp("gateway")
    given = settings(directory, open="metrics") | {"kafka": broker.address}
    process = GatewayProcess(directory, redis_server.url, APP, given, patience=600, sweep=0.3)
    process.wait_ready()
    yield process
    process.close()


@pytest.fixture
def ahead(store: Store) -> str:
    """A listing that waits for the store."""
    return f"/views/orders?after={store.position('orders', '1', 10_000)}"


def waiting(gateway: GatewayProcess, number: int) -> None:
    eventually(lambda: gateway.metric("tailrace_gateway_waits") == number, f"{number} requests wait", 30)


def test_a_listing_that_waits_ends_when_its_token_is_revoked(
    gateway: GatewayProcess, redis_server: RedisServer, ahead: str
) -> None:
    with ThreadPoolExecutor(3) as clients:
        listing = clients.submit(gateway.get, ahead, **bearer(token("r7", jti="listing")))
        lookup = clients.submit(gateway.get, "/views/orders/9", Prefer="wait=60", **bearer(token("r7", jti="lookup")))
        waiting(gateway, 2)
        revoke(redis_server.url, default_prefix(APP), "sub:r7", 60)
        for answer in (listing, lookup):
            found = answer.result(20)
            assert (found.status_code, found.json()["error"]) == (401, "token revoked")
    waiting(gateway, 0)


def test_a_listing_that_waits_ends_with_its_token(gateway: GatewayProcess, ahead: str) -> None:
    found = gateway.get(ahead, **bearer(token("r8", lasts=1)))
    assert (found.status_code, found.json()["error"]) == (401, "token expired")
    waiting(gateway, 0)


def test_a_listing_that_waits_ends_when_its_client_goes_away(gateway: GatewayProcess, ahead: str) -> None:
    link = socket.create_connection(("127.0.0.1", gateway.port))
    head = f"GET {ahead} HTTP/1.1\r\nHost: test\r\nAuthorization: Bearer {token('r9')}\r\n\r\n"
    link.sendall(head.encode())
    waiting(gateway, 1)
    link.close()
    waiting(gateway, 0)


def test_at_least_does_not_tell_whether_a_hidden_row_has_changed(gateway: GatewayProcess, store: Store) -> None:
    own, everything = bearer(token("c7", rights=OWN)), bearer(token("admin"))

    def asked(key: int, offset: int, held: dict[str, str]) -> tuple[int, dict[str, object]]:
        found = gateway.get(f"/views/orders/{key}?at_least={SOURCE}:0:{offset}", Prefer="wait=1", **held)
        return found.status_code, {name: text for name, text in found.json().items() if name != "key"}

    # 2 is hidden, 3 was when it was there, and 4 was never there.
    answers = [asked(key, 17, own) for key in (2, 3, 4)]
    assert [status for status, _ in answers] == [503, 503, 503] and answers[0] == answers[1] == answers[2]
    assert asked(1, 17, own)[0] == 200, "of a row that may be seen, the row tells"
    assert (asked(2, 17, everything)[0], asked(3, 18, everything)[0]) == (200, 404)
    progress = ViewProgress("orders", 1, 4, 120, offsets={SOURCE: {"0": 18}})
    store.writer.put_catalog(PROGRESS_RECORDS + "orders", progress.encode())
    eventually(lambda: asked(4, 17, own)[0] == 404, "the end of a batch is known", 30)
    answers = [asked(key, 17, own) for key in (2, 3, 4)]
    assert [status for status, _ in answers] == [404, 404, 404] and answers[0] == answers[1] == answers[2]
    assert [asked(key, 18, own)[0] for key in (2, 3, 4)] == [503, 503, 503]


def test_at_least_names_no_topic_that_the_token_does_not_allow(gateway: GatewayProcess) -> None:
    own = bearer(token("c7", rights=OWN))
    sending = bearer(token("c7", rights={**OWN, "topics": [SOURCE]}))
    for record in ("other:0:1", "nonsense"):
        found = gateway.get(f"/views/orders/1?at_least={record}", **own)
        assert found.status_code == 400 and SOURCE not in found.text and CHANGELOG not in found.text
        assert SOURCE in gateway.get(f"/views/orders/1?at_least={record}", **sending).text
    late = time.time_ns() // 10
    told = gateway.get(f"/views/orders/1?at_least={SOURCE}:0:{late}", Prefer="wait=1", **own)
    assert told.status_code == 503 and CHANGELOG not in told.text and "offset" not in told.json()["got"]

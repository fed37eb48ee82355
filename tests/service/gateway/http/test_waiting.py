"""Lookups that wait: the long poll, and reading your own write."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
import redis
from confluent_kafka import Producer

from gateway_process import GatewayProcess, Store, row, view
from running import eventually
from tailrace.contracts.catalog import PROGRESS_RECORDS, CatalogView, ViewProgress
from tailrace.dev.broker import Broker
from tailrace.dev.redis_server import RedisServer
from tailrace.kafka.brokers import Brokers
from tailrace.kafka.topics import Topics


@pytest.fixture
def clients() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(50) as pool:
        yield pool


def waiting(gateway: GatewayProcess, number: int) -> None:
    eventually(lambda: gateway.metric("tailrace_gateway_waits") == number, f"{number} lookups wait")


def channels(server: RedisServer, pattern: str) -> int:
    return len(redis.Redis.from_url(server.url).pubsub_channels(pattern))


def test_a_lookup_waits_for_another_row(gateway: GatewayProcess, store: Store, clients: ThreadPoolExecutor) -> None:
    store.put("averages", "1", 1, row(1))
    tag = gateway.get("/views/averages/1").headers["etag"]
    answer = clients.submit(gateway.get, "/views/averages/1", If_None_Match=tag, Prefer="wait=30")
    waiting(gateway, 1)
    store.put("averages", "1", 2, row(2))
    found = answer.result(20)
    assert (found.status_code, found.content) == (200, row(2))
    assert found.headers["preference-applied"] == "wait=30"
    waiting(gateway, 0)


def test_a_lookup_waits_for_a_row_to_be_there_and_for_one_to_go(
    gateway: GatewayProcess, store: Store, clients: ThreadPoolExecutor
) -> None:
    answer = clients.submit(gateway.get, "/views/averages/2", Prefer="respond-async, Wait=30")
    waiting(gateway, 1)
    store.put("averages", "2", 1, row(1))
    found = answer.result(20)
    assert (found.status_code, found.content) == (200, row(1))
    answer = clients.submit(gateway.get, "/views/averages/2", If_None_Match=found.headers["etag"], Prefer="wait=30")
    waiting(gateway, 1)
    store.put("averages", "2", 2, None)
    assert answer.result(20).status_code == 404


def test_what_is_news_already_is_answered_at_once(gateway: GatewayProcess, store: Store) -> None:
    store.put("averages", "3", 1, row(1))
    began = time.monotonic()
    assert gateway.get("/views/averages/3", Prefer="wait=60").content == row(1)
    assert gateway.get("/views/averages/3", Prefer="wait=60", If_None_Match='"other"').content == row(1)
    assert gateway.get("/views/averages/gone", Prefer="wait=60", If_None_Match='"other"').status_code == 404
    assert time.monotonic() - began < 50, "nothing was waited for"


def test_a_wait_that_was_in_vain_ends_as_the_lookup_would_have(gateway: GatewayProcess, store: Store) -> None:
    store.put("averages", "4", 1, row(1))
    tag = gateway.get("/views/averages/4").headers["etag"]
    found = gateway.get("/views/averages/4", If_None_Match=tag, Prefer="wait=1")
    assert (found.status_code, found.headers["preference-applied"]) == (304, "wait=1")
    missing = gateway.get("/views/averages/nothing", Prefer="wait=1")
    assert (missing.status_code, missing.headers["preference-applied"]) == (404, "wait=1")
    for ignored in ("wait=soon", "wait", "return=minimal", ""):
        assert "preference-applied" not in gateway.get("/views/averages/4", Prefer=ignored).headers


def test_many_lookups_that_wait_for_a_key_share_its_channel_and_leave_nothing_behind(
    gateway: GatewayProcess, store: Store, redis_server: RedisServer, clients: ThreadPoolExecutor
) -> None:
    pattern = f"tailrace:{store.app}:*:shared"
    answers: list[Future[httpx.Response]] = [
        clients.submit(gateway.get, "/views/names/shared", Prefer="wait=30") for _ in range(40)
    ]
    waiting(gateway, 40)
    # A follower of the same key comes and goes: the channel stays.
    tap = gateway.follow("/views/names/shared/events")
    tap.frames("ready")
    tap.close()
    eventually(lambda: gateway.metric("tailrace_gateway_followers") == 0, "the follower has left")
    assert channels(redis_server, pattern) == 1
    store.put("names", "shared", 1, row(1))
    assert {answer.result(20).content for answer in answers} == {row(1)}
    waiting(gateway, 0)
    eventually(lambda: not channels(redis_server, pattern), "the channel is left")


def test_a_client_that_goes_away_leaves_nothing_behind(
    gateway: GatewayProcess, store: Store, redis_server: RedisServer
) -> None:
    links = []
    for _ in range(10):
        link = socket.create_connection(("127.0.0.1", gateway.port))
        link.sendall(b"GET /views/names/left HTTP/1.1\r\nHost: test\r\nPrefer: wait=60\r\n\r\n")
        links.append(link)
    waiting(gateway, 10)
    for link in links:
        link.close()
    waiting(gateway, 0)
    eventually(lambda: not channels(redis_server, f"tailrace:{store.app}:*:left"), "the channel is left")


def test_a_message_that_pub_sub_has_lost_is_made_up_for(
    redis_server: RedisServer, fresh: str, tmp_path: Path, clients: ThreadPoolExecutor, request: pytest.FixtureRequest
) -> None:
    store = Store(redis_server.url, fresh, view("averages", partitions=1))
    store.publish_catalog()
    store.begin()
    gateway = GatewayProcess(tmp_path, redis_server.url, fresh, sweep=0.2)
    request.addfinalizer(gateway.close)
    gateway.wait_ready()
    answer = clients.submit(gateway.get, "/views/averages/1", Prefer="wait=30")
    waiting(gateway, 1)
    # Written as a materializer does, but for the message.
    name = f"tailrace:{fresh}:{{averages:0}}:rows"
    redis.Redis.from_url(redis_server.url).hset(name, "1", b"1 1 0 0 " + row(1))
    assert answer.result(20).content == row(1)


def test_a_draining_gateway_ends_waits_with_what_it_knows(
    redis_server: RedisServer, fresh: str, tmp_path: Path, clients: ThreadPoolExecutor, request: pytest.FixtureRequest
) -> None:
    store = Store(redis_server.url, fresh, view("averages"))
    store.publish_catalog()
    store.begin()
    store.put("averages", "1", 1, row(1))
    gateway = GatewayProcess(tmp_path, redis_server.url, fresh)
    request.addfinalizer(gateway.stop)
    gateway.wait_ready()
    tag = gateway.get("/views/averages/1").headers["etag"]
    held = clients.submit(gateway.get, "/views/averages/1", If_None_Match=tag, Prefer="wait=60")
    missing = clients.submit(gateway.get, "/views/averages/2", Prefer="wait=60")
    waiting(gateway, 2)
    closing = threading.Thread(target=gateway.close)
    closing.start()
    assert (held.result(20).status_code, missing.result(20).status_code) == (304, 404)
    closing.join()


def latest(fresh: str) -> CatalogView:
    return replace(view("latest", "name string", partitions=1), sources={f"s-{fresh}": "id"}, by_offset=True)


def counted(fresh: str) -> CatalogView:
    found = replace(view("counted", "name string", partitions=1), sources={f"s-{fresh}": "id"})
    return replace(found, changelog=f"c-{fresh}")


@pytest.fixture
def own(redis_server: RedisServer, broker: Broker, fresh: str) -> Store:
    """A view that tells by its rows what it has taken in, and one that tells at the end of a batch."""
    Topics(Brokers(broker.address)).create(f"c-{fresh}", partitions=1, replication=1, config={})
    producer = Producer({"bootstrap.servers": broker.address})
    producer.produce(f"c-{fresh}", b"{}", key=b"k")
    assert producer.flush(30) == 0
    store = Store(redis_server.url, fresh, latest(fresh), counted(fresh))
    store.publish_catalog()
    store.begin()
    return store


@pytest.fixture
def own_gateway(redis_server: RedisServer, broker: Broker, own: Store, tmp_path: Path) -> Iterator[GatewayProcess]:
    process = GatewayProcess(tmp_path, redis_server.url, own.app, {"kafka": broker.address}, sweep=3600)
    process.wait_ready()
    yield process
    process.close()


def test_a_view_of_the_latest_event_tells_by_the_row_that_it_has_taken_a_record_in(
    own_gateway: GatewayProcess, own: Store, clients: ThreadPoolExecutor, fresh: str
) -> None:
    own.put("latest", "a", 17, row(17))
    ask = f"/views/latest/a?at_least=s-{fresh}:0:17"
    answer = clients.submit(own_gateway.get, ask, Prefer="wait=30")
    waiting(own_gateway, 1)
    own.put("latest", "a", 18, row(18))
    assert answer.result(20).content == row(18)
    assert own_gateway.get(ask).content == row(18)
    own.put("latest", "a", 19, None)
    assert own_gateway.get(ask + f"&at_least=s-{fresh}:0:18").status_code == 404, "the write was a delete"


def test_a_view_that_counts_tells_at_the_end_of_a_batch(
    own_gateway: GatewayProcess, own: Store, clients: ThreadPoolExecutor, fresh: str
) -> None:
    ask = f"/views/counted/k?at_least=s-{fresh}:1:7"

    def progress(following: int, generation: int = 1) -> None:
        held = ViewProgress("counted", generation, 4, 120, offsets={f"s-{fresh}": {"0": 99, "1": following}})
        own.writer.put_catalog(PROGRESS_RECORDS + "counted", held.encode())

    progress(7)
    early = own_gateway.get(ask, Prefer="wait=1")
    assert early.status_code == 503 and early.json()["error"] == "not taken in yet" and early.headers["retry-after"]
    assert early.json()["at_least"] == [f"s-{fresh}:1:7"]
    eventually(
        lambda: "ended at offset 6" in own_gateway.get(ask, Prefer="wait=1").json()["got"], "the progress is known"
    )
    answer = clients.submit(own_gateway.get, ask, Prefer="wait=30")
    waiting(own_gateway, 1)
    progress(8)
    behind = own_gateway.get(ask, Prefer="wait=2")
    assert behind.status_code == 503
    assert not answer.done(), "the changelog has a record that the store does not have"
    own.put("counted", "k", 5, row(5))
    assert answer.result(20).content == row(5)
    assert own_gateway.get(ask).content == row(5)
    progress(9, generation=2)
    eventually(lambda: own_gateway.get(ask, Prefer="wait=1").status_code == 503, "another build has not taken it in")


@pytest.mark.parametrize("record", ["other:0:1", "nonsense", "s-{}:0", "s-{}:-1:5", "s-{}:0:1:2"])
def test_at_least_names_a_record_of_a_topic_that_the_view_reads(
    own_gateway: GatewayProcess, own: Store, fresh: str, record: str
) -> None:
    found = own_gateway.get(f"/views/latest/a?at_least={record.format(fresh)}")
    assert found.status_code == 400
    assert found.json()["expected"] == [f"s-{fresh}:partition:offset"] and found.json()["remedy"]

"""One client that wants everything: it gets its share, is told which limit it has met, and others get theirs."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import redis

from access_tokens import Socket, bearer, settings, token
from attacking import RawClient, request
from gateway_process import GatewayProcess, Store, row, view
from peers import UPGRADE
from running import eventually
from tailrace.contracts.commands import commands_topic
from tailrace.dev.broker import Broker
from tailrace.dev.redis_server import RedisServer
from tailrace.kafka.brokers import Brokers
from tailrace.kafka.topics import COMMANDS, Topics
from tailrace.store.layout.keys import default_prefix, stream_key

_STREAM_BYTES = 100_000
_UNREAD = 16_000_000


@pytest.fixture(scope="module")
def store(redis_server: RedisServer) -> Store:
    """A view with a row, and one whose listing is long."""
    store = Store(redis_server.url, "budgets", view("averages"), view("long"))
    store.publish_catalog()
    store.begin()
    store.put("averages", "1", 1, row(1))
    for number in range(40):
        store.put("long", str(number), 1, row(1, text=150_000 * "a"))
    return store


@pytest.fixture(scope="module")
def gateway(
    broker: Broker, redis_server: RedisServer, store: Store, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[GatewayProcess]:
    """A gateway where a user has little of everything."""
    Topics(Brokers(broker.address)).create(commands_topic(store.app), partitions=1, replication=1, config=COMMANDS)
    directory = tmp_path_factory.mktemp("budgets")
    given = settings(
        directory,
        kafka=broker.address,
        open="metrics",
        limit_user_requests="60",
        limit_lookups="10",
        limit_user_unread_bytes=str(_UNREAD),
        limit_user_stream_bytes=str(_STREAM_BYTES),
        limit_user_followed_bytes="100000",
        limit_user_query_cost="6",
    )
    process = GatewayProcess(directory, redis_server.url, store.catalog.app, given, slow=2)
    process.wait_ready()
    yield process
    process.close()


def test_answers_that_are_never_read_are_bounded_and_end(gateway: GatewayProcess) -> None:
    asked = request("GET", "/views/long?limit=1000", *_lines("greedy"))
    held = [RawClient(gateway.port, asked, buffer=4096) for _ in range(10)]
    eventually(lambda: _limited(gateway, "unread-bytes") > 0, "one is refused")
    assert 0 < _used(gateway, "unread-bytes") <= _UNREAD
    found = gateway.get("/views/long?limit=1000", **bearer(token("patient")))
    assert found.status_code == 200 and len(found.content) > 4_000_000
    eventually(lambda: _used(gateway, "unread-bytes") == 0, "who does not read is cut off")
    eventually(lambda: _used(gateway, "requests") <= 1, "only this request counts")
    assert _limited(gateway, "slow-client") > 0
    for one in held:
        one.close()


def test_an_answer_that_is_read_comes_whole(gateway: GatewayProcess) -> None:
    asked = request("GET", "/views/long?limit=1000", *_lines("several"))
    for _ in range(6):
        status, _, body = RawClient(gateway.port, asked).answer()
        assert status == 200 and len(body["rows"]) > 20
    eventually(lambda: _used(gateway, "unread-bytes") == 0, "everything is read")


def test_a_user_waits_for_so_many_rows(gateway: GatewayProcess) -> None:
    asked = request("GET", "/views/averages/none", "Prefer: wait=60", *_lines("waiting"))
    before = _limited(gateway, "requests")
    clients = [RawClient(gateway.port, asked) for _ in range(70)]
    eventually(lambda: gateway.metric("tailrace_gateway_waits") == 60, "as many wait as may")
    eventually(lambda: _limited(gateway, "requests") == before + 10, "the others are refused")
    other = RawClient(gateway.port, request("GET", "/views/averages/1", *_lines("other")))
    assert other.answer()[0] == 200
    again = RawClient(gateway.port, asked)
    _told(again.answer(), "--limit-user-requests")
    for one in clients:
        one.close()
    eventually(lambda: gateway.metric("tailrace_gateway_waits") == 0, "nobody waits")
    assert gateway.get("/views/averages/1", **bearer(token("waiting"))).status_code == 200


def test_a_user_asks_so_often(redis_server: RedisServer, store: Store, tmp_path: Path) -> None:
    given = settings(tmp_path, limit_lookups="1")
    gateway = GatewayProcess(tmp_path, redis_server.url, store.catalog.app, given)
    gateway.wait_ready()
    with httpx.Client(base_url=gateway.url, timeout=30) as client:
        found = [client.get("/views/averages/1", headers=bearer(token("often"))) for _ in range(60)]
        assert [one.status_code for one in found[:10]] == 10 * [200]
        late = [one for one in found if one.status_code != 200]
        assert late and {one.status_code for one in late} == {429}
        _told((429, dict(late[0].headers), late[0].json()), "--limit-lookups")
        assert client.get("/views/averages/1", headers=bearer(token("calm"))).status_code == 200
        # A listing is as much work as ten lookups.
        statuses = [client.get("/views/averages", headers=bearer(token("lists"))).status_code for _ in range(10)]
        assert statuses[0] == 200 and 429 in statuses
    gateway.close()


def test_the_streams_of_a_user_have_so_many_bytes(gateway: GatewayProcess) -> None:
    keys = [f"{number:0500d}" for number in range(60)]
    opened = [_open(gateway, "streams", keys, ttl=86_400) for _ in range(4)]
    assert [one.status_code for one in opened] == [201, 201, 201, 429]
    _told((429, dict(opened[3].headers), opened[3].json()), "--limit-user-stream-bytes")
    assert _used(gateway, "stream-bytes") <= _STREAM_BYTES
    assert _open(gateway, "others", keys).status_code == 201
    path = f"{gateway.url}/streams/{opened[0].json()['id']}"
    grown = httpx.patch(path, headers=bearer(token("streams")), json={"add": [key + "a" for key in keys]}, timeout=30)
    assert grown.status_code == 429
    assert len(httpx.get(path, headers=bearer(token("streams")), timeout=30).json()["keys"]) == 60
    assert httpx.delete(path, headers=bearer(token("streams")), timeout=30).status_code == 204
    eventually(lambda: _open(gateway, "streams", keys).status_code == 201, "there is room again")


def test_a_stream_that_has_expired_makes_room(gateway: GatewayProcess) -> None:
    keys = [f"{number:0500d}" for number in range(150)]
    assert _open(gateway, "brief", keys, ttl=5).status_code == 201
    assert _open(gateway, "brief", keys, ttl=5).status_code == 429
    eventually(lambda: _open(gateway, "brief", keys, ttl=5).status_code == 201, "there is room again")


def test_a_user_writes_streams_so_often(gateway: GatewayProcess) -> None:
    found = []
    for _ in range(10):
        opened = _open(gateway, "writes", [f"{number:0500d}" for number in range(180)])
        found.append(opened)
        if opened.status_code == 201:
            path = f"{gateway.url}/streams/{opened.json()['id']}"
            httpx.delete(path, headers=bearer(token("writes")), timeout=30)
    refused = next(one for one in found if one.status_code == 429)
    _told((429, dict(refused.headers), refused.json()), "--limit-lookups")


def test_a_step_that_changes_nothing_is_not_written(
    gateway: GatewayProcess, store: Store, redis_server: RedisServer
) -> None:
    opened = _open(gateway, "steps", ["1", "2"]).json()
    path, held = f"{gateway.url}/streams/{opened['id']}", bearer(token("steps"))
    with redis.Redis.from_url(redis_server.url) as client:
        name = stream_key(default_prefix(store.app), opened["id"])
        assert httpx.post(f"{path}/begin", headers=held, timeout=30).json()["begun"] is True
        revision = client.hget(name, "revision")
        assert revision is not None
        for _ in range(3):
            assert httpx.post(f"{path}/begin", headers=held, timeout=30).json()["begun"] is True
            changes: Any = {"add": ["1"], "remove": ["3"]}
            assert httpx.patch(path, headers=held, json=changes, timeout=30).json()["keys"] == ["1", "2"]
        assert client.hget(name, "revision") == revision
        httpx.patch(path, headers=held, json={"add": ["3"]}, timeout=30)
        assert client.hget(name, "revision") != revision


def test_a_user_follows_so_many_bytes_of_keys(gateway: GatewayProcess) -> None:
    held = bearer(token("keys"))
    keys = [[f"{batch}-{number:0900d}" for number in range(30)] for batch in range(4)]
    first, second = (Socket(gateway.port, **held) for _ in range(2))
    for socket, batch in ((first, 0), (first, 1), (second, 2)):
        socket.say("subscribe", id=str(batch), view="averages", keys=keys[batch])
        assert socket.hear("ready", "error")["type"] == "ready"
    second.say("subscribe", id="3", view="averages", keys=keys[3])
    error = second.hear("error")
    assert (error["id"], error["limit"], error["retry"]) == ("3", "--limit-user-followed-bytes", True)
    path = "/views/averages/events?" + "&".join(f"key={key}" for key in keys[3])
    refused = gateway.get(path, **held)
    _told((refused.status_code, dict(refused.headers), refused.json()), "--limit-user-followed-bytes")
    first.say("unsubscribe", id="0")
    assert first.hear()["type"] == "unsubscribed"
    tap = gateway.follow(path, headers=held)
    assert tap.status == 200
    second.say("subscribe", id="3", view="averages", keys=keys[3])
    assert second.hear()["type"] == "error"
    tap.close()
    for socket in (first, second):
        socket.close()
    eventually(lambda: _used(gateway, "followed-bytes") == 0, "nothing is left")


def test_keys_that_are_followed_as_a_stream_count_too(gateway: GatewayProcess) -> None:
    held, keys = bearer(token("stream-keys")), [str(number) for number in range(230)]
    id = _open(gateway, "stream-keys", keys).json()["id"]
    taps = [gateway.follow(f"/streams/{id}/events", headers=held) for _ in range(2)]
    assert [tap.status for tap in taps] == [200, 200]
    refused = gateway.get(f"/streams/{id}/events", **held)
    _told((refused.status_code, dict(refused.headers), refused.json()), "--limit-user-followed-bytes")
    socket = Socket(gateway.port, f"/streams/{id}/ws", **held)
    assert socket.hear("error")["limit"] == "--limit-user-followed-bytes"
    assert socket.code() == 4429
    # Also keys that come later.
    taps[1].close()
    other = Socket(gateway.port, **held)

    def subscribed() -> bool:
        other.say("subscribe", id="keys", view="averages", keys=keys)
        return bool(other.hear("subscribed", "error")["type"] == "subscribed")

    eventually(subscribed, "the one that has left has made room")
    path = f"{gateway.url}/streams/{id}"
    assert httpx.post(f"{path}/begin", headers=held, timeout=30).status_code == 200
    more = {"add": [str(number) for number in range(230, 460)]}
    assert httpx.patch(path, headers=held, json=more, timeout=30).status_code == 200
    assert taps[0].frames("close")[-1].data["reason"] == "too many"
    other.close()
    eventually(lambda: _used(gateway, "followed-bytes") == 0, "nothing is left")


@pytest.mark.parametrize("what", [{"keys": ["1"]}, {}, {"where": "movie_id > 1"}])
def test_positions_count_as_what_is_followed(gateway: GatewayProcess, what: dict[str, object]) -> None:
    socket = Socket(gateway.port, **bearer(token("positions")))
    for number in range(2):
        socket.say("subscribe", id=str(number), view="averages", position=60_000 * "x", **what)
    heard = socket.hear("error")
    assert (heard["id"], heard["limit"]) == ("1", "--limit-user-followed-bytes")
    socket.close()
    eventually(lambda: _used(gateway, "followed-bytes") == 0, "nothing is left")


def test_the_queries_of_streams_count_from_the_start(gateway: GatewayProcess) -> None:
    held = bearer(token("stream-queries"))

    def opened(number: int) -> httpx.Response:
        body = {"view": "averages", "where": f"movie_id > {number} and movie_id <> {number}"}
        return httpx.post(f"{gateway.url}/streams", headers=held, json=body, timeout=30)

    found = [opened(number) for number in range(4)]
    assert [one.status_code for one in found] == [201, 201, 201, 429]
    _told((429, dict(found[3].headers), found[3].json()), "--limit-user-query-cost")
    httpx.delete(f"{gateway.url}/streams/{found[0].json()['id']}", headers=held, timeout=30)
    found[0] = opened(5)
    assert found[0].status_code == 201, "there is room again"
    for one in found[:3]:
        httpx.delete(f"{gateway.url}/streams/{one.json()['id']}", headers=held, timeout=30)


def test_a_stream_that_was_ended_at_another_gateway_makes_room(
    gateway: GatewayProcess, redis_server: RedisServer, store: Store, broker: Broker, tmp_path: Path
) -> None:
    given = settings(tmp_path, kafka=broker.address, open="metrics")
    other = GatewayProcess(tmp_path, redis_server.url, store.catalog.app, given, look=0.5)
    other.wait_ready()
    opened = _open(other, "elsewhere", ["1"], ttl=86_400).json()["id"]
    assert _used(other, "stream-bytes") > 0
    ended = httpx.delete(f"{gateway.url}/streams/{opened}", headers=bearer(token("elsewhere")), timeout=30)
    assert ended.status_code == 204
    eventually(lambda: _used(other, "stream-bytes") == 0, "it is counted no longer")
    # One that Redis has lost is no such one: it is written back when it is asked for.
    opened = _open(other, "elsewhere", ["1"], ttl=86_400).json()["id"]
    with redis.Redis.from_url(redis_server.url) as client:
        client.delete(stream_key(default_prefix(store.app), opened))
    time.sleep(2)
    found = httpx.get(f"{other.url}/streams/{opened}", headers=bearer(token("elsewhere")), timeout=60)
    assert found.status_code == 200
    assert _used(other, "stream-bytes") > 0
    other.close()


def test_an_upgrade_behind_an_answer_that_is_not_read_ends_the_connection(gateway: GatewayProcess) -> None:
    before = gateway.metric('tailrace_gateway_refused_total{status="400"}')
    asked = request("GET", "/views/long?limit=1000", *_lines("upgrades"))
    held = RawClient(gateway.port, asked, buffer=4096)
    eventually(lambda: _used(gateway, "unread-bytes") > 0, "the answer waits")
    held.send(request("GET", "/ws", *UPGRADE))
    assert gateway.metric("tailrace_gateway_connections") == 0
    eventually(lambda: _used(gateway, "unread-bytes") == 0, "nothing is left")
    assert gateway.metric('tailrace_gateway_refused_total{status="400"}') > before
    held.close()
    # In one piece with it, too.
    both = RawClient(gateway.port, asked + request("GET", "/ws", *UPGRADE), buffer=4096)
    assert b"101 Switching" not in both.rest()
    eventually(lambda: _used(gateway, "requests") <= 1, "only this request counts")


def test_requests_that_wait_behind_one_another_are_bounded(gateway: GatewayProcess) -> None:
    wait = request("GET", "/views/averages/none", "Prefer: wait=60", *_lines("pipelines"))
    client = RawClient(gateway.port, wait + 300 * request("GET", "/health/live"))
    status, headers, told = client.answer()
    assert (status, told["error"], headers["connection"]) == (429, "too many requests", "close")
    eventually(lambda: gateway.metric("tailrace_gateway_waits") == 0, "who has left does not wait")
    # Few are answered, in their order, and one that has left with others behind it does not wait either.
    client = RawClient(gateway.port, 50 * request("GET", "/health/live"))
    assert [client.answer()[0] for _ in range(50)] == 50 * [200]
    client.send(wait + request("GET", "/health/live"))
    eventually(lambda: gateway.metric("tailrace_gateway_waits") == 1, "one waits")
    client.close()
    eventually(lambda: gateway.metric("tailrace_gateway_waits") == 0, "who has left does not wait")


def test_the_queries_of_a_user_cost_so_much(gateway: GatewayProcess) -> None:
    held = bearer(token("queries"))
    paths = [_events(f"movie_id > {number} and movie_id <> {number}") for number in range(5)]
    taps = [gateway.follow(path, headers=held) for path in paths[:3]]
    assert [tap.status for tap in taps] == 3 * [200]
    found = gateway.get(paths[3], **held)
    _told((found.status_code, dict(found.headers), found.json()), "--limit-user-query-cost")
    other = gateway.follow(paths[4], headers=bearer(token("other-queries")))
    assert other.status == 200
    for tap in (*taps, other):
        tap.close()
    eventually(lambda: _used(gateway, "query-cost") == 0, "nothing is left")
    again = gateway.follow(paths[3], headers=held)
    assert again.status == 200
    again.close()


def _events(where: str) -> str:
    return "/views/averages/events?" + str(httpx.QueryParams(where=where))


def _open(gateway: GatewayProcess, user: str, keys: list[str], ttl: int = 60) -> httpx.Response:
    body = {"view": "averages", "keys": keys, "ttl": ttl}
    return httpx.post(f"{gateway.url}/streams", headers=bearer(token(user)), json=body, timeout=30)


def _told(answer: tuple[int, dict[str, str], Any], limit: str) -> None:
    status, headers, body = answer
    assert (status, body["limit"]) == (429, limit)
    assert int(headers["retry-after"]) > 0 and limit in body["remedy"]


def _lines(user: str) -> list[str]:
    return [f"{name}: {value}" for name, value in bearer(token(user)).items()]


def _limited(gateway: GatewayProcess, limit: str) -> float:
    return gateway.metric(f'tailrace_gateway_limited_total{{limit="{limit}"}}')


def _used(gateway: GatewayProcess, limit: str) -> float:
    return gateway.metric(f'tailrace_gateway_used{{limit="{limit}"}}')

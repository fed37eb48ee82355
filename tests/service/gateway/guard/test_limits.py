"""Limits of a real gateway: each is told with what was expected, and leaves room for others."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import httpx
import pytest

from access_tokens import Socket, bearer, settings, token
from gateway_process import GatewayProcess, Store, row
from running import PATIENCE, eventually
from tailrace.dev.redis_server import RedisServer


@pytest.fixture(scope="module")
def narrow(
    redis_server: RedisServer, store: Store, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[GatewayProcess]:
    """A gateway with little room."""
    directory = tmp_path_factory.mktemp("limits")
    given = settings(
        directory,
        open="metrics",
        limit_connections="6",
        limit_user_connections="2",
        limit_connects="1",
        limit_messages="2",
        limit_subscriptions="2",
        limit_keys="3",
        limit_connection_keys="4",
        limit_key_bytes="20",
        limit_body_bytes="100",
        limit_message_bytes="2000",
    )
    process = GatewayProcess(directory, redis_server.url, store.catalog.app, given)
    process.wait_ready()
    store.put("averages", "1", 1, row(1))
    yield process
    process.close()


def test_a_user_has_so_many_connections_and_others_have_theirs(narrow: GatewayProcess) -> None:
    path = "/views/averages/1/events"
    taps = [narrow.follow(path, headers=bearer(token("u1"))) for _ in range(3)]
    assert [tap.status for tap in taps] == [200, 200, 429]
    found = narrow.get(path, **bearer(token("u1")))
    assert found.json()["error"] == "too many connections" and int(found.headers["retry-after"]) > 0
    other = narrow.follow(path, headers=bearer(token("u2")))
    assert other.status == 200
    assert Socket(narrow.port, **bearer(token("u1"))).code() == 4429
    late = Socket(narrow.port)
    late.say("auth", token=token("u1"))
    assert late.code() == 4429
    for tap in (*taps, other):
        tap.close()
    eventually(lambda: _connections(narrow) == 0, "all are gone")
    again = narrow.follow(path, headers=bearer(token("u1")))
    assert again.status == 200
    again.close()
    eventually(lambda: _connections(narrow) == 0, "all are gone")


def test_a_user_connects_so_often(narrow: GatewayProcess) -> None:
    statuses = [
        httpx.post(f"{narrow.url}/tickets", headers=bearer(token("eager")), timeout=30).status_code for _ in range(30)
    ]
    assert statuses[:10] == 10 * [201] and 429 in statuses
    assert httpx.post(f"{narrow.url}/tickets", headers=bearer(token("calm")), timeout=30).status_code == 201


def test_a_full_gateway_says_so(narrow: GatewayProcess) -> None:
    sockets = [Socket(narrow.port, **bearer(token(f"f{n}"))) for n in range(6)]
    for one in sockets:
        one.say("ping")
        assert one.hear()["type"] == "pong"
    found = narrow.get("/views/averages/1/events", **bearer(token("f9")))
    assert (found.status_code, found.json()["error"], found.headers["retry-after"]) == (503, "no room", "5")
    assert Socket(narrow.port, **bearer(token("f9"))).code() == 1013
    assert narrow.get("/views/averages/1", **bearer(token("f9"))).status_code == 200
    for one in sockets:
        one.close()
    eventually(lambda: _connections(narrow) == 0, "all are gone")


def test_a_socket_says_so_much(narrow: GatewayProcess) -> None:
    flood = Socket(narrow.port, **bearer(token("s1")))
    for _ in range(40):
        flood.say("ping")
    assert flood.code() == 4429
    long = Socket(narrow.port, **bearer(token("s2")))
    long.say("subscribe", id="a", view="averages", keys=[3000 * "a"])
    assert long.code() == 1009
    several = Socket(narrow.port, **bearer(token("s3")))
    several.say("subscribe", id="a", view="averages", keys=["1", "2", "3", "4"])
    assert several.hear()["error"] == "too many keys"
    several.say("subscribe", id="a", view="averages", keys=[21 * "a"])
    assert several.hear()["error"] == "key too long"
    for id in ("a", "b", "c"):
        several.say("subscribe", id=id, view="averages", keys=["1"])
    assert several.hear("error")["error"] == "too many subscriptions"
    several.close()
    eventually(lambda: _connections(narrow) == 0, "all are gone")


def test_the_subscriptions_of_a_socket_have_so_many_keys_together(narrow: GatewayProcess, store: Store) -> None:
    socket = Socket(narrow.port, **bearer(token("k1")))
    socket.say("subscribe", id="a", view="averages", keys=["1", "2", "3"])
    assert socket.hear("ready")["id"] == "a"
    socket.say("subscribe", id="b", view="averages", keys=["4", "5"])
    error = socket.hear()
    assert (error["id"], error["error"], error["retry"]) == ("b", "too many keys on a connection", False)
    assert "at most 4" in error["expected"] and error["got"] == "5"
    socket.say("subscribe", id="b", view="averages", keys=["4"])
    assert socket.hear("ready")["id"] == "b"
    store.put("averages", "2", 1, row(1))
    assert socket.hear()["key"] == "2"
    socket.say("unsubscribe", id="a")
    assert socket.hear()["type"] == "unsubscribed"
    socket.say("subscribe", id="c", view="averages", keys=["5", "6", "7"])
    assert socket.hear("ready")["id"] == "c"
    socket.close()
    eventually(lambda: _connections(narrow) == 0, "all are gone")


def test_keys_and_bodies_are_so_long(narrow: GatewayProcess) -> None:
    held = bearer(token("b1"))
    for path in (f"/views/averages/{21 * 'a'}", f"/views/averages/{21 * 'a'}/events"):
        found = narrow.get(path, **held)
        assert (found.status_code, found.json()["error"]) == (414, "key too long")
    assert narrow.get("/views/averages/events?key=1&key=2&key=3&key=4", **held).json()["error"] == "too many keys"
    for body in (101 * b"a", iter([60 * b"a", 60 * b"a"])):
        found = httpx.post(f"{narrow.url}/tickets", content=body, headers=held, timeout=30)
        assert (found.status_code, found.json()["error"]) == (413, "body too long")
    assert httpx.post(f"{narrow.url}/tickets", content=100 * b"a", headers=held, timeout=30).status_code == 201
    assert narrow.metric('tailrace_gateway_refused_total{status="413"}') == 2


def test_a_gateway_for_everyone_on_another_address_has_to_be_spelt_out(redis_server: RedisServer) -> None:
    command = [sys.executable, "-m", "tailrace", "gateway", "x", "--redis", redis_server.url, "--port", "0"]
    done = subprocess.run([*command, "--host", "::"], capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 1 and "--access off" in done.stderr and "Traceback" not in done.stderr


def _connections(gateway: GatewayProcess) -> float:
    return sum(gateway.metric(f'tailrace_gateway_connections{{surface="{one}"}}') for one in ("sse", "ws"))

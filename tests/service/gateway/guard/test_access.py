"""Access to a real gateway: every carrier of a token, every refusal, expiry, revocation, tickets, origins."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
import redis as redis_client

from access_tokens import SECRET, Socket, bearer, settings, token
from gateway_process import GatewayProcess, Store, row
from order_store import order_store
from running import PATIENCE, eventually
from tailrace.dev.redis_server import RedisServer
from tailrace.store.layout.keys import default_prefix

APP = "test-gateway-access"
PAGE = "https://app.example"
OWN = {"views": {"orders": {"where": "customer = {sub}"}, "names": ["{sub}", "{sub}/*"]}}


@pytest.fixture(scope="module")
def orders(redis_server: RedisServer) -> Store:
    """The views `orders`, whose rows have a customer, and `names`."""
    return order_store(redis_server.url, APP)


@pytest.fixture(scope="module")
def gateways(
    redis_server: RedisServer, orders: Store, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[list[GatewayProcess]]:
    """Two gateways that ask for tokens. Of the second, the sweep is too rare to help."""
    directory = tmp_path_factory.mktemp("access")
    given = settings(directory, auth_cookie="session", origins=PAGE, open="metrics")
    started = [GatewayProcess(directory, redis_server.url, APP, given, sweep=sweep) for sweep in (0.3, 3600)]
    for one in started:
        one.wait_ready()
    yield started
    for one in started:
        one.close()


@pytest.fixture(scope="module")
def gateway(gateways: list[GatewayProcess]) -> GatewayProcess:
    """The first of them."""
    return gateways[0]


def post(gateway: GatewayProcess, path: str, **headers: str) -> httpx.Response:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return httpx.post(gateway.url + path, headers=named, timeout=30)


def ticket(gateway: GatewayProcess, held: str) -> str:
    found = post(gateway, "/tickets", **bearer(held))
    assert found.status_code == 201 and found.json()["expires_in"] == 30
    assert found.headers["cache-control"] == "no-store"
    return str(found.json()["ticket"])


def test_a_token_is_taken_from_a_header_a_cookie_a_ticket_and_a_first_message(gateway: GatewayProcess) -> None:
    held = token()
    assert gateway.get("/views/orders/1", **bearer(held)).status_code == 200
    assert gateway.get("/views/orders/1", Cookie=f"a=b; session={held}").status_code == 200
    for headers in (bearer(held), {"Cookie": f"session={held}"}):
        tap = gateway.follow("/views/orders/1/events", headers=headers)
        assert (tap.status, tap.frame().event) == (200, "row")
    tap = gateway.follow(f"/views/orders/1/events?ticket={ticket(gateway, held)}")
    assert (tap.status, tap.frame().event) == (200, "row")
    for socket in (
        Socket(gateway.port, **bearer(held)),
        Socket(gateway.port, origin=PAGE, Cookie=f"session={held}"),
        Socket(gateway.port, f"/ws?ticket={ticket(gateway, held)}", origin=PAGE),
    ):
        socket.say("subscribe", id="a", view="orders", keys=["1"])
        assert socket.hear("row")["key"] == "1"
        socket.close()
    socket = Socket(gateway.port)
    socket.say("auth", token=held)
    assert socket.hear()["type"] == "authenticated"
    socket.say("subscribe", id="a", view="orders", keys=["1"])
    assert socket.hear("row")["key"] == "1"
    socket.close()


def test_who_brings_no_good_token_is_refused_and_told_why(gateway: GatewayProcess) -> None:
    for headers, error in (
        ({}, "no token"),
        ({"Authorization": "Basic YTpi"}, "unreadable header"),
        ({"Authorization": "Bearer nonsense"}, "unreadable token"),
        (bearer(token(lasts=-5)), "token expired"),
        (bearer(token(key="another secret that this gateway does not know")), "token not believed"),
        (bearer(token(nbf=time.time() + 100)), "token not valid yet"),
        ({"Cookie": "session=nonsense"}, "unreadable token"),
    ):
        for path in ("/views/orders/1", "/views/orders/1/events", "/views/orders", "/openapi.json", "/nothing"):
            if path == "/openapi.json" and not headers:
                continue  # what it says to everyone names nothing
            found = gateway.get(path, **headers)
            assert (found.status_code, found.json()["error"]) == (401, error), path
            assert found.headers["www-authenticate"] == "Bearer" and set(found.json()) >= {"expected", "got", "remedy"}
        if headers:
            assert Socket(gateway.port, origin=PAGE, **headers).code() == 4401
    assert post(gateway, "/tickets").status_code == 401
    socket = Socket(gateway.port)
    socket.say("auth", token="nonsense")
    assert socket.hear()["error"] == "unreadable token"
    assert socket.code() == 4401
    socket = Socket(gateway.port)
    socket.say("subscribe", id="a", view="orders", keys=["1"])
    assert socket.code() == 4401


def test_each_request_of_a_connection_is_asked_anew(gateway: GatewayProcess) -> None:
    with httpx.Client(base_url=gateway.url, timeout=30) as client:
        statuses = [
            client.get("/views/names/c7", headers=headers).status_code
            for headers in (bearer(token()), {}, bearer(token("c8", rights=OWN)), bearer(token(rights=OWN)))
        ]
    assert statuses == [200, 401, 403, 200]


def test_health_and_pages_need_no_token(gateway: GatewayProcess) -> None:
    for path in ("/health/live", "/health/ready", "/docs", "/docs/swagger-ui.css", "/metrics"):
        assert gateway.get(path).status_code == 200


def test_a_token_in_the_url_is_refused_and_explained(gateway: GatewayProcess) -> None:
    held = token()
    for name in ("access_token", "token"):
        for path in ("/views/orders/1", "/views/orders/1/events"):
            found = gateway.get(f"{path}?{name}={held}", **bearer(held))
            assert (found.status_code, found.json()["error"]) == (400, "token in the URL")
            assert held not in found.text and "POST /tickets" in found.json()["remedy"]
    assert Socket(gateway.port, f"/ws?token={held}").code() == 4403


def test_only_what_the_token_allows_is_given(gateway: GatewayProcess, orders: Store) -> None:
    orders.put("names", "c8", 1, row(1, name="c8"))
    own = bearer(token(rights=OWN))
    assert gateway.get("/views/names/c7", **own).status_code == 200
    for path in ("/views/names/c8", "/views/names/c8/events", "/views/names/*", "/views/unnamed/1", "/views/unnamed"):
        found = gateway.get(path, **own)
        assert (found.status_code, "allowed" in found.json()["error"]) == (403, True), path
    socket = Socket(gateway.port, **own)
    socket.say("subscribe", id="a", view="names", keys=["c7", "c8"])
    assert socket.hear()["error"] == "key not allowed"
    socket.say("subscribe", id="a", view="names", keys=["c7"])
    assert [socket.hear()["type"] for _ in range(3)] == ["subscribed", "row", "ready"]
    socket.close()


def test_a_wait_for_a_row_ends_with_the_token(gateway: GatewayProcess, orders: Store) -> None:
    orders.put("orders", "40", 1, row(1, order_id=40, customer="c7"))
    held = token(lasts=2)
    tag = gateway.get("/views/orders/40", **bearer(held)).headers["etag"]
    found = gateway.get("/views/orders/40", Prefer="wait=60", If_None_Match=tag, **bearer(held))
    assert (found.status_code, found.json()["error"]) == (401, "token expired")
    assert found.headers["www-authenticate"] == "Bearer" and "etag" not in found.headers


def test_a_wait_for_a_row_does_not_give_it_to_a_token_that_was_revoked_meanwhile(
    gateway: GatewayProcess, redis_server: RedisServer, orders: Store
) -> None:
    held = bearer(token("waiting", jti="waiting"))
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(gateway.get, "/views/orders/41", Prefer="wait=60", **held)
        eventually(lambda: gateway.metric("tailrace_gateway_waits") == 1, "the request waits")
        revoke(redis_server, "--jti", "waiting")
        eventually(lambda: gateway.get("/views/orders/1", **held).status_code == 401, "the gateway knows")
        orders.put("orders", "41", 1, row(1, order_id=41, customer="c7"))
        found = waiting.result(30)
    assert (found.status_code, found.json()["error"]) == (401, "token revoked")


def test_a_row_that_the_filter_leaves_out_is_as_if_it_were_not_there(gateway: GatewayProcess, orders: Store) -> None:
    own = bearer(token(rights=OWN))
    seen = gateway.get("/views/orders/1", **own)
    assert seen.status_code == 200 and "private" in seen.headers["cache-control"]
    assert "Authorization" in seen.headers["vary"]
    hidden, absent = gateway.get("/views/orders/2", **own), gateway.get("/views/orders/404", **own)
    assert (hidden.status_code, absent.status_code) == (404, 404)
    assert hidden.json() | {"key": ""} == absent.json() | {"key": ""}
    tag = gateway.get("/views/orders/2", **bearer(token())).headers["etag"]
    assert gateway.get("/views/orders/2", If_None_Match=tag, **own).status_code == 404
    for sub in ("c8' or '1'='1", "' or true --", "c8\0"):
        assert gateway.get("/views/orders/2", **bearer(token(sub, rights=OWN))).status_code == 404
    orders.put("orders", "3", 1, row(1, order_id=3, customer="c7"))
    assert gateway.get("/views/orders/3", **own).status_code == 200
    orders.put("orders", "3", 2, row(2, order_id=3, customer="c8"))
    assert gateway.get("/views/orders/3", **own).status_code == 404


def test_streams_end_when_their_token_expires(gateway: GatewayProcess, orders: Store) -> None:
    held = token(lasts=1.5)
    tap = gateway.follow("/views/orders/1/events", headers=bearer(held))
    assert [tap.frame().event, tap.frame().event] == ["row", "ready"]
    socket = Socket(gateway.port, **bearer(held))
    socket.say("subscribe", id="a", view="orders", keys=["1"])
    last = tap.frame()
    assert last.event == "close" and last.data["reason"] == "unauthorized" and last.data["retry"] is True
    assert list(tap.rest()) == [] and tap.ended
    assert socket.code() == 4401
    assert gateway.get("/views/orders/1", **bearer(held)).status_code == 401


def test_a_client_that_does_not_read_is_cut_off_when_its_token_expires(gateway: GatewayProcess, orders: Store) -> None:
    tap = gateway.follow("/views/orders/7/events", headers=bearer(token("slow", lasts=3)), buffer=4096)
    assert tap.held
    for version in range(1, 101):
        orders.put("orders", "7", version, row(version, order_id=7, customer="c7", note=100_000 * "x"))
    eventually(lambda: not tap.held, "its connection is closed, though nothing was read")
    tap.close()


def test_auth_again_keeps_a_socket_open_and_looks_at_its_subscriptions_again(
    gateway: GatewayProcess, orders: Store
) -> None:
    socket = Socket(gateway.port)
    socket.say("auth", token=token(lasts=1.5))
    first = socket.hear()
    socket.say("subscribe", id="orders", view="orders", keys=["1"])
    socket.say("subscribe", id="names", view="names", keys=["c7"])
    assert {socket.hear("ready")["id"] for _ in range(2)} == {"orders", "names"}
    socket.say("auth", token=token(rights={"views": {"orders": True}}))
    error, second = socket.hear(), socket.hear()
    assert (error["type"], error["id"], error["retry"]) == ("error", "names", False)
    assert second["type"] == "authenticated" and second["expires"] > first["expires"]
    eventually(lambda: time.time() * 1000 > first["expires"] + 500, "the first token is over")
    orders.put("names", "c7", 10, row(10, name="c7"))
    orders.put("orders", "1", 10, row(10, order_id=1, customer="c7"))
    assert socket.hear("row")["row"]["version"] == 10
    # A filter makes a query of keys, which this gateway has no Kafka for.
    socket.say("auth", token=token(rights={"views": {"orders": {"where": "customer = {sub}"}}}))
    assert socket.hear()["type"] == "authenticated"
    error = socket.hear("error")
    assert (error["id"], error["retry"]) == ("orders", True)
    socket.close()


def revoke(redis: RedisServer, *flags: str) -> None:
    command = [sys.executable, "-m", "tailrace", "revoke", APP, "--redis", redis.url, *flags]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=True)
    assert "revoked for" in done.stdout


def test_a_revocation_ends_connections_on_all_gateways(
    gateways: list[GatewayProcess], redis_server: RedisServer, orders: Store
) -> None:
    one, all_of, other = token("r1", jti="t1"), token("r2", jti="t2"), token("r3", jti="t3")
    taps = [
        gw.follow("/views/orders/1/events", headers=bearer(held)) for gw in gateways for held in (one, all_of, other)
    ]
    socket = Socket(gateways[1].port, **bearer(all_of))
    for tap in taps:
        tap.frames("ready")
    before = int(time.time()) - 1
    revoke(redis_server, "--jti", "t1")
    revoke(redis_server, "--sub", "r2", "--for", "1h")
    for tap in (*taps[0:2], *taps[3:5]):
        assert tap.frames("close")[-1].data["reason"] == "unauthorized"
    assert socket.code() == 4401
    for gateway in gateways:
        for held in (one, all_of):
            assert gateway.get("/views/orders/1", **bearer(held)).json()["error"] == "token revoked"
        assert gateway.get("/views/orders/1", **bearer(token("r1", jti="t4"))).status_code == 200
        assert gateway.get("/views/orders/1", **bearer(token("r2", iat=before))).status_code == 401
    eventually(
        lambda: gateways[1].get("/views/orders/1", **bearer(token("r2"))).status_code == 200,
        "who signs in again is let in",
    )
    orders.put("orders", "1", 20, row(20, order_id=1, customer="c7"))
    for tap in (taps[2], taps[5]):
        assert tap.frame().data["version"] == 20


def test_a_revocation_whose_message_was_lost_is_found_and_one_that_redis_lost_is_put_back(
    gateways: list[GatewayProcess], redis_server: RedisServer
) -> None:
    name, held = f"{default_prefix(APP)}:revoked", token("r5")
    client = redis_client.Redis.from_url(redis_server.url)
    tap = gateways[0].follow("/views/orders/1/events", headers=bearer(held))
    tap.frames("ready")
    now = int(time.time() * 1000)
    client.hset(name, "sub:r5", f"{now + 1000} {now + 60_000}")
    assert tap.frames("close")[-1].data["reason"] == "unauthorized"
    client.delete(name)
    eventually(lambda: client.hget(name, "sub:r5") is not None, "the revocation is back in Redis")
    assert 0 < client.pttl(name) <= 24 * 3600 * 1000
    assert gateways[0].get("/views/orders/1", **bearer(held)).status_code == 401


def test_a_ticket_is_good_for_one_connection_at_any_gateway(
    gateways: list[GatewayProcess], redis_server: RedisServer
) -> None:
    first, second = gateways
    held = token("t9", rights=OWN)
    made = ticket(first, held)
    client = redis_client.Redis.from_url(redis_server.url)
    names = list(client.scan_iter(f"{default_prefix(APP)}:ticket:*"))
    assert names and all(0 < client.pttl(name) <= 30_000 for name in names)
    assert not any(made.encode() in name or made.encode() in (client.get(name) or b"") for name in names)
    assert second.get(f"/views/names/t9?ticket={made}").json()["error"] == "ticket for another request"
    tap = second.follow(f"/views/names/t9/events?ticket={made}")
    assert tap.frame().event == "ready"
    for gateway in gateways:
        assert gateway.get(f"/views/names/t9/events?ticket={made}").json()["error"] == "unknown ticket"
    assert second.get(f"/views/names/c7/events?ticket={ticket(first, held)}").status_code == 403
    assert Socket(first.port, f"/ws?ticket={made}").code() == 4401
    spent = ticket(first, held)
    raced = [Socket(gateway.port, f"/ws?ticket={spent}") for gateway in (first, second, first)]
    raced[0].say("ping")
    assert raced[0].hear()["type"] == "pong"
    assert [one.code() for one in raced[1:]] == [4401, 4401]
    raced[0].close()
    assert not list(client.scan_iter(f"{default_prefix(APP)}:ticket:*"))


def test_a_ticket_ends_with_its_token(gateway: GatewayProcess) -> None:
    tap = gateway.follow(f"/views/names/c7/events?ticket={ticket(gateway, token(lasts=1))}")
    assert tap.frames("close")[-1].data["reason"] == "unauthorized"


def test_a_foreign_page_is_refused_and_a_listed_one_is_served(gateway: GatewayProcess) -> None:
    held = bearer(token())
    foreign = {"Origin": "https://evil.example"}
    for path in ("/views/orders/1", "/views/orders/1/events"):
        found = gateway.get(path, **held, **foreign)
        assert (found.status_code, found.json()["error"]) == (403, "foreign origin")
        assert "access-control-allow-origin" not in found.headers
    assert gateway.get("/views/orders/1", Origin="null", **held).status_code == 403
    assert Socket(gateway.port, origin="https://evil.example", **held).code() == 4403
    preflight = {"Origin": PAGE, "Access-Control-Request-Method": "GET"}
    found = httpx.options(f"{gateway.url}/views/orders/1/events", headers=preflight)
    assert found.status_code == 204 and found.headers["access-control-allow-origin"] == PAGE
    assert "Authorization" in found.headers["access-control-allow-headers"]
    assert found.headers["access-control-allow-credentials"] == "true"
    assert httpx.options(f"{gateway.url}/views/orders/1", headers=preflight | foreign).status_code == 403
    for origin in (PAGE, "http://test"):  # the host that it asks for
        tap = gateway.follow("/views/orders/1/events", headers={"Origin": origin, **held})
        assert (tap.status, tap.head["access-control-allow-origin"], tap.frame().event) == (200, origin, "row")
    refused = gateway.get("/views/orders/1", Origin=PAGE)
    assert (refused.status_code, refused.headers["access-control-allow-origin"]) == (401, PAGE)


def test_a_cookie_counts_only_where_the_page_is_known(gateway: GatewayProcess) -> None:
    cookie = {"Cookie": f"session={token()}"}
    assert post(gateway, "/tickets", **cookie).json()["error"] == "unknown page"
    assert post(gateway, "/tickets", Origin="https://evil.example", **cookie).status_code == 403
    assert post(gateway, "/tickets", Origin=PAGE, **cookie).status_code == 201
    assert gateway.get("/views/orders/1", Sec_Fetch_Site="cross-site", **cookie).status_code == 403
    assert gateway.get("/views/orders/1", Sec_Fetch_Site="same-origin", **cookie).status_code == 200
    assert Socket(gateway.port, **cookie).code() == 4403


def test_nothing_secret_is_in_the_logs(gateways: list[GatewayProcess]) -> None:
    gateway = gateways[0]
    held = token("logged")
    made = ticket(gateway, held)
    gateway.get(f"/views/orders/1?access_token={held}")
    gateway.get("/views/orders/1", **bearer(held + "x"))
    gateway.get("/views/orders/1", Origin=PAGE, Cookie=f"session={held}")
    for path in (f"/ws?ticket={made}", f"/ws?ticket={made}", f"/ws?token={held}"):
        Socket(gateway.port, path).close()
    socket = Socket(gateway.port)
    socket.say("auth", token=held)
    socket.say("auth", token=held + "x")
    socket.code()
    for one in gateways:
        log = one.log.read_text()
        assert "gateway=listening" in log
        # Every token begins with the same header, so no token of any test is there.
        for secret in (SECRET, made, held, held.split(".")[0], held.split(".")[2]):
            assert secret not in log

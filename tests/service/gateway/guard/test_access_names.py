"""Clients are told of what their token allows, in answers and in the documents, and of nothing else."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from access_tokens import Socket, bearer, settings, token
from gateway_process import GatewayProcess
from order_store import order_store
from tailrace.dev.redis_server import RedisServer

APP = "test-gateway-access-names"


@pytest.fixture(scope="module")
def gateway(redis_server: RedisServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    """A gateway that asks for tokens, of the views `orders` and `names`."""
    order_store(redis_server.url, APP)
    directory = tmp_path_factory.mktemp("access")
    process = GatewayProcess(
        directory, redis_server.url, APP, settings(directory, auth_cookie="session", open="metrics")
    )
    process.wait_ready()
    yield process
    process.close()


def test_an_unknown_view_is_answered_with_those_that_the_token_allows(gateway: GatewayProcess) -> None:
    some = bearer(token(rights={"views": {"orders": True, "later-*": True}}))
    for path in ("/views/later-1/5", "/views/later-1/5/events", "/views/later-1/events", "/views/later-1"):
        found = gateway.get(path, **some)
        assert (found.status_code, found.json()["expected"]) == (404, ["orders"]), path
    socket = Socket(gateway.port, **some)
    for what in ({"keys": ["5"]}, {}):
        socket.say("subscribe", id="a", view="later-1", **what)
        error = socket.hear()
        assert (error["error"], error["expected"]) == ("unknown view", ["orders"])
    socket.close()


def test_whether_there_is_a_view_that_may_not_be_seen_is_not_told(gateway: GatewayProcess) -> None:
    some = bearer(token(rights={"views": {"orders": True}}))
    for path in ("/views/{}/c7", "/views/{}/c7/events", "/views/{}/events", "/views/{}/events?where=true", "/views/{}"):
        answers = [gateway.get(path.format(name), **some) for name in ("names", "nones")]
        assert [found.status_code for found in answers] == [403, 403], path
        assert answers[0].text.replace("names", "nones") == answers[1].text


def test_the_documents_name_what_the_token_allows_and_nothing_to_who_has_none(gateway: GatewayProcess) -> None:
    held = token(rights={"views": {"orders": ["1"]}})

    def views(path: str, **headers: str) -> set[str]:
        """The views that a document names, by their paths and by the types of their rows."""
        found = gateway.get(path, **headers).text
        return {name for name in ("orders", "names") if f"/views/{name}/" in found or f"{name}.row" in found}

    for path in ("/openapi.json", "/asyncapi.json"):
        assert views(path, **bearer(held)) == {"orders"}
        assert views(path, **bearer(token())) == {"orders", "names"}
        assert views(path, **bearer(token(rights={}))) == views(path) == set()
    general = gateway.get("/openapi.json")
    assert general.status_code == 200 and general.headers["cache-control"] == "no-store"
    assert "/views/{view}/{key}" in general.json()["paths"]
    assert gateway.get("/asyncapi.json").status_code == 401


def test_the_documents_say_per_operation_what_carries_a_token(gateway: GatewayProcess) -> None:
    document = gateway.get("/openapi.json", **bearer(token())).json()
    schemes = document["components"]["securitySchemes"]
    assert schemes["bearer"] | {"description": ""} == {
        "type": "http",
        "scheme": "bearer",
        "bearerFormat": "JWT",
        "description": "",
    }
    assert (schemes["cookie"]["in"], schemes["cookie"]["name"]) == ("cookie", "session")
    assert (schemes["ticket"]["in"], schemes["ticket"]["name"]) == ("query", "ticket")
    told = {
        (path, method): [name for one in operation["security"] for name in one]
        for path, item in document["paths"].items()
        for method, operation in item.items()
    }
    # As the guard has it: each operation that needs a token is refused without one, and no other.
    for (path, method), names in told.items():
        answer = httpx.request(method, gateway.url + path.replace("{", "").replace("}", ""), timeout=30)
        assert (answer.status_code == 401) is bool(names), (path, method)
    assert told["/views/orders/{key}", "get"] == told["/tickets", "post"] == ["bearer", "cookie"]
    assert told["/views/orders/{key}/events", "get"] == ["bearer", "cookie", "ticket"]
    assert told["/health/ready", "get"] == told["/metrics", "get"] == []
    servers = gateway.get("/asyncapi.json", **bearer(token())).json()["servers"]
    assert {one["$ref"].split("/")[-1] for one in servers["socket"]["security"]} == set(schemes)

"""What both clients do with tokens: send them, renew them, and stop where another would not help."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from access_tokens import settings, token
from conformance.client_process import ClientProcess
from conformance.world import LANGUAGES
from gateway_process import GatewayProcess, Store, row, view
from running import eventually
from tailrace.dev.redis_server import RedisServer

APP = "conformance-access"
VIEW = "names"


@pytest.fixture(scope="module")
def store(redis_server: RedisServer) -> Store:
    """A view of names."""
    store = Store(redis_server.url, APP, view(VIEW, "name string"))
    store.publish_catalog()
    store.begin()
    return store


@pytest.fixture(scope="module")
def gateway(
    redis_server: RedisServer, store: Store, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[GatewayProcess]:
    """A gateway that asks for tokens."""
    directory = tmp_path_factory.mktemp("access")
    process = GatewayProcess(directory, redis_server.url, APP, settings(directory, open="metrics"), sweep=0.3)
    process.wait_ready()
    yield process
    process.close()


def clients(gateway: GatewayProcess, *tokens: Callable[[], str]) -> list[ClientProcess]:
    """A client in each language over each transport, which has these tokens one after another."""
    return [
        ClientProcess(language, gateway.url, transport, tokens=[one() for one in tokens])
        for language in LANGUAGES
        for transport in ("socket", "events")
    ]


def rows(*told: dict[str, Any]) -> list[int]:
    """The versions of rows that were told."""
    return [one["row"]["version"] for one in told if one["type"] == "row"]


def test_a_client_renews_its_token_and_misses_nothing(gateway: GatewayProcess, store: Store) -> None:
    store.put(VIEW, "ann", 1, row(1, name="ann"))
    # Each token is made as its client starts: it is to be good when the client connects.
    made = clients(gateway, lambda: token(lasts=6), token)
    expired = time.time() + 6
    for client in made:
        client.follow("a", VIEW, keys=["ann"])
        assert rows(*client.ready("a")) == [1], client.label
    eventually(lambda: time.time() > expired + 0.5, "the first tokens have expired")
    store.put(VIEW, "ann", 2, row(2, name="ann"))
    for client in made:
        found = client.until(lambda told: told["type"] == "row", "the change")
        assert rows(*found) == [2] and {told["type"] for told in found} <= {"row", "ready"}, client.label
        client.close()


@pytest.mark.parametrize("tokens", [["nonsense", "nonsense"], ["nonsense", "other nonsense", "other nonsense"]])
def test_a_client_stops_where_it_is_given_the_token_that_was_refused(
    gateway: GatewayProcess, tokens: list[str]
) -> None:
    for client in clients(gateway, *(partial(str, one) for one in tokens)):
        client.follow("a", VIEW, keys=["ann"])
        assert client.change("a")["type"] == "refused", client.label
        client.close()


def test_what_a_token_does_not_allow_is_refused_alone(gateway: GatewayProcess, store: Store) -> None:
    store.put(VIEW, "c7", 1, row(1, name="c7"))
    for client in clients(gateway, lambda: token(rights={"views": {VIEW: ["{sub}"]}})):
        client.follow("own", VIEW, keys=["c7"])
        assert rows(*client.ready("own")) == [1], client.label
        client.follow("other", VIEW, keys=["c8"])
        assert client.change("other")["type"] == "refused", client.label
        assert client.rows("own")["c7"]["version"] == 1
        client.close()

"""A gateway on the run's Redis with two views, one per test module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from gateway_process import GatewayProcess, Store, view
from tailrace.dev.redis_server import RedisServer


@pytest.fixture(scope="module")
def store(redis_server: RedisServer, request: pytest.FixtureRequest) -> Store:
    """The views `averages` and `names`, filled by the test."""
    app = request.node.path.stem.replace("_", "-")
    store = Store(redis_server.url, app, view("averages"), view("names", "name string", partitions=1))
    store.publish_catalog()
    store.begin()
    return store


@pytest.fixture(scope="module")
def gateway(
    redis_server: RedisServer, store: Store, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[GatewayProcess]:
    """A gateway that serves them. Its sweep is too rare to help a test: what arrives came through pub/sub."""
    process = GatewayProcess(tmp_path_factory.mktemp("gateway"), redis_server.url, store.catalog.app, sweep=3600)
    process.wait_ready()
    yield process
    process.close()

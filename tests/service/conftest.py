"""A gateway on the run's Redis with two views, one per test module; and the Spark session of the run."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession

from gateway_process import GatewayProcess, Store, view
from tailrace.dev import jars
from tailrace.dev.redis_server import RedisServer
from tailrace.pipeline.spark.jvm_parts import chosen
from tailrace.pipeline.spark.session import start_session


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The only Spark session of the test process; its JVM ends with the run."""
    scratch = tmp_path_factory.mktemp("spark")
    # Only the JVM is to have the scratch directory, not the processes that later tests start.
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("SPARK_LOCAL_DIRS", str(scratch))
        parts = chosen(os.environ.get("TAILRACE_JVM_PARTS", "all"))
        needed = jars.ensure("spark")
        session = start_session("tests", slots=1, state_partitions=1, jars=needed, scratch=scratch, parts=parts)
    gateway: Any = SparkContext._gateway
    yield session
    session.stop()
    gateway.shutdown()
    # The JVM ends when its standard input does.
    gateway.proc.stdin.close()
    gateway.proc.wait(30)
    SparkContext._gateway = SparkContext._jvm = None


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

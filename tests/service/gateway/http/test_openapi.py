"""The documents of a running gateway: they follow the catalog, and every answer is one that they name."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

import jsonschema_rs
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from gateway_process import GatewayProcess, Store, view
from running import eventually
from tailrace.contracts.catalog import Catalog, CatalogTopic, Column
from tailrace.dev.broker import Broker
from tailrace.dev.redis_server import RedisServer
from tailrace.kafka.brokers import Brokers
from tailrace.kafka.topics import Topics

APP = "test-gateway-openapi"
COLUMNS = (Column("rating", "double"), Column("tags", "array<string>"), Column("seen_at", "timestamp"))
KEY = (Column("movie_id", "bigint"),)
EXAMPLES = 10
CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]


@pytest.fixture(scope="module")
def store(redis_server: RedisServer) -> Store:
    averages = replace(view("averages"), columns=COLUMNS)
    store = Store(redis_server.url, APP, averages, view("names", "name string, day date"))
    topic = CatalogTopic(f"{APP}-ratings", "json", (*KEY, *COLUMNS), key=(Column("", "string"),), accept=True)
    store.catalog = Catalog(APP, store.catalog.views, topics={topic.name: topic})
    store.begin()
    store.publish_catalog()
    for number in range(20):
        value = {"movie_id": number, "rating": number / 2, "tags": ["a"], "seen_at": None}
        store.put("averages", str(number), 1, json.dumps(value).encode())
    return store


@pytest.fixture(scope="module")
def gateway(
    redis_server: RedisServer, broker: Broker, store: Store, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[GatewayProcess]:
    topic = next(iter(store.catalog.topics))
    Topics(Brokers(broker.address)).create(topic, partitions=1, replication=1, config={})
    process = GatewayProcess(tmp_path_factory.mktemp("gateway"), redis_server.url, APP, {"kafka": broker.address})
    process.wait_ready()
    yield process
    process.close()


@pytest.fixture(scope="module")
def api(gateway: GatewayProcess) -> Any:
    """The gateway's requests, but for those whose answers have no end."""
    found = schemathesis.openapi.from_url(f"{gateway.url}/openapi.json")
    return found.exclude(path_regex="(/events|/ws)$", method="GET").exclude(path_regex="^/docs")


@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE], ids=["right", "wrong"])
def test_every_answer_is_one_that_the_document_names(api: Any, mode: GenerationMode) -> None:
    """Requests as the document has them, and others; what is checked stands in `CHECKS`."""
    asked = 0
    for result in api.get_all_operations():
        operation = result.ok()

        @settings(max_examples=EXAMPLES, deadline=None, database=None, suppress_health_check=list(HealthCheck))
        @given(case=operation.as_strategy(generation_mode=mode))
        def answers(case: Any) -> None:
            nonlocal asked
            asked += 1
            case.call_and_validate(checks=CHECKS, timeout=20)

        # Of some, nothing is wrong: they have no parameters.
        with suppress(Unsatisfiable):
            answers()
    assert asked > EXAMPLES


def test_rows_and_pages_are_what_the_document_says(gateway: GatewayProcess) -> None:
    document = gateway.get("/openapi.json").json()
    # Nobody asks who a client is here, so nothing is said of tokens.
    assert "security" not in gateway.get("/openapi.json").text + gateway.get("/asyncapi.json").text
    for path, url in (("/views/averages/{key}", "/views/averages/7"), ("/views/averages", "/views/averages?limit=3")):
        held = document["paths"][path]["get"]["responses"]["200"]["content"]["application/json"]["schema"]
        found = jsonschema_rs.validator_for({**held, "components": document["components"]})
        answer = gateway.get(url).json()
        assert [str(error) for error in found.iter_errors(answer)] == []
        assert not found.is_valid({**answer, "other": 1})


def test_the_documents_follow_the_catalog(gateway: GatewayProcess, store: Store) -> None:
    assert "/views/later/{key}" not in gateway.get("/openapi.json").json()["paths"]
    known = store.catalog
    store.catalog = Catalog(APP, {**known.views, "later": view("later")}, topics=known.topics)
    store.publish_catalog()
    eventually(lambda: "/views/later/{key}" in gateway.get("/openapi.json").json()["paths"], "the document follows")
    channels = gateway.get("/asyncapi.json").json()["channels"]
    assert channels["later.key"]["address"] == "/views/later/{key}/events"
    store.catalog = known
    store.publish_catalog()
    eventually(lambda: "/views/later/{key}" not in gateway.get("/openapi.json").json()["paths"], "it follows back")

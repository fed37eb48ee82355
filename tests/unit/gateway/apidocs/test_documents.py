"""The documents of the API, made from a catalog."""

from __future__ import annotations

import asyncio
import gzip
import json
import re
from copy import deepcopy
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from tailrace.contracts.catalog import Catalog, CatalogFeed, CatalogTopic, CatalogView, Column
from tailrace.gateway.apidocs import asyncapi, openapi, security
from tailrace.gateway.app import application
from tailrace.gateway.gateway import Gateway
from tailrace.gateway.guard.routes import is_open
from tailrace.gateway.timing import Timing

KEY = (Column("movie_id", "bigint"),)
ROW = (Column("rating", "double"), Column("tags", "array<struct<name:string,at:timestamp>>"))
CATALOG = Catalog(
    "movies",
    {
        "averages": CatalogView("averages", "averages", "1", 2, 1, KEY, ROW, {}),
        "hours": CatalogView("hours", "hours", "2", 2, 1, (*KEY, Column("window_start", "timestamp")), ROW, {}),
    },
    {"notices": CatalogFeed("notices", "notices", "3", 2, 1, (Column("client_id", "string"),), ROW, {})},
    topics={
        "ratings": CatalogTopic("ratings", "json", (*KEY, *ROW), key=(Column("", "string"),), accept=True),
        "closed": CatalogTopic("closed", "json", ()),
    },
)
GENERAL: dict[str, Any] = {
    "openapi": "3.1.0",
    "info": {"title": "t", "version": "1"},
    "paths": {
        "/views/{view}/{key}": {
            "get": {
                "operationId": "look",
                "parameters": [
                    {"name": "view", "in": "path", "required": True, "schema": {"type": "string"}},
                    {"name": "key", "in": "path", "required": True, "schema": {"type": "string"}},
                ],
                "responses": {"200": {"description": "d", "content": {"application/json": {"schema": {}}}}},
            }
        },
        "/topics/{topic}/events": {
            "post": {
                "parameters": [{"name": "topic", "in": "path", "required": True, "schema": {"type": "string"}}],
                "requestBody": {"content": {"application/json": {"schema": {}}}},
                "responses": {"202": {"description": "d"}},
            }
        },
        "/health/live": {"get": {"responses": {"200": {"description": "d"}}}},
    },
}


@pytest.fixture(scope="module")
def official() -> Any:
    """What AsyncAPI publishes as the schema of its documents."""
    path = Path(__file__).parents[3] / "schemas" / "asyncapi-3.0.0.json.gz"
    return jsonschema_rs.validator_for(json.loads(gzip.decompress(path.read_bytes())))


@pytest.mark.parametrize("catalog", [CATALOG, Catalog("movies", {}), None], ids=["views", "empty", "none"])
def test_the_asyncapi_document_is_one_by_its_official_schema(official: Any, catalog: Catalog | None) -> None:
    document = asyncapi.document("movies", "1.0", "localhost:8080", catalog)
    assert [str(error) for error in official.iter_errors(document)] == []
    broken = {**document, "operations": {"x": {"action": "sends"}}}
    assert not official.is_valid(broken), "the schema is the one that looks at operations"


@pytest.mark.parametrize("cookie", ["", "session"])
def test_the_asyncapi_document_says_how_a_token_is_carried(official: Any, cookie: str) -> None:
    document = asyncapi.document("movies", "1.0", "localhost:8080", CATALOG)
    security.secure_servers(document, cookie)
    assert [str(error) for error in official.iter_errors(document)] == []
    _resolve_all(document, document)
    wanted = {"bearer", "ticket"} | ({"cookie"} if cookie else set())
    assert set(document["components"]["securitySchemes"]) == wanted
    for server in document["servers"].values():
        assert {one["$ref"].split("/")[-1] for one in server["security"]} == wanted


def test_every_operation_says_what_carries_a_token_unless_it_is_open() -> None:
    document = openapi.document(GENERAL, CATALOG)
    security.secure(document, "", frozenset())
    look = document["paths"]["/views/averages/{key}"]["get"]
    assert look["security"] == [{"bearer": []}] and {"200", "401", "403"} <= set(look["responses"])
    assert document["paths"]["/health/live"]["get"]["security"] == []
    # Events in are sent to a path that ends as those of streams do, and a ticket is good for streams alone.
    assert document["paths"]["/topics/ratings/events"]["post"]["security"] == [{"bearer": []}]
    for path, word in (("/asyncapi.json", "documents"), ("/metrics", "metrics")):
        assert is_open(path, frozenset({word})) and not is_open(path, frozenset())


def test_every_reference_of_the_asyncapi_document_leads_somewhere() -> None:
    document = asyncapi.document("movies", "1.0", "localhost:8080", CATALOG)
    _resolve_all(document, document)
    addresses = {channel["address"] for channel in document["channels"].values()}
    assert addresses == {
        "/views/averages/{key}/events",
        "/views/averages/events",
        "/views/hours/{key}/events",
        "/views/hours/events",
        "/feeds/notices/{client}/events",
        "/ws",
    }


def test_the_asyncapi_document_takes_the_messages_that_the_protocol_shows() -> None:
    protocol = (Path(__file__).parents[4] / "docs" / "protocol.md").read_text()
    lines = [line for line in protocol.splitlines() if line.startswith('{"type":')]
    document = asyncapi.document("movies", "1.0", "localhost:8080", CATALOG)
    messages = document["components"]["messages"]
    for line in lines:
        shown = json.loads(line)
        known = messages.get(f"socket.{shown['type']}", messages.get(shown["type"]))
        if known is not None:
            jsonschema_rs.validator_for(known["payload"]).validate(shown)
            assert not jsonschema_rs.validator_for(known["payload"]).is_valid({**shown, "type": "another"})
    shown_types = {json.loads(line)["type"] for line in lines}
    assert shown_types >= {"subscribe", "unsubscribe", "auth", "ping", "subscribed", "reset", "error", "pong"}


def test_every_view_and_topic_has_a_path_of_its_own_with_its_types() -> None:
    document = openapi.document(GENERAL, CATALOG)
    _resolve_all(document, document)
    assert set(document["paths"]) == {
        "/views/averages/{key}",
        "/views/hours/{key}",
        "/topics/ratings/events",
        "/health/live",
    }
    look = document["paths"]["/views/averages/{key}"]["get"]
    assert [one["name"] for one in look["parameters"]] == ["key"]
    assert look["parameters"][0]["schema"]["type"] == "integer"
    assert document["paths"]["/views/hours/{key}"]["get"]["parameters"][0]["schema"]["type"] == "string"
    row = document["components"]["schemas"]["averages.row"]
    assert row["required"] == ["movie_id"] and set(row["properties"]) == {"movie_id", "rating", "tags"}
    content = look["responses"]["200"]["content"]["application/json"]
    assert jsonschema_rs.validator_for(row).is_valid(content["example"])
    ids = [one["operationId"] for item in document["paths"].values() for one in item.values() if "operationId" in one]
    assert len(ids) == len(set(ids))


def test_what_the_app_has_comes_first_and_no_section_is_empty() -> None:
    general = {**deepcopy(GENERAL), "tags": [{"name": "views"}, {"name": "operations"}]}
    general["paths"]["/health/live"]["get"]["tags"] = ["operations"]
    tags = [tag["name"] for tag in openapi.document(general, CATALOG)["tags"]]
    assert tags == ["view averages", "view hours", "feed notices", "topic ratings", "operations"]


def test_without_a_catalog_the_paths_are_the_general_ones() -> None:
    assert openapi.document(GENERAL, None) == GENERAL


def _resolve_all(found: Any, document: Any) -> None:
    if isinstance(found, dict):
        if "$ref" in found:
            at = document
            for part in found["$ref"].removeprefix("#/").split("/"):
                at = at[part]
        for one in found.values():
            _resolve_all(one, document)
    elif isinstance(found, list):
        for one in found:
            _resolve_all(one, document)


def test_the_openapi_document_calls_server_sent_events_so() -> None:
    async def document() -> str:
        return json.dumps(application(Gateway("movies", "redis://localhost:1", "test", Timing())).openapi())

    assert set(re.findall(r"Server-Sent \w+", asyncio.run(document()))) == {"Server-Sent Events"}

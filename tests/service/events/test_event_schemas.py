"""What events are written with, over a real registry: when it is asked, and what happens while it is away."""

from __future__ import annotations

import asyncio
import json

import httpx
import pytest

from registry_server import RegistryServer
from tailrace.avro.registry import Registry
from tailrace.contracts.catalog import CatalogTopic
from tailrace.events import schemas
from tailrace.events.schemas import EventSchemas


def register(server: RegistryServer, topic: str, *names: str) -> int:
    fields = [{"name": name, "type": ["null", "int"], "default": None} for name in names]
    schema = json.dumps({"type": "record", "name": "R", "fields": fields})
    answer = httpx.post(f"{server.url}/subjects/{topic}-value/versions", json={"schema": schema})
    answer.raise_for_status()
    return int(answer.json()["id"])


@pytest.mark.usefixtures("at_once")
def test_a_newer_schema_is_found_by_who_asks_and_is_newer_only_once(registry: RegistryServer, fresh: str) -> None:
    topic = CatalogTopic(fresh, "avro", (), accept=True, registry=True)

    async def ask() -> None:
        schemas = EventSchemas(Registry.at(registry.url))
        first = register(registry, fresh, "a")
        known = await schemas.codecs(topic)
        assert known is not None and _id(known.value.encoding) == first
        assert await schemas.newer(known) is None and schemas.version == 1
        second = register(registry, fresh, "a", "b")
        newer = await schemas.newer(known)
        assert newer is not None and _id(newer.value.encoding) == second and list(newer.value.names) == ["a", "b"]
        assert await schemas.newer(newer) is None and schemas.version == 2
        assert await schemas.codecs(topic) is newer is schemas.known(topic)
        await schemas.close()

    asyncio.run(ask())


@pytest.mark.usefixtures("at_once")
def test_a_schema_that_is_known_stays_in_use_while_the_registry_is_away(
    registry: RegistryServer, fresh: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = CatalogTopic(fresh, "avro", (), accept=True, registry=True)
    register(registry, fresh, "a")

    async def ask() -> None:
        schemas = EventSchemas(Registry.at(registry.url))
        known = await schemas.codecs(topic)
        assert known is not None
        monkeypatch.setattr(schemas, "_registry", Registry.at("http://127.0.0.1:1"))
        assert await schemas.newer(known) is None
        schemas.keep([topic])
        await asyncio.gather(*schemas._asking.values(), return_exceptions=True)
        assert await schemas.codecs(topic) is known
        await schemas.close()

    asyncio.run(ask())


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A schema may be asked for again without a pause."""
    monkeypatch.setattr(schemas, "_LEAST", 0.0)
    monkeypatch.setattr(schemas, "FRESH", 0.0)


def _id(encoding: object) -> int | None:
    found: int | None = getattr(encoding, "id", None)
    return found

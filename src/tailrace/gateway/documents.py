"""The documents of the API: OpenAPI for requests, AsyncAPI for streams; both follow the catalog."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse

from tailrace import __version__
from tailrace.avro.types import Unwritable
from tailrace.catalog import Catalog, CatalogTopic
from tailrace.gateway import asyncapi, openapi
from tailrace.gateway.event_kinds import Kinds
from tailrace.gateway.gateway import Gateway


def add(app: FastAPI, gateway: Gateway) -> None:
    """Serve the documents. Each is made anew when the catalog has changed, and not for every reader."""
    general = app.openapi
    made: dict[str, tuple[Catalog | None, int, dict[str, Any]]] = {}

    def kinds_of(topic: CatalogTopic) -> Kinds | None:
        with suppress(Unwritable):
            return gateway.event_schemas.known(topic)
        return None

    def typed() -> dict[str, Any]:
        catalog, version = gateway.known.catalog, gateway.event_schemas.version
        found = made.get("openapi")
        if found is None or found[0] is not catalog or found[1] != version:
            found = made["openapi"] = (catalog, version, openapi.document(general(), catalog, kinds_of))
        return found[2]

    app.openapi = typed  # type: ignore[method-assign]

    @app.get(
        "/asyncapi.json",
        tags=["operations"],
        summary="The AsyncAPI document",
        response_model=None,
        responses={200: {"description": "AsyncAPI 3 of every view and feed.", "content": {"application/json": {}}}},
    )
    async def streams(request: Request) -> Response:
        """What comes over Server-Sent Events and WebSockets, with the types of every view and feed."""
        host = request.url.netloc or "localhost"
        return JSONResponse(asyncapi.document(gateway.app, __version__, host, gateway.known.catalog))

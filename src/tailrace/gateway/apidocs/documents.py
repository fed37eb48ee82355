"""The routes of the documents: each follows the catalog, and lists only what the caller may read.

A caller without a token gets the general OpenAPI document, which names nothing of the app, so that `/docs`
can ask for the token.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse

from tailrace import __version__
from tailrace.access.identity import Identity
from tailrace.avro.schema import Unwritable
from tailrace.contracts.catalog import Catalog, CatalogTopic
from tailrace.events.codecs import TopicCodecs
from tailrace.gateway.apidocs import asyncapi, openapi
from tailrace.gateway.apidocs.security import secure, secure_servers
from tailrace.gateway.gateway import Gateway
from tailrace.gateway.guard.access import Access, identity_of

# How many OpenAPI documents are kept: clients share a few sets of rights.
_MOST = 32
_Names = tuple[tuple[str, ...], ...] | None


def add(app: FastAPI, gateway: Gateway, opened: frozenset[str]) -> None:
    """Serve the documents. The OpenAPI document is made again only if the catalog or a schema has changed."""
    made: dict[_Names, tuple[Catalog | None, int, dict[str, Any]]] = {}

    def catalog_for(request: Request) -> Catalog | None:
        access, catalog = gateway.access, gateway.known.catalog
        if not access.on or "documents" in opened or catalog is None:
            return catalog
        identity = identity_of(request.scope)
        return None if identity is None else seen(catalog, access, identity)

    def codecs_of(topic: CatalogTopic) -> TopicCodecs | None:
        with suppress(Unwritable):
            return gateway.event_schemas.known(topic)
        return None

    @app.get("/openapi.json", include_in_schema=False)
    async def requests(request: Request) -> Response:
        catalog = catalog_for(request)
        names = None if catalog is None else tuple(tuple(of) for of in (catalog.views, catalog.feeds, catalog.topics))
        found, version = made.get(names), gateway.event_schemas.version
        if found is None or found[0] is not gateway.known.catalog or found[1] != version:
            document = openapi.document(app.openapi(), catalog, codecs_of)
            if gateway.access.on:
                secure(document, gateway.access.cookie, opened)
            if len(made) >= _MOST:
                made.clear()
            found = made[names] = (gateway.known.catalog, version, document)
        return JSONResponse(found[2], headers=_headers(gateway))

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
        document = asyncapi.document(gateway.app, __version__, host, catalog_for(request))
        if gateway.access.on:
            secure_servers(document, gateway.access.cookie)
        return JSONResponse(document, headers=_headers(gateway))


def seen(catalog: Catalog, access: Access, identity: Identity) -> Catalog:
    """The part of a catalog that a client may know of."""
    return replace(
        catalog,
        views={name: catalog.views[name] for name in access.known_names(identity, "view", catalog.views)},
        feeds={name: catalog.feeds[name] for name in access.known_names(identity, "feed", catalog.feeds)},
        topics={name: catalog.topics[name] for name in access.known_names(identity, "topic", catalog.topics)},
    )


def _headers(gateway: Gateway) -> dict[str, str]:
    # No cache may give one client's document to another.
    return {"Cache-Control": "no-store"} if gateway.access.on else {}

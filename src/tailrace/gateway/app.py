"""The gateway's web application: routes, documentation, errors."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI

from tailrace import __version__
from tailrace.gateway.apidocs import documents, page
from tailrace.gateway.gateway import Gateway
from tailrace.gateway.http import browser_client, feeds, follow, operations, streams, tickets, topics, views, websocket
from tailrace.gateway.http.listings import listing_routes
from tailrace.gateway.problems import answer_in_json

_DESCRIPTION = """
Live views of Kafka topics: look a row up, or follow it.

Every row has a **position**, the one coordinate from Kafka to here: it is the `ETag` of a lookup and the
`id` of a frame. Send the last one you have seen back (`If-None-Match`, `Last-Event-ID`) and you get what is newer,
from any gateway, also after Redis was lost. A position that can't be used gets a `reset` and a snapshot, never a gap.

Errors are JSON and say what was expected, what came and what to do. 503 means: ask again.
"""
_TAGS = [
    {"name": "views", "description": "One row per key, always current."},
    {"name": "feeds", "description": "Every event for a client, once and in order."},
    {"name": "streams", "description": "What one client follows, kept by the gateways: any of them serves any step."},
    {"name": "topics", "description": "Events in: what clients may write to topics that are declared for it."},
    {"name": "access", "description": "Tickets, for clients that can send no token in a header."},
    {"name": "operations", "description": "Health and metrics."},
]


def application(gateway: Gateway, opened: frozenset[str] = frozenset(), *, inner: bool = False) -> FastAPI:
    """The ASGI app; its lifespan runs the gateway.

    `opened` names what needs no token. `inner` says that metrics, and what health knows, are served at an inner port.
    """

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with gateway.running():
            yield

    app = FastAPI(
        title=f"Tailrace: {gateway.app}",
        version=__version__,
        summary="Kafka topics as live views that every client can read, follow and resume.",
        description=_DESCRIPTION,
        openapi_tags=_TAGS,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        lifespan=lifespan,
    )
    answer_in_json(app)
    app.include_router(follow.router(gateway))
    app.include_router(listing_routes.router(gateway))
    app.include_router(views.router(gateway))
    app.include_router(feeds.router(gateway))
    app.include_router(streams.router(gateway))
    app.include_router(topics.router(gateway))
    app.include_router(tickets.router(gateway))
    app.router.routes.extend((*websocket.routes(gateway), *streams.sockets(gateway)))
    app.include_router(operations.router(gateway, bare=inner))
    app.include_router(browser_client.router())
    app.include_router(page.router(app.title))
    documents.add(app, gateway, opened)
    return app

"""The gateway's web application: routes, documentation, errors."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI, Response
from fastapi.responses import JSONResponse
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from tailrace import __version__
from tailrace.gateway.apidocs import documents, examples, page
from tailrace.gateway.gateway import Gateway
from tailrace.gateway.health import readiness
from tailrace.gateway.http import browser_client, feeds, follow, streams, tickets, topics, views, websocket
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


def application(gateway: Gateway, opened: frozenset[str] = frozenset()) -> FastAPI:
    """The ASGI app; its lifespan runs the gateway. `opened` names what needs no token."""

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
    _add_operations(app, gateway)
    app.include_router(browser_client.router())
    app.include_router(page.router(app.title))
    documents.add(app, gateway, opened)
    return app


def _add_operations(app: FastAPI, gateway: Gateway) -> None:
    @app.get("/health/live", tags=["operations"], summary="Is the process alive?")
    async def live() -> dict[str, bool]:
        """200 as long as the gateway runs. It says nothing about Redis."""
        return {"live": True}

    @app.get(
        "/health/ready",
        tags=["operations"],
        summary="Can every key be answered for?",
        response_model=None,
        responses={200: examples.READY, 503: examples.NOT_READY},
    )
    async def ready() -> Response:
        """200 if Redis answers, the catalog is there, every partition is whole and the pub/sub link is up.

        `delay` is how long rows took to reach Redis in the last minute. `degraded` lists views whose rows may be
        stale.
        """
        report = await readiness(gateway)
        return JSONResponse(report, 200 if report["ready"] else 503, {"Cache-Control": "no-store"})

    @app.get(
        "/metrics",
        tags=["operations"],
        summary="Metrics for Prometheus",
        response_class=Response,
        response_model=None,
        responses={200: {"description": "Prometheus text.", "content": {"text/plain": {}}}},
    )
    async def metrics() -> Response:
        """The counters of this gateway, and those of the pipeline: inputs, and skipped records by reason."""
        return Response(gateway.metrics.text(), headers={"Content-Type": CONTENT_TYPE_LATEST})

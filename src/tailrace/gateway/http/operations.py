"""Health and metrics."""

from __future__ import annotations

from fastapi import APIRouter, Response
from fastapi.responses import JSONResponse
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from tailrace.gateway.apidocs import examples
from tailrace.gateway.gateway import Gateway
from tailrace.gateway.health import readiness

_READY = "200 if Redis answers, the catalog is there, every partition is whole and the pub/sub link is up."
_REPORT = (
    "\n\n`delay` is how long rows took to reach Redis in the last minute. `degraded` lists views whose rows may be "
    "stale."
)


def router(gateway: Gateway, *, bare: bool = False) -> APIRouter:
    """The routes. `bare` are those for clients: whether the gateway is ready, but not why, and no metrics."""
    routes = APIRouter(tags=["operations"])

    @routes.get("/health/live", summary="Is the process alive?")
    async def live() -> dict[str, bool]:
        """200 as long as the gateway runs. It says nothing about Redis."""
        return {"live": True}

    @routes.get(
        "/health/ready",
        summary="Can every key be answered for?",
        description=_READY if bare else _READY + _REPORT,
        response_model=None,
        responses=examples.BARELY_READY if bare else examples.READY,
    )
    async def ready() -> Response:
        report = await readiness(gateway)
        said = {"ready": report["ready"]} if bare else report
        return JSONResponse(said, 200 if report["ready"] else 503, {"Cache-Control": "no-store"})

    if bare:
        return routes

    @routes.get(
        "/metrics",
        summary="Metrics for Prometheus",
        response_class=Response,
        response_model=None,
        responses={200: {"description": "Prometheus text.", "content": {"text/plain": {}}}},
    )
    async def metrics() -> Response:
        """The counters of this gateway, and those of the pipeline: inputs, and skipped records by reason."""
        return Response(gateway.metrics.text(), headers={"Content-Type": CONTENT_TYPE_LATEST})

    return routes

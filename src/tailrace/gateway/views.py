"""The surfaces of a view: look a row up, follow it."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Header, Path, Query, Response

from tailrace.gateway import examples
from tailrace.gateway.event_stream import EventStream
from tailrace.gateway.gateway import Gateway
from tailrace.gateway.known import KnownView
from tailrace.gateway.lookup import look_up
from tailrace.gateway.paths import decoded
from tailrace.gateway.problems import Problem, unavailable

View = Annotated[str, Path(description="The name of a view.", examples=["rating-averages"])]
Key = Annotated[
    str,
    Path(
        description="The key: any text, percent-encoded as one path segment (`/` as `%2F`). "
        'A key of several columns is a JSON array, such as `[362,"2026-01-01"]`.',
        examples=["362"],
    ),
]


def router(gateway: Gateway) -> APIRouter:
    """The routes of views."""
    routes = APIRouter(tags=["views"])

    @routes.get(
        "/views/{view}/{key:segment}",
        summary="Look a row up",
        response_class=Response,
        response_model=None,
        responses=examples.LOOKUP,
    )
    async def look(
        view: View,
        key: Key,
        if_none_match: Annotated[
            str | None, Header(description="The `ETag` of an earlier answer: 304 where it still holds.")
        ] = None,
    ) -> Response:
        """The row that a key holds now, byte for byte as the pipeline wrote it.

        The `ETag` is the row's position. While the partition that holds the key is being restored, or Redis is away,
        the answer is 503 and never 404: nobody can know.
        """
        try:
            known = known_view(gateway, decoded(view, "view"))
            response = await look_up(gateway, known, decoded(key, "key").encode(), if_none_match)
        except Problem as problem:
            gateway.metrics.lookup(problem.status)
            raise
        gateway.metrics.lookup(response.status_code)
        return response

    @routes.get(
        "/views/{view}/{key:segment}/events",
        summary="Follow a row",
        response_class=Response,
        response_model=None,
        responses=examples.FOLLOW,
    )
    async def follow(
        view: View,
        key: Key,
        last_event_id: Annotated[
            str | None, Query(description="As the header `Last-Event-ID`, for clients that can't set one.")
        ] = None,
        last_event_id_header: Annotated[
            str | None,
            Header(alias="Last-Event-ID", description="The id of the last frame seen: only what is newer comes."),
        ] = None,
    ) -> Response:
        """The row that a key holds now, then every change, as Server-Sent Events.

        `row` (if the key holds one), `ready`, then `row` and `gone` as they happen. Versions only rise; a client that
        reads too slowly gets the newest row, not every one. A key that holds nothing yet is `ready` at once.
        A position that can't be used gets `reset` and a snapshot. While the partition is being restored, `progress`
        comes first. The answer has no end: try it with `curl -N` or a browser's `EventSource`.
        """
        name, key_bytes = decoded(view, "view"), decoded(key, "key").encode()
        known_view(gateway, name)
        if gateway.hub.draining:
            raise unavailable("shutting down", "Connect again: another gateway answers, or this one when it is back.")
        return EventStream(gateway, name, key_bytes, last_event_id_header or last_event_id)

    for path, endpoint in (("/views/{view}/{key:segment}", look), ("/views/{view}/{key:segment}/events", follow)):
        routes.add_api_route(path, endpoint, methods=["HEAD"], include_in_schema=False, response_model=None)
    return routes


def known_view(gateway: Gateway, name: str) -> KnownView:
    """A view of the catalog; raises a Problem where it has no such view, or is not there yet."""
    known = gateway.known
    if not known.loaded:
        raise unavailable(
            "no catalog yet",
            "Ask again in a moment; if it lasts, see whether Redis, the pipeline and the materializer run.",
            expected=f"the catalog of app {gateway.app} in Redis",
            got=known.problem or "none",
        )
    view = known.views.get(name)
    if view is None:
        raise Problem(
            404,
            "unknown view",
            view=name,
            expected=sorted(known.views),
            remedy="Take one of the expected views, or declare this one and start the pipeline.",
        )
    return view

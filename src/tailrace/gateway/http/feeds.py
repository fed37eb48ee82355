"""The surface of a feed: follow a client's events."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Request, Response

from tailrace.gateway.apidocs import examples
from tailrace.gateway.gateway import Gateway
from tailrace.gateway.http.event_stream import LastId, LastIdHeader, event_stream
from tailrace.gateway.live.requests import FollowFeed
from tailrace.gateway.paths import decoded

Feed = Annotated[str, Path(description="The name of a feed.", examples=["notices"])]
Client = Annotated[
    str,
    Path(
        description="Who the events are for: any text, percent-encoded as one path segment (`/` as `%2F`). "
        'A key of several columns is a JSON array, such as `["c7","de"]`.',
        examples=["c7"],
    ),
]


def router(gateway: Gateway) -> APIRouter:
    routes = APIRouter(tags=["feeds"])

    @routes.get(
        "/feeds/{feed}/{client:segment}/events",
        summary="Follow a feed",
        response_class=Response,
        response_model=None,
        responses=examples.FOLLOW_FEED,
    )
    async def follow_feed(
        request: Request,
        feed: Feed,
        client: Client,
        last_event_id: LastId = None,
        last_event_id_header: LastIdHeader = None,
    ) -> Response:
        """Every event for a client, once and in order, as Server-Sent Events.

        `ready`, then `event`s as they happen. With a position, first comes what the client has missed. If
        some of that is gone, `reset` comes with the reason `missed`, and then what is kept. Without a
        position, a feed that keeps its events for later clients (`retain="always"`) begins with all that is
        kept, and any other feed with the next event. If a client reads too slowly, `close` ends the stream,
        and the client may come back with its last position. The answer has no end: try it with `curl -N` or a
        browser's `EventSource`.
        """
        position = last_event_id_header or last_event_id
        follow = FollowFeed(None, decoded(feed, "feed"), decoded(client, "client"), position)
        return await event_stream(gateway, request, follow)

    path = "/feeds/{feed}/{client:segment}/events"
    routes.add_api_route(path, follow_feed, methods=["HEAD"], include_in_schema=False, response_model=None)
    return routes

"""The surface of a feed: follow a client's events."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

from fastapi import APIRouter, Path, Request, Response

from tailrace.gateway.apidocs import feed_examples
from tailrace.gateway.connection.wire import Wire
from tailrace.gateway.gateway import Gateway
from tailrace.gateway.guard.access import Identity
from tailrace.gateway.http.follow import LastId, LastIdHeader, event_stream
from tailrace.gateway.http.paths import decoded
from tailrace.gateway.http.views import named
from tailrace.gateway.live.requests import FollowFeed
from tailrace.gateway.live.subscription import Subscription
from tailrace.gateway.unknown import no_catalog, unknown_feed

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
    """The routes of feeds."""
    routes = APIRouter(tags=["feeds"])

    @routes.get(
        "/feeds/{feed}/{client:segment}/events",
        summary="Follow a feed",
        response_class=Response,
        response_model=None,
        responses=feed_examples.FOLLOW,
    )
    async def follow_feed(
        request: Request,
        feed: Feed,
        client: Client,
        last_event_id: LastId = None,
        last_event_id_header: LastIdHeader = None,
    ) -> Response:
        """Every event for a client, once and in order, as Server-Sent Events.

        `ready`, then `event`s as they happen. With a position, first what the client has missed; where that is not all
        there any more, `reset` with the reason `missed`, and what is kept. Without one, a feed that keeps its events
        for clients that come later (`retain="always"`) begins with all that is kept, any other one from now on.
        A client that reads too slowly is ended with `close`, and comes back with its last position.
        The answer has no end: try it with `curl -N` or a browser's `EventSource`.
        """
        position = last_event_id_header or last_event_id
        follow = FollowFeed(None, decoded(feed, "feed"), decoded(client, "client"), position)
        return await event_stream(gateway, request, follow)

    path = "/feeds/{feed}/{client:segment}/events"
    routes.add_api_route(path, follow_feed, methods=["HEAD"], include_in_schema=False, response_model=None)
    return routes


def register(gateway: Gateway) -> None:
    """Let clients follow feeds."""

    async def follow_feed(follow: FollowFeed, identity: Identity | None) -> Callable[[Wire], Subscription]:
        if gateway.access is not None:
            gateway.access.may_follow_feed(identity, follow.feed, follow.client)
        check_known(gateway, follow.feed, identity)

        def make(wire: Wire) -> Subscription:
            return gateway.feeds.follow(wire, follow.id, follow.feed, follow.client.encode(), follow.position)

        return make

    gateway.followers[FollowFeed] = follow_feed


def check_known(gateway: Gateway, name: str, identity: Identity | None) -> None:
    """Raise a Problem where the catalog has no such feed, or is not there yet."""
    known = gateway.known
    if not known.loaded:
        raise no_catalog(known)
    if name not in known.feeds:
        raise unknown_feed(name, named(gateway, identity, "feed", known.feeds))

"""Queries and whole views that clients follow, over Server-Sent Events or on a WebSocket."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from tailrace.gateway.connection.wire import Wire
from tailrace.gateway.gateway import Gateway
from tailrace.gateway.guard.access import Identity
from tailrace.gateway.http.views import known_view
from tailrace.gateway.live.queries.subscription import QuerySubscription
from tailrace.gateway.live.requests import FollowQuery


def register(gateway: Gateway) -> None:
    """Let clients follow queries and whole views."""
    gateway.followers[FollowQuery] = partial(prepare_query, gateway)


async def prepare_query(
    gateway: Gateway, follow: FollowQuery, identity: Identity | None
) -> Callable[[Wire], QuerySubscription]:
    """What makes the subscription; raises a Problem where the query can't be used, or not be evaluated now."""
    view = known_view(gateway, follow.view, identity)
    filter = None if gateway.access is None else gateway.access.query_filter(identity, follow.view)
    followed = await gateway.queries.open(view, follow.where, filter)

    def make(wire: Wire) -> QuerySubscription:
        asked = (follow.view, follow.where, filter, follow.position)
        return QuerySubscription(gateway.query_joining, wire, follow.id, followed.query, *asked)

    return make

"""Following rows over Server-Sent Events: one key, some keys, a query, or a whole view."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import parse_qsl

from fastapi import APIRouter, Query, Request, Response

from tailrace.gateway.apidocs import examples
from tailrace.gateway.gateway import Gateway
from tailrace.gateway.guard.access import identity_of
from tailrace.gateway.http.event_stream import LastId, LastIdHeader, event_stream
from tailrace.gateway.http.views import Key, View
from tailrace.gateway.live.requests import FollowKeys, FollowQuery
from tailrace.gateway.paths import decoded
from tailrace.gateway.problems import Problem


def router(gateway: Gateway) -> APIRouter:
    routes = APIRouter(tags=["views"])

    @routes.get(
        "/views/{view}/events",
        summary="Follow some rows",
        response_class=Response,
        response_model=None,
        responses=examples.FOLLOW,
    )
    async def follow_some(
        request: Request,
        view: View,
        key: Annotated[
            list[str] | None, Query(description="The keys to follow; the parameter is repeated for each.")
        ] = None,
        where: Annotated[
            str | None, Query(description="A query instead: the text after SQL's WHERE, see docs/queries.md.")
        ] = None,
        last_event_id: LastId = None,
        last_event_id_header: LastIdHeader = None,
    ) -> Response:
        """The rows of these keys, of a query, or of the whole view, then every change, as Server-Sent Events.

        It works as for one row. If several frames are written together, only the last one has an id: the
        position of all of them. To look up a key that is the text `events`, write it as `%65vents`.
        """
        name, position = decoded(view, "view"), last_event_id_header or last_event_id
        gateway.access.view(identity_of(request.scope), name)
        if not key:
            return await event_stream(gateway, request, FollowQuery(None, name, where, position))
        if where is not None:
            raise Problem(
                400, "key and where", expected="key or where", got="both", remedy="Put the keys into the query."
            )
        keys = _keys(request)
        return await event_stream(gateway, request, FollowKeys(None, name, keys, position))

    @routes.get(
        "/views/{view}/{key:segment}/events",
        summary="Follow a row",
        response_class=Response,
        response_model=None,
        responses=examples.FOLLOW,
    )
    async def follow_one(
        request: Request,
        view: View,
        key: Key,
        last_event_id: LastId = None,
        last_event_id_header: LastIdHeader = None,
    ) -> Response:
        """The row that a key holds now, then every change, as Server-Sent Events.

        `row` (if the key holds one), `ready`, then `row` and `gone` as they happen. Versions only rise. A
        client that reads too slowly gets the newest row, not every row. If the key holds nothing yet, `ready`
        comes at once. If a position can't be used, `reset` and a snapshot come. While the partition is being
        restored, `progress` comes first. The answer has no end: try it with `curl -N` or a browser's
        `EventSource`.
        """
        name, text = decoded(view, "view"), decoded(key, "key")
        follow = FollowKeys(None, name, (text,), last_event_id_header or last_event_id)
        return await event_stream(gateway, request, follow)

    for path, endpoint in (("/views/{view}/events", follow_some), ("/views/{view}/{key:segment}/events", follow_one)):
        routes.add_api_route(path, endpoint, methods=["HEAD"], include_in_schema=False, response_model=None)
    return routes


def _keys(request: Request) -> tuple[str, ...]:
    """The keys of a query string, which must be UTF-8: a key with replaced bytes would be another key."""
    try:
        pairs = parse_qsl(request.scope["query_string"].decode("latin-1"), keep_blank_values=True, errors="strict")
    except UnicodeDecodeError:
        raise Problem(
            400,
            "unreadable key",
            expected="UTF-8 text, percent-encoded",
            remedy="Encode the text as UTF-8 first, then percent-encode its bytes.",
        ) from None
    return tuple(dict.fromkeys(value for name, value in pairs if name == "key"))

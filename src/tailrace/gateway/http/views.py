"""Lookups of a view's rows; `following` has the streams."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

from fastapi import APIRouter, Header, Path, Query, Request, Response

from tailrace.access.rights import Kind
from tailrace.gateway.apidocs import examples
from tailrace.gateway.catalog import Known, KnownView
from tailrace.gateway.gateway import Gateway
from tailrace.gateway.guard.access import Identity, identity_of
from tailrace.gateway.http.lookup import look_up
from tailrace.gateway.http.paths import decoded
from tailrace.gateway.http.prefer import wait_seconds
from tailrace.gateway.http.waits import ClientGone, while_connected, while_valid
from tailrace.gateway.problems import Problem
from tailrace.gateway.unknown import no_catalog, unknown_view

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
        request: Request,
        view: View,
        key: Key,
        if_none_match: Annotated[
            str | None, Header(description="The `ETag` of an earlier answer: 304 where it still holds.")
        ] = None,
        prefer: Annotated[
            str | None,
            Header(
                description="`wait=N`: wait up to N seconds (60 at most) for another row than the one that "
                "`If-None-Match` names or, without it, for a row to be there.",
            ),
        ] = None,
        at_least: Annotated[
            list[str] | None,
            Query(
                description="`topic:partition:offset` of a source record: wait until the view has taken it in, for "
                "10 s or as long as `Prefer` says; 503 where the view can't tell by then.",
                examples=[["ratings:0:17"]],
            ),
        ] = None,
    ) -> Response:
        """The row that a key holds now, byte for byte as the pipeline wrote it.

        The `ETag` is the row's position. While the partition that holds the key is being restored, or Redis is away,
        the answer is 503 and never 404: nobody can know.
        """
        try:
            identity = identity_of(request.scope)
            known = known_view(gateway, decoded(view, "view"), identity)
            restriction, wanted = None, decoded(key, "key").encode()
            if gateway.access is not None:
                # The guard could not ask where the catalog has come only now.
                gateway.access.may_ask(identity, known.name, [wanted])
                restriction = gateway.access.seen_filter(identity, known.name)
            found = look_up(
                gateway,
                known,
                wanted,
                if_none_match,
                restriction,
                wait=(wait := wait_seconds(prefer)),
                at_least=at_least or (),
                topics=None if gateway.access is None else named(gateway, identity, "topic", known.sources),
            )
            if wait or at_least:
                found = while_connected(request.receive, while_valid(gateway.access, identity, found))
            response = await found
        except ClientGone:
            return Response(status_code=499)
        except Problem as problem:
            gateway.metrics.lookup(problem.status)
            raise
        gateway.metrics.lookup(response.status_code)
        return response

    routes.add_api_route(
        "/views/{view}/{key:segment}", look, methods=["HEAD"], include_in_schema=False, response_model=None
    )
    return routes


def loaded(gateway: Gateway) -> Known:
    """The catalog; raises a Problem where it is not there yet."""
    if not gateway.known.loaded:
        raise no_catalog(gateway.known)
    return gateway.known


def known_view(gateway: Gateway, name: str, identity: Identity | None) -> KnownView:
    """A view of the catalog; raises a Problem where it has no such view, is not there yet, or for none of the client's.

    The answer names those that the client may know of.
    """
    known = loaded(gateway)
    if gateway.access is not None:
        gateway.access.may_know(identity, "view", name)
    view = known.views.get(name)
    if view is None:
        raise unknown_view(name, named(gateway, identity, "view", known.views))
    return view


def named(gateway: Gateway, identity: Identity | None, kind: Kind, names: Iterable[str]) -> list[str]:
    """Those of some names that a client may know of: all of them where nobody asks who it is."""
    return sorted(names) if gateway.access is None else gateway.access.known_names(identity, kind, names)

"""Lookups of a view's rows."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Header, Path, Query, Request, Response

from tailrace.gateway.apidocs import examples
from tailrace.gateway.gateway import Gateway
from tailrace.gateway.guard.access import identity_of
from tailrace.gateway.http.lookup import look_up
from tailrace.gateway.http.waiting import ClientGone, wait_seconds, while_connected, while_valid
from tailrace.gateway.paths import decoded
from tailrace.gateway.problems import Problem

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
            str | None, Header(description="The `ETag` of an earlier answer: 304 if it still holds.")
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
                "10 s or as long as `Prefer` says; 503 if the view can't tell by then.",
                examples=[["ratings:0:17"]],
            ),
        ] = None,
    ) -> Response:
        """The row that a key holds now, byte for byte as the pipeline wrote it.

        The `ETag` is the row's position. While the partition that holds the key is being restored, or Redis
        is away, the answer is 503 and never 404, because the gateway can't know.
        """
        try:
            identity = identity_of(request.scope)
            access, wanted = gateway.access, decoded(key, "key").encode()
            known = access.view(identity, decoded(view, "view"))
            # The guard could not ask if the catalog has arrived only now.
            access.may_ask(identity, known.name, [wanted])
            found = look_up(
                gateway,
                known,
                wanted,
                if_none_match,
                access.seen_filter(identity, known.name),
                wait=(wait := wait_seconds(prefer)),
                at_least=at_least or (),
                topics=access.known_names(identity, "topic", known.sources) if access.on else None,
            )
            if wait or at_least:
                found = while_connected(request.receive, while_valid(access, identity, found))
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

"""The route of listings."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

from fastapi import APIRouter, Header, Query, Request, Response

from tailrace.gateway.apidocs import examples
from tailrace.gateway.gateway import Gateway
from tailrace.gateway.guard.access import identity_of
from tailrace.gateway.http.listings.listing import LIMIT, MOST, Asked, list_rows
from tailrace.gateway.http.views import View
from tailrace.gateway.http.waiting import ClientGone, while_connected, while_valid
from tailrace.gateway.live.requests import FollowQuery
from tailrace.gateway.paths import decoded
from tailrace.gateway.problems import Problem


def router(gateway: Gateway) -> APIRouter:
    routes = APIRouter(tags=["views"])

    @routes.get(
        "/views/{view}",
        summary="List rows",
        response_class=Response,
        response_model=None,
        responses=examples.LISTING,
    )
    async def listing(
        request: Request,
        view: View,
        where: Annotated[
            str | None, Query(description="Which rows: the text after SQL's WHERE.", examples=["rating >= 8"])
        ] = None,
        limit: Annotated[int, Query(ge=1, le=MOST, description="How many rows a page has at most.")] = LIMIT,
        page: Annotated[str | None, Query(description="The `next` of the page before.")] = None,
        after: Annotated[
            str | None, Query(description="The `position` of an earlier listing: only what is newer comes.")
        ] = None,
        if_none_match: Annotated[
            str | None, Header(description="The `ETag` of an earlier answer: 304 where it still holds.")
        ] = None,
    ) -> Response:
        """The rows of a view, or those that match a query, page by page, in no particular order.

        `position` is where the listing stands, for all pages together. Follow the view's events with the same
        `where` and this position as `last_event_id`, and you miss nothing. A page may have fewer rows than
        `limit`, or none; there are more as long as `next` is not null. If a row changes meanwhile, it may be
        on two pages: the later one counts.

        With `after`, `rows` are those that have changed since, and `gone` are the keys that hold nothing any
        more or do not match. If that is not known, all rows come and `reset` says why: drop what you hold.
        """
        try:
            identity = identity_of(request.scope)
            access = gateway.access
            known = access.view(identity, decoded(view, "view"))
            asked = Asked(where, limit, page, after)
            if access.on:
                restriction = access.row_filter(identity, known.name)
                whole = await access.resumable(identity, FollowQuery(None, known.name, where, after))
                rights = access.rights_digest(identity, known.name)
                asked = replace(asked, restriction=restriction, in_part=not whole, rights=rights)
            # The listing may wait for the store, and a scan takes a while.
            found = list_rows(gateway, known, asked, if_none_match)
            response = await while_connected(request.receive, while_valid(access, identity, found))
        except ClientGone:
            return Response(status_code=499)
        except Problem as problem:
            gateway.metrics.listing(problem.status)
            raise
        gateway.metrics.listing(response.status_code)
        return response

    routes.add_api_route("/views/{view}", listing, methods=["HEAD"], include_in_schema=False, response_model=None)
    return routes

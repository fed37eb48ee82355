"""Tickets over HTTP: for clients that can set no header, such as a browser's EventSource and WebSocket."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse

from tailrace.access.refused import Refused
from tailrace.gateway.budgets import user_of
from tailrace.gateway.gateway import Gateway
from tailrace.gateway.guard.access import identity_of
from tailrace.gateway.guard.token_access import TICKET
from tailrace.gateway.problems import refusal


def router(gateway: Gateway) -> APIRouter:
    routes = APIRouter(tags=["access"])

    @routes.post(
        "/tickets",
        summary="Get a ticket for one connection",
        status_code=201,
        response_model=None,
        responses={
            201: {
                "description": "The ticket.",
                "content": {"application/json": {"example": {"ticket": "…", "expires_in": TICKET}}},
            },
            401: {"description": "There is no token, or one that is not valid."},
        },
    )
    async def ticket(request: Request) -> Response:
        """For one stream or WebSocket, within 30 seconds, at any gateway: send it as the parameter `ticket`.

        A ticket in a URL may end up in a log. Whoever finds it there can't use it again.
        """
        identity = identity_of(request.scope)
        if gateway.access.on:
            try:
                gateway.presence.pace(user_of(identity))
            except Refused as refused:
                raise refusal(refused) from None
        made = await gateway.access.ticket(identity)
        return JSONResponse({"ticket": made, "expires_in": TICKET}, 201, {"Cache-Control": "no-store"})

    return routes

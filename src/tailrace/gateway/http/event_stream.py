"""A response whose body a subscription writes."""

from __future__ import annotations

import asyncio
from typing import Annotated

from fastapi import Header, Query, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from tailrace.gateway.admission import Maker, admit
from tailrace.gateway.connection.close_reasons import ending_of
from tailrace.gateway.connection.http import lend
from tailrace.gateway.connection.wire import Framing, Wire
from tailrace.gateway.frames.surface import RETRY, close
from tailrace.gateway.gateway import Gateway
from tailrace.gateway.guard.access import identity_of
from tailrace.gateway.live.requests import Follow
from tailrace.gateway.problems import Problem, shutting_down

HEADERS = {"Content-Type": "text/event-stream", "Cache-Control": "no-store", "X-Accel-Buffering": "no"}

LastId = Annotated[str | None, Query(description="As the header `Last-Event-ID`, for clients that can't set one.")]
LastIdHeader = Annotated[
    str | None, Header(alias="Last-Event-ID", description="The id of the last frame seen: only what is newer comes.")
]


async def event_stream(gateway: Gateway, request: Request, follow: Follow) -> Response:
    """The answer to a client that follows over Server-Sent Events. Raises a Problem if it can't."""
    if gateway.connections.draining:
        raise shutting_down()
    return EventStream(gateway, await admit(gateway, follow, identity_of(request.scope)))


class EventStream(Response):
    """The frames of one subscription, until the client leaves or the gateway ends it.

    `make` makes the subscription once the wire is there. This class starts and closes it.
    """

    def __init__(self, gateway: Gateway, make: Maker) -> None:
        self.status_code = 200
        self.background = None
        self.init_headers(HEADERS)
        self._gateway = gateway
        self._make = make

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        """Send the head, lend the wire to the subscription, and end the body when the stream has ended."""

        async def start() -> None:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})

        if scope["method"] == "HEAD":
            await start()
            await send({"type": "http.response.body", "body": b"", "more_body": False})
            return
        last, wire = b"", await lend(scope, start)
        wire.identity = identity_of(scope)
        self._gateway.connections.open(wire)
        try:
            await self._feed(wire)
            if (ending := wire.ending) is not None:
                last = close(ending.reason, ending.message, ending.retry)
                self._gateway.metrics.sent("close", 1, len(last))
                if wire.framing is Framing.PLAIN and not wire.lost:
                    # uvicorn would take a body without chunks and a length for empty.
                    wire.write(last)
                    last = b""
            # The end waits until there is room for it, and a client that does not read would hold up its own
            # deadline. So the client is cut off if the end is not out in time.
            deadline = asyncio.get_running_loop().call_later(self._gateway.timing.grace, wire.abort)
            try:
                await send({"type": "http.response.body", "body": last, "more_body": False})
            finally:
                deadline.cancel()
        finally:
            self._gateway.connections.close(wire)

    async def _feed(self, wire: Wire) -> None:
        wire.send(RETRY)
        try:
            subscription = self._make(wire)
        except Problem as problem:
            # There was room when the client asked, but other clients have taken it since.
            wire.finish(ending_of(problem))
            return
        wire.stream = subscription
        self._gateway.metrics.subscribed("sse", 1)
        try:
            subscription.start()
            await wire.closed
        finally:
            subscription.close()
            self._gateway.budgets.left(subscription)
            wire.stream = None
            self._gateway.metrics.subscribed("sse", -1)

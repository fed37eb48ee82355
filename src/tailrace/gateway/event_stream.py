"""A response whose body is written by the hub."""

from __future__ import annotations

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from tailrace.gateway.gateway import Gateway
from tailrace.gateway.protocol import lend

HEADERS = {"Content-Type": "text/event-stream", "Cache-Control": "no-store", "X-Accel-Buffering": "no"}


class EventStream(Response):
    """The frames of one key, until the client leaves or the gateway drains."""

    def __init__(self, gateway: Gateway, view: str, key: bytes, position: str | None) -> None:
        self.status_code = 200
        self.background = None
        self.init_headers(HEADERS)
        self._gateway = gateway
        self._stream = (view, key, position)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        """Send the head, lend the wire to the hub, and end the body when the stream has ended."""

        async def start() -> None:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})

        if scope["method"] == "HEAD":
            await start()
        else:
            wire = await lend(scope, start)
            await self._gateway.joining.stream(wire, *self._stream)
        await send({"type": "http.response.body", "body": b"", "more_body": False})

"""The WebSocket endpoint: lends the wire of a connection to a session, and says why it ends."""

from __future__ import annotations

from contextlib import suppress

from starlette.routing import BaseRoute, WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect
from uvicorn.protocols.utils import ClientDisconnected

from tailrace.gateway.connection.http import lend
from tailrace.gateway.connection.wire import Wire
from tailrace.gateway.gateway import Gateway
from tailrace.gateway.http.session import Session
from tailrace.gateway.live.requests import Follow
from tailrace.gateway.problems import Problem, shutting_down

SUBPROTOCOL = "tailrace.v1"
# What a write to a client that has left raises, before and after the accept.
_GONE = (ClientDisconnected, WebSocketDisconnect)


def routes(gateway: Gateway) -> list[BaseRoute]:
    """The routes of WebSockets."""

    async def endpoint(websocket: WebSocket) -> None:
        await serve(gateway, websocket)

    return [WebSocketRoute("/ws", endpoint)]


async def serve(gateway: Gateway, websocket: WebSocket, first: Follow | None = None) -> None:
    """Serve a connection until it ends; it is subscribed to `first` from the start, once it is known whose it is.

    It ends if it can't be.
    """
    try:
        if gateway.connections.draining:
            raise shutting_down()
        identity = await gateway.access.of_socket(websocket.scope)
    except Problem as problem:
        with suppress(*_GONE):
            await websocket.send_denial_response(problem.response())
        return

    async def accept() -> None:
        offered = websocket.scope["subprotocols"]
        await websocket.accept(SUBPROTOCOL if SUBPROTOCOL in offered else None)

    try:
        wire = await lend(websocket.scope, accept)
    except _GONE:
        return
    wire.identity = identity
    gateway.connections.open(wire)
    try:
        await _converse(gateway, wire, websocket, first)
        if wire.ending is not None and not wire.lost:
            with suppress(*_GONE):
                await websocket.close(wire.ending.code, wire.ending.message[:120])
    finally:
        gateway.connections.close(wire)


async def _converse(gateway: Gateway, wire: Wire, websocket: WebSocket, first: Follow | None) -> None:
    session = Session(gateway, wire, first)
    if gateway.access.on and wire.identity is None:
        gateway.doorway.expect(session, gateway.timing.introduction)
    try:
        await session.run(websocket.receive)
    finally:
        gateway.doorway.leave(session)
        session.close()

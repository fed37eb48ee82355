"""One WebSocket connection: what its client says, and the subscriptions that it has."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Coroutine, MutableMapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from starlette.routing import BaseRoute, WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect
from uvicorn.protocols.utils import ClientDisconnected

from tailrace.access.identity import Identity
from tailrace.access.refused import Refused
from tailrace.gateway.admission import admit
from tailrace.gateway.connection.close_reasons import FAULT, NOT_UNDERSTOOD, UNAUTHORIZED, Ending, ending_of
from tailrace.gateway.connection.http import lend
from tailrace.gateway.connection.wire import Wire
from tailrace.gateway.frames.surface import json_message
from tailrace.gateway.gateway import Gateway
from tailrace.gateway.live.positions import OTHER_RIGHTS
from tailrace.gateway.live.requests import Auth, Follow, FollowKeys, FollowStream, NotARequest, Ping, Unsubscribe, read
from tailrace.gateway.live.subscription import Subscription
from tailrace.gateway.problems import Problem, refusal, shutting_down

log = logging.getLogger(__name__)

# After more messages than this that can't be read, a connection ends: its client does not speak the protocol.
MAX_MISTAKES = 10

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]


class Session:
    """Answers one client. `pause`, `resume` and `stop` come from its wire and go to every subscription.

    `first` is what the client follows from the start, once it is known who it is.
    """

    def __init__(self, gateway: Gateway, wire: Wire, first: Follow | None = None) -> None:
        self.wire = wire
        self.subscriptions: dict[str, Subscription] = {}
        self._gateway = gateway
        self._follows: dict[str, Follow] = {}
        self._first = first
        self._own: str | None = None
        self._mistakes = 0
        wire.stream = self

    async def run(self, receive: Receive) -> None:
        """Do what the client says until it leaves, or the connection must end.

        The next message waits until the client has read what it was sent, so answers do not pile up.
        """
        if not self._gateway.access.on or self.wire.identity is not None:
            await self._guarded(self._begin())
        while not self.wire.closed.done():
            message = await receive()
            if message["type"] != "websocket.receive" or self.wire.closed.done():
                return
            await self._guarded(self._do(message.get("text")))

    def overdue(self) -> None:
        """The client has not said in time who it is."""
        self.wire.finish(UNAUTHORIZED)

    def abort(self) -> None:
        """Cut off the client: it has not said who it is, and has to make room."""
        self.wire.abort()

    def unread(self) -> int:
        """Nothing waits to be read: a client that has not said who it is gets no answer."""
        return 0

    async def subscribe(self, follow: Follow) -> None:
        """Begin to follow something. If the client can't, tell it why."""
        id = follow.id or ""
        if id in self.subscriptions:
            # An error with the id would end the subscription that has it.
            self._refuse(Problem(400, "id in use", expected="an id of its own", got=id, remedy="Unsubscribe first."))
            return
        try:
            most = self._gateway.limits.subscriptions
            if len(self.subscriptions) >= most:
                expected = f"at most {most} subscriptions"
                raise Problem(
                    400, "too many subscriptions", expected=expected, remedy="Ask for several keys in one of them."
                )
            make = await admit(self._gateway, follow, self.wire.identity)
            if self.wire.closed.done():
                return
            subscription = make(self.wire)
            try:
                self.check_room(subscription)
            except Problem:
                self._gateway.budgets.left(subscription)
                raise
        except Problem as problem:
            self._refuse(problem, id)
            if id == self._own:
                self.wire.finish(ending_of(problem))
            return
        self.subscriptions[id] = subscription
        self._follows[id] = follow
        self._gateway.metrics.subscribed("ws", 1)
        self.answer("subscribed", id=id, query=subscription.query)
        subscription.start()

    def ended(self, subscription: Subscription, problem: Problem, ending: Ending) -> None:  # noqa: ARG002
        """End one subscription with an `error`. The others go on, unless the connection was made for this one."""
        if self._remove(subscription):
            self._refuse(problem, subscription.id)
            if subscription.id == self._own:
                self.wire.finish(ending_of(problem))

    def check_room(self, *more: Subscription) -> None:
        """Raise a Problem if all subscriptions and `more` follow more keys than one connection may."""
        keys = sum(subscription.size for subscription in (*self.subscriptions.values(), *more))
        try:
            self._gateway.limits.check_room(keys)
        except Refused as refused:
            raise refusal(refused) from None

    def answer(self, kind: str, **fields: object) -> None:
        """Write a message for this client alone."""
        message = json_message(kind, **fields)
        self._gateway.metrics.sent("answer", 1, len(message), "ws")
        self.wire.send(message)

    def pause(self) -> None:
        for subscription in tuple(self.subscriptions.values()):
            subscription.pause()

    def resume(self) -> None:
        """The client has caught up. If what it has missed makes it slow again, the other subscriptions wait on."""
        for id in tuple(self.subscriptions):
            # A subscription that was served goes to the end, so that the others have their turn the next time.
            subscription = self.subscriptions[id] = self.subscriptions.pop(id)
            subscription.resume()
            if self.wire.paused:
                return

    def stop(self) -> None:
        """The client is gone; `close` follows."""
        for subscription in tuple(self.subscriptions.values()):
            subscription.stop()

    def close(self) -> None:
        """End every subscription, and leave nothing behind."""
        for subscription in tuple(self.subscriptions.values()):
            self._remove(subscription)
        self.wire.stream = None

    async def _guarded(self, step: Coroutine[None, None, None]) -> None:
        try:
            await step
        except Exception:
            log.exception("session=failed subscriptions=%d", len(self.subscriptions))
            self.wire.finish(FAULT)
        await self.wire.writable()

    async def _do(self, text: str | None) -> None:
        try:
            if text is None:
                raise NotARequest("unreadable message", "JSON in a text frame", "a binary frame")
            request = read(text)
        except NotARequest as problem:
            self._refuse(problem, problem.id if problem.id not in self.subscriptions else None)
            self._mistakes += 1
            if self._mistakes > MAX_MISTAKES:
                self.wire.finish(NOT_UNDERSTOOD)
            return
        if isinstance(request, Auth):
            await self._authenticate(request)
        elif self._gateway.access.on and self.wire.identity is None:
            self.wire.finish(UNAUTHORIZED)
        elif isinstance(request, Ping):
            self.answer("pong")
        elif isinstance(request, Unsubscribe):
            self._unsubscribe(request.id)
        else:
            await self.subscribe(request)

    async def _begin(self) -> None:
        """Follow what the connection was made for. It ends with that, or if that can't be followed."""
        first, self._first = self._first, None
        if first is not None:
            self._own = first.id
            await self.subscribe(first)

    async def _authenticate(self, request: Auth) -> None:
        """Take a new token. Subscriptions that it does not allow end, and those that it shows other rows begin anew.

        All that the client may no longer have ends in the turn of the loop in which the token begins to count.
        """
        access, before = self._gateway.access, self.wire.identity
        again: list[Follow] = []
        if access.on:
            try:
                self.wire.identity = await access.of_token(request.token)
            except Problem as problem:
                self._refuse(problem)
                if problem.status < 500:
                    self.wire.finish(UNAUTHORIZED)
                return
            self._gateway.doorway.served(self)
            if before is not None:
                again = self._review(before)
        self.answer("authenticated", expires=self.wire.identity.expires if self.wire.identity is not None else None)
        await self._begin()
        for follow in again:
            await self.subscribe(follow)

    def _review(self, before: Identity) -> list[Follow]:
        """Check every subscription again; returns what to follow anew, after a `reset`."""
        again: list[Follow] = []
        for id, subscription in tuple(self.subscriptions.items()):
            follow = self._follows[id]
            try:
                if self._gateway.access.changed(subscription.asked or follow, before, self.wire.identity):
                    self._remove(subscription)
                    again.append(anew(follow))
            except Problem as problem:
                self.ended(subscription, problem, ending_of(problem))
        return again

    def _unsubscribe(self, id: str) -> None:
        subscription = self.subscriptions.get(id)
        if subscription is None:
            remedy = "It has ended, or was never there."
            self._refuse(
                Problem(400, "unknown subscription", expected="the id of a subscription", got=id, remedy=remedy)
            )
            return
        self._remove(subscription)
        if id == self._own:
            self._own = None
        self.answer("unsubscribed", id=id)

    def _remove(self, subscription: Subscription) -> bool:
        id = subscription.id or ""
        if self.subscriptions.get(id) is not subscription:
            return False
        del self.subscriptions[id], self._follows[id]
        subscription.stop()
        subscription.close()
        self._gateway.budgets.left(subscription)
        self._gateway.metrics.subscribed("ws", -1)
        return True

    def _refuse(self, problem: Problem, id: str | None = None) -> None:
        self.answer("error", id=id, **{**problem.body, "retry": problem.status == 429 or problem.status >= 500})


def anew(follow: Follow) -> Follow:
    """A request to follow the same from a `reset` on, because the client may see other rows now."""
    if isinstance(follow, FollowKeys | FollowStream):
        return replace(follow, position=OTHER_RIGHTS, positions={})
    return replace(follow, position=OTHER_RIGHTS)


SUBPROTOCOL = "tailrace.v1"
# What a write raises if the client has left, before and after the accept.
_GONE = (ClientDisconnected, WebSocketDisconnect)


def routes(gateway: Gateway) -> list[BaseRoute]:

    async def endpoint(websocket: WebSocket) -> None:
        await serve(gateway, websocket)

    return [WebSocketRoute("/ws", endpoint)]


async def serve(gateway: Gateway, websocket: WebSocket, first: Follow | None = None) -> None:
    """Serve a connection until it ends. Once it is known whose it is, it is subscribed to `first`, or ends."""
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

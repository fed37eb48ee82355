"""One WebSocket connection: what its client says, and the subscriptions that it has."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from tailrace.access.limits import BURST
from tailrace.access.rates import Bucket
from tailrace.gateway.access_hook import Access, Identity
from tailrace.gateway.endings import FAULT, NOT_UNDERSTOOD, TOO_MANY, UNAUTHORIZED, ending_of
from tailrace.gateway.gateway import Gateway
from tailrace.gateway.messages import json_message
from tailrace.gateway.problems import Problem
from tailrace.gateway.requests import Auth, Follow, NotARequest, Ping, Unsubscribe, read
from tailrace.gateway.subscription import Subscription
from tailrace.gateway.wire import Wire

log = logging.getLogger(__name__)

# So many messages that can't be read end a connection: its client does not speak the protocol.
MAX_MISTAKES = 10

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]


class Session:
    """Answers one client. `pause`, `resume` and `stop` come from its wire and go to every subscription."""

    def __init__(self, gateway: Gateway, wire: Wire) -> None:
        self.wire = wire
        self.subscriptions: dict[str, Subscription] = {}
        self._gateway = gateway
        self._follows: dict[str, Follow] = {}
        self._first: Follow | None = None
        self._mistakes = 0
        rate = gateway.limits.messages
        self._pace = Bucket(rate, rate * BURST, asyncio.get_running_loop().time())
        wire.session = self
        wire.stream = self

    async def run(self, receive: Receive) -> None:
        """Do what the client says until it leaves, or the connection is to end.

        The next message waits until the client has read what it was sent: answers do not pile up.
        """
        while not self.wire.closed.done():
            message = await receive()
            if message["type"] != "websocket.receive" or self.wire.closed.done():
                return
            if self._pace.take(asyncio.get_running_loop().time()) > 0:
                self.wire.finish(TOO_MANY)
                return
            try:
                await self._do(message.get("text"))
            except Exception:
                log.exception("session=failed subscriptions=%d", len(self.subscriptions))
                self.wire.finish(FAULT)
            await self.wire.writable()

    async def open(self, follow: Follow) -> None:
        """Begin to follow what the connection was made for: it ends with it, and where it can't be followed."""
        self._first = follow
        problem = await self.subscribe(follow)
        if problem is not None:
            self.wire.finish(ending_of(problem))

    async def subscribe(self, follow: Follow) -> Problem | None:
        """Begin to follow something; a client that can't is told why, which is returned."""
        id = follow.id or ""
        if id in self.subscriptions:
            # Without the id: it would end the subscription that has it.
            taken = Problem(400, "id in use", expected="an id of its own", got=id, remedy="Unsubscribe first.")
            self._refuse(taken)
            return taken
        try:
            most = self._gateway.limits.subscriptions
            if len(self.subscriptions) >= most:
                expected = f"at most {most} subscriptions"
                raise Problem(
                    400, "too many subscriptions", expected=expected, remedy="Ask for several keys in one of them."
                )
            make = await self._gateway.prepare(follow, self.wire.identity)
        except Problem as problem:
            self._refuse(problem, id)
            return problem
        if self.wire.closed.done():
            return None
        subscription = self.subscriptions[id] = make(self.wire)
        self._follows[id] = follow
        self._gateway.metrics.subscribed("ws", 1)
        self.answer("subscribed", id=id, query=getattr(subscription, "query", None))
        subscription.start()
        return None

    def drop(self, subscription: Subscription, problem: Problem) -> None:
        """End one subscription with an `error`; the others go on, unless it is what the connection was made for."""
        first = self._first is not None and self._first is self._follows.get(subscription.id or "")
        if self._remove(subscription):
            self._refuse(problem, subscription.id)
            if first:
                self.wire.finish(ending_of(problem))

    def answer(self, kind: str, **fields: object) -> None:
        """Write a message that is for this client alone."""
        message = json_message(kind, **fields)
        self._gateway.metrics.sent("answer", 1, len(message), "ws")
        self.wire.send(message)

    def pause(self) -> None:
        """The client reads too slowly."""
        for subscription in tuple(self.subscriptions.values()):
            subscription.pause()

    def resume(self) -> None:
        """The client has caught up; what it has missed may make it slow again, and then the others wait on."""
        for id in tuple(self.subscriptions):
            # Who was served goes to the end, so that those behind it have their turn the next time.
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
        self.wire.session = self.wire.stream = None

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
        elif self._gateway.access is not None and self.wire.identity is None:
            self.wire.finish(UNAUTHORIZED)
        elif isinstance(request, Ping):
            self.answer("pong")
        elif isinstance(request, Unsubscribe):
            self._unsubscribe(request.id)
        else:
            await self.subscribe(request)

    async def _authenticate(self, request: Auth) -> None:
        access, before = self._gateway.access, self.wire.identity
        if access is not None:
            try:
                self.wire.identity = await access.of_token(request.token)
            except Problem as problem:
                self._refuse(problem)
                if problem.status < 500:
                    self.wire.finish(UNAUTHORIZED)
                return
            if before is not None:
                self._review(access, before)
        self.answer("authenticated", expires=self.wire.identity.expires if self.wire.identity is not None else None)

    def _review(self, access: Access, before: Identity) -> None:
        """Look at every subscription once more: the new token may allow less, or other rows."""
        for id, subscription in tuple(self.subscriptions.items()):
            problem = access.changed(self._follows[id], before, self.wire.identity)
            if problem is not None:
                self.drop(subscription, problem)

    def _unsubscribe(self, id: str) -> None:
        subscription = self.subscriptions.get(id)
        if subscription is None:
            remedy = "It has ended, or was never there."
            self._refuse(
                Problem(400, "unknown subscription", expected="the id of a subscription", got=id, remedy=remedy)
            )
            return
        self._remove(subscription)
        self.answer("unsubscribed", id=id)

    def _remove(self, subscription: Subscription) -> bool:
        id = subscription.id or ""
        if self.subscriptions.get(id) is not subscription:
            return False
        del self.subscriptions[id], self._follows[id]
        subscription.stop()
        subscription.close()
        self._gateway.metrics.subscribed("ws", -1)
        return True

    def _refuse(self, problem: Problem, id: str | None = None) -> None:
        self.answer("error", id=id, **{**problem.body, "retry": problem.status == 429 or problem.status >= 500})

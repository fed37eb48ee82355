"""The guard: every request passes it before the application sees it.

The steps: 1 refuse a token in the URL; 2 refuse a foreign page; 3 if access is on, find out who sends the
request; 4 allow or refuse what the path asks for; 5 read the body, up to its limit; 6 let the application
answer. A stream is counted when its wire is lent. The scope's `state` holds the identity.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import cast

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.utils import ClientDisconnected

from tailrace.access.addresses import Networks, client_address
from tailrace.access.identity import Identity
from tailrace.access.origins import Origins
from tailrace.access.refused import Refused, forbidden
from tailrace.gateway.budgets import LISTING, user_of
from tailrace.gateway.connection.close_reasons import FORBIDDEN, NO_ROOM, TOO_MANY, UNAUTHORIZED
from tailrace.gateway.connection.http import EXTENSION, FLUSHED, RESERVED, WRITE_BUFFER
from tailrace.gateway.connection.wire import Wire
from tailrace.gateway.gateway import Gateway
from tailrace.gateway.guard.access import identity_of
from tailrace.gateway.guard.bodies import read_body
from tailrace.gateway.guard.credentials import header, refuse_tokens_in_urls
from tailrace.gateway.guard.presence import SHARE
from tailrace.gateway.guard.routes import (
    Asked,
    DocumentsPath,
    EventsPath,
    HealthPath,
    OperationsPath,
    RowPath,
    RowsPath,
    asked,
    is_open,
)
from tailrace.gateway.problems import Problem, check_keys, refusal

_BODIED = ("POST", "PUT", "PATCH", "DELETE")
_ENDINGS = {401: UNAUTHORIZED, 429: TOO_MANY, 503: NO_ROOM}


@dataclass(frozen=True)
class FrontDoor:
    """Which pages may come in, which proxies to believe, and what is open without a token."""

    origins: Origins = field(default_factory=Origins)
    proxies: Networks = ()
    open: frozenset[str] = frozenset()


class Guard:
    """An ASGI app in front of another."""

    def __init__(self, app: ASGIApp, gateway: Gateway, door: FrontDoor) -> None:
        self._app = app
        self._gateway = gateway
        self._door = door

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        if scope["type"] == "http":
            await self._request(scope, receive, send)
        elif scope["type"] == "websocket":
            await self._socket(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    async def _request(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request, and count it as under way until its client has read the answer."""
        holder = object()
        try:
            await self._answer(scope, receive, send, holder)
        finally:
            flushed = scope.get("extensions", {}).get(FLUSHED, _at_once)
            flushed(partial(self._gateway.budgets.answered, holder))

    async def _answer(self, scope: Scope, receive: Receive, send: Send, holder: object) -> None:
        origin = header(scope, b"origin")
        answer = send
        held: list[Wire] = []
        try:
            _check_reserve(scope)
            self._check_page(scope, origin)
            if origin is not None:
                answer = shared(send, origin, self._door.origins)
                if scope["method"] == "OPTIONS" and header(scope, b"access-control-request-method") is not None:
                    await Response(status_code=204, headers=self._door.origins.preflight(origin))(scope, receive, send)
                    return
            what = asked(scope["path"])
            identity = await self._identified(scope, what)
            if identity is not None:
                answer = private(answer)
            if not isinstance(what, HealthPath):
                user = user_of(identity)
                self._take(holder, user, what)
                if scope["method"] != "HEAD":
                    answer = self._weighed(holder, user, scope, receive, answer)
            self._count(scope, held, holder=holder)
            if scope["method"] in _BODIED and not isinstance(what, HealthPath):
                limits, timing = self._gateway.limits, self._gateway.timing
                receive = await read_body(scope, receive, limits.body_bytes, timing.request)
        except Refused as refused:
            await self._refuse(refusal(refused), scope, receive, answer)
            return
        except Problem as problem:
            await self._refuse(problem, scope, receive, answer)
            return
        try:
            await self._app(scope, receive, answer)
        finally:
            for wire in held:
                self._gateway.presence.leave(wire)

    async def _socket(self, scope: Scope, receive: Receive, send: Send) -> None:
        held = list[Wire]()
        try:
            self._check_page(scope, header(scope, b"origin"))
            scope.setdefault("state", {})["identity"] = await self._gateway.access.of_socket(scope)
            user = self._user(scope)
            self._gateway.presence.enter(user, 1 if identity_of(scope) is not None else SHARE)
        except Problem as problem:
            self._gateway.metrics.refused(problem.status)
            await _close(receive, send, problem)
            return
        except Refused as refused:
            self._gateway.metrics.refused(refused.status)
            await _close(receive, send, refusal(refused))
            return
        self._count(scope, held, user)
        try:
            await self._app(scope, receive, send)
        finally:
            if not held:
                self._gateway.presence.withdraw(user)
            for wire in held:
                self._gateway.presence.leave(wire)

    def _check_page(self, scope: Scope, origin: str | None) -> None:
        refuse_tokens_in_urls(scope)
        host = header(scope, b"host") or ""
        if not self._door.origins.knows(host):
            raise forbidden(
                "unknown host",
                "a name of this machine, such as localhost, while access is off",
                host[:200],
                f"List it: --origins http://{host[:200]}; or say that everyone may come in: --access off",
            )
        if origin is not None and not self._door.origins.allows(origin, host):
            raise forbidden(
                "foreign origin",
                "a page of this gateway, or one that it lists",
                origin[:200],
                f"List it: --origins {origin[:200]}",
            )

    def _take(self, holder: object, user: str, what: Asked) -> None:
        """Count a request. Raises a Problem if its user asks for too much, or too often."""
        weight, budgets = LISTING if isinstance(what, RowsPath) else 1, self._gateway.budgets
        if isinstance(what, RowPath | RowsPath):
            budgets.pace(user, weight)
        budgets.requests.hold(holder, user, weight)

    def _weighed(self, holder: object, user: str, scope: Scope, receive: Receive, send: Send) -> Send:
        def hold(size: int) -> None:
            self._gateway.budgets.unread.hold(holder, user, size)

        async def refuse(problem: Problem) -> None:
            await self._refuse(problem, scope, receive, send)

        return weighed(send, hold, refuse)

    async def _identified(self, scope: Scope, what: Asked) -> Identity | None:
        access = self._gateway.access
        if isinstance(what, RowPath):
            check_keys(self._gateway.limits, [what.key])
        if not access.on or is_open(scope["path"], self._door.open):
            return None
        if isinstance(what, DocumentsPath) and what.general:
            identity = await access.of_socket(scope)
        else:
            identity = await access.of_request(scope)
        scope.setdefault("state", {})["identity"] = identity
        match what:
            case RowPath(view, key):
                access.may_know(identity, "view", view)
                if view in self._gateway.known.views:
                    access.may_ask(identity, view, [key.encode()])
            case RowsPath(view):
                access.may_know(identity, "view", view)
            case EventsPath(topic):
                access.may_send(identity, topic)
            case OperationsPath():
                access.may_operate(identity)
        return identity

    def _user(self, scope: Scope) -> str:
        if not self._gateway.access.on:
            return ""
        identity = identity_of(scope)
        if identity is not None:
            return user_of(identity)
        peer = (scope.get("client") or ("",))[0]
        return "address:" + client_address(peer, header(scope, b"x-forwarded-for") or "", self._door.proxies)

    def _count(self, scope: Scope, held: list[Wire], entered: str | None = None, holder: object | None = None) -> None:
        """Count the connection when its wire is lent, before any of the answer is sent.

        From then on it no longer counts as a request.
        """
        lender = scope.get("extensions", {}).get(EXTENSION)
        if lender is None:
            return
        presence = self._gateway.presence

        async def lend(start: Callable[[], Awaitable[None]]) -> Wire:
            user = self._user(scope) if entered is None else entered
            if entered is None:
                try:
                    presence.enter(user)
                except Refused as refused:
                    self._gateway.metrics.refused(refused.status)
                    raise refusal(refused) from None
            try:
                wire = cast(Wire, await lender(start))
            except BaseException:
                if entered is None:
                    presence.withdraw(user)
                raise
            presence.bind(user, wire)
            self._gateway.budgets.requests.release(holder)
            held.append(wire)
            return wire

        scope["extensions"] = {**scope["extensions"], EXTENSION: lend}

    async def _refuse(self, problem: Problem, scope: Scope, receive: Receive, send: Send) -> None:
        self._gateway.metrics.refused(problem.status)
        await problem.response()(scope, receive, send)


async def _close(receive: Receive, send: Send, problem: Problem) -> None:
    """Tell a WebSocket why it ends: a browser shows the page a close code, but not the status of a handshake."""
    ending = _ENDINGS.get(problem.status, FORBIDDEN)
    await receive()
    with suppress(ClientDisconnected):
        await send({"type": "websocket.accept"})
        await send({"type": "websocket.close", "code": ending.code, "reason": str(problem)[:100]})


def _at_once(done: Callable[[], None]) -> None:
    done()


def _check_reserve(scope: Scope) -> None:
    """Raise Refused for a request on one of the reserved connections, unless it asks for health."""
    if scope.get("state", {}).get(RESERVED) and not scope["path"].startswith("/health/"):
        raise Refused(
            503,
            "no room",
            expected="fewer connections to this gateway",
            got="as many as there may be already",
            remedy="Connect again later; another gateway may have room.",
            retry_after=5,
        )


def shared(send: Send, origin: str, origins: Origins) -> Send:
    """Let the browser give the answer to an allowed page."""
    given = origins.headers(origin)

    async def answer(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in given.items():
                if name == "Vary":
                    _vary(headers, value)
                else:
                    headers[name] = value
        await send(message)

    return answer


def private(send: Send) -> Send:
    """Keep caches between gateway and client from giving one user's answer to another."""

    async def answer(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            control = headers.get("cache-control", "")
            if "no-store" not in control and "private" not in control:
                rest = [part for part in map(str.strip, control.split(",")) if part and not _shared_only(part)]
                headers["Cache-Control"] = ", ".join(["private", *rest])
            _vary(headers, "Authorization", "Cookie")
        await send(message)

    return answer


def weighed(send: Send, hold: Callable[[int], None], refuse: Callable[[Problem], Awaitable[None]]) -> Send:
    """Count an answer that its client may leave unread. If there is no room for it, refuse instead."""
    refused = False

    async def answer(message: Message) -> None:
        nonlocal refused
        if message["type"] == "http.response.start":
            length = int(Headers(raw=message["headers"]).get("content-length", "0"))
            if length > WRITE_BUFFER:
                try:
                    hold(length)
                except Problem as problem:
                    refused = True
                    await refuse(problem)
        if not refused:
            await send(message)

    return answer


def _vary(headers: MutableHeaders, *names: str) -> None:
    held = [part.strip() for part in headers.get("vary", "").split(",") if part.strip()]
    headers["Vary"] = ", ".join(dict.fromkeys([*held, *names]))


def _shared_only(directive: str) -> bool:
    return directive.split("=")[0] in ("public", "s-maxage", "proxy-revalidate")

"""Headers that the guard adds to answers on their way out; the bodies of streams do not pass here."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import Message, Send

from tailrace.access.origins import Origins
from tailrace.gateway.connection.http import WRITE_BUFFER
from tailrace.gateway.problems import Problem


def shared(send: Send, origin: str, origins: Origins) -> Send:
    """Let the browser hand the answer to an allowed page."""
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
    """Have an answer counted that a client may leave unread; one that there is no room for is refused instead."""
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

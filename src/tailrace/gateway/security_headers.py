"""Headers that tell a browser what an answer may do: nothing, unless a page of ours says what it needs."""

from __future__ import annotations

from urllib.parse import urlsplit

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tailrace.access.addresses import is_loopback

POLICY = "Content-Security-Policy"
_CLOSED = "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
# Of a page whose scripts, styles and requests are all the gateway's own. Its styles may hold images.
OWN_PAGE = (
    f"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; {_CLOSED}"
)
# Of every answer that does not say otherwise. A path holds keys, so no other site learns where a link to it stood.
EVERYWHERE = (
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"same-origin"),
    (POLICY.lower().encode(), f"default-src 'none'; {_CLOSED}".encode()),
)
# For a year, and for this host alone: what its subdomains speak is not the gateway's to say.
_TLS_FROM_NOW_ON = (b"strict-transport-security", b"max-age=31536000")


class Protected:
    """An ASGI app whose answers have the headers; those that the app sets itself stay as they are.

    Over TLS, browsers are told to ask this host with TLS from now on. They would do so for every port of the host, so
    that clients that ask by a name of their own machine are not told: other servers there speak HTTP.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on."""
        await self._app(scope, receive, _protecting(scope, send) if scope["type"] == "http" else send)


def _protecting(scope: Scope, send: Send) -> Send:
    added = (*EVERYWHERE, _TLS_FROM_NOW_ON) if scope["scheme"] == "https" and not _is_local(scope) else EVERYWHERE

    async def answer(message: Message) -> None:
        if message["type"] == "http.response.start":
            held = list(message.get("headers", ()))
            names = {name.lower() for name, _ in held}
            message["headers"] = held + [one for one in added if one[0] not in names]
        await send(message)

    return answer


def _is_local(scope: Scope) -> bool:
    host = next((value.decode("latin-1") for name, value in scope["headers"] if name == b"host"), "")
    try:
        return is_loopback(urlsplit("//" + host).hostname or "")
    except ValueError:
        return False

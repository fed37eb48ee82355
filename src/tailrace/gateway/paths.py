"""Keys in paths: any text, percent-encoded as one segment.

Servers decode the path before routing, and then `%2F` in a key looks like a slash. So routes match the path as it
was sent, and each segment is decoded here, once.
"""

from __future__ import annotations

import re
from urllib.parse import unquote_to_bytes

from starlette.convertors import StringConvertor, register_url_convertor
from starlette.types import ASGIApp, Receive, Scope, Send

from tailrace.gateway.problems import Problem

_STRAY_PERCENT = re.compile(r"%(?![0-9A-Fa-f]{2})")


class _Segment(StringConvertor):
    """One path segment, which may be empty: a key can be the empty text."""

    regex = "[^/]*"


register_url_convertor("segment", _Segment())


class RawPaths:
    """An ASGI app that routes on the path as it was sent."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on with its path undecoded."""
        if scope["type"] in ("http", "websocket"):
            scope["path"] = scope["raw_path"].decode("latin-1")
        await self._app(scope, receive, send)


def decoded(segment: str, what: str) -> str:
    """Decode a path segment. Raises a 400 Problem if it is not percent-encoded UTF-8."""
    if _STRAY_PERCENT.search(segment):
        raise Problem(
            400,
            f"unreadable {what}",
            expected="UTF-8 text, percent-encoded",
            got=segment[:200],
            remedy="Write a percent sign as %25.",
        )
    try:
        return unquote_to_bytes(segment).decode()
    except UnicodeDecodeError:
        raise Problem(
            400,
            f"unreadable {what}",
            expected="UTF-8 text, percent-encoded",
            got=segment[:200],
            remedy="Encode the text as UTF-8 first, then percent-encode its bytes.",
        ) from None

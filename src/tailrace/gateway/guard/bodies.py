"""Bodies of requests: read before the application sees them, up to a size and within a time."""

from __future__ import annotations

import asyncio

from starlette.types import Message, Receive, Scope

from tailrace.access.refused import Refused
from tailrace.gateway.guard.credentials import header


async def read_body(scope: Scope, receive: Receive, most: int, seconds: float) -> Receive:
    """Read the whole body, for the application to receive.

    Raises Refused if it is longer than `most` bytes, or has not come within so many seconds.
    """
    length = header(scope, b"content-length")
    if length is not None and length.isdigit() and int(length) > most:
        raise _too_long(most, length)
    body = bytearray()
    try:
        async with asyncio.timeout(seconds):
            while True:
                message = await receive()
                if message["type"] != "http.request":
                    break
                body += message.get("body", b"")
                if len(body) > most:
                    raise _too_long(most, f"more than {most}")
                if not message.get("more_body", False):
                    break
    except TimeoutError:
        raise Refused(
            408,
            "body too slow",
            expected=f"the body within {seconds:g} s",
            got="a part of it",
            remedy="Try again; the gateway's --request-deadline sets the limit.",
        ) from None
    given = False

    async def replay() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": bytes(body), "more_body": False}

    return replay


def _too_long(most: int, got: str) -> Refused:
    return Refused(
        413,
        "body too long",
        expected=f"a body of at most {most} bytes",
        got=f"{got} bytes",
        remedy="Send less at once; the gateway's --limit-body-bytes sets the limit.",
    )

"""Requests that wait: the header `Prefer: wait=N` (RFC 7240), and what ends the wait early."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from tailrace.access.identity import Identity
from tailrace.gateway.guard.access import Access
from tailrace.gateway.live.waits import LONGEST

T = TypeVar("T")

_WAIT = re.compile(r'\s*wait\s*=\s*"?(\d{1,9})"?\s*(?:;.*)?', re.ASCII | re.IGNORECASE)


def wait_seconds(prefer: str | None) -> int | None:
    """For how many seconds the client is ready to wait; None if it does not say. The first preference counts."""
    for preference in (prefer or "").split(","):
        if (found := _WAIT.fullmatch(preference)) is not None:
            return min(int(found[1]), int(LONGEST))
    return None


class ClientGone(Exception):
    """The client has left: there is no one to read the answer."""


async def while_connected(receive: Callable[[], Awaitable[Any]], work: Coroutine[Any, Any, T]) -> T:
    """Do something for a client. If it disconnects, stop and raise ClientGone. `receive` is that of ASGI."""
    found = await _unless(_disconnected(receive), work)
    if found is None:
        raise ClientGone
    return found.result()


async def while_valid(access: Access, identity: Identity | None, work: Coroutine[Any, Any, T]) -> T:
    """Do something for a client while its token counts. If the token is over or revoked, raise a Problem.

    The token is checked again before the answer: other requests may have delayed this one, or the clock was set.
    """
    if identity is None:
        return await work
    found = await _unless(access.lapse(identity), work)
    access.check(identity)
    if found is None:
        raise TimeoutError("the token has lapsed, and counts again: the clock was set")
    return found.result()


async def _unless(event: Coroutine[Any, Any, None], work: Coroutine[Any, Any, T]) -> asyncio.Task[T] | None:
    """Do something. If an event comes before it is done, stop and return None. Nothing is left running."""
    task, come = asyncio.create_task(work), asyncio.create_task(event)
    try:
        await asyncio.wait((task, come), return_when=asyncio.FIRST_COMPLETED)
        return task if task.done() else None
    finally:
        for one in (task, come):
            one.cancel()
        await asyncio.gather(task, come, return_exceptions=True)


async def _disconnected(receive: Callable[[], Awaitable[Any]]) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass

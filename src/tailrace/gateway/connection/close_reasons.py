"""Why a connection ends: a `close` frame says it over Server-Sent Events, a close code on a WebSocket."""

from __future__ import annotations

from dataclasses import dataclass

from tailrace.gateway.problems import Problem


@dataclass(frozen=True, slots=True)
class Ending:
    """A reason, what to do about it, the close code of a WebSocket, and whether the client may connect again."""

    reason: str
    message: str
    code: int
    retry: bool


SHUTDOWN = Ending("shutdown", "the gateway shuts down: connect again", 1001, True)
FAULT = Ending("fault", "the gateway has failed: connect again, with the last position", 1011, True)
NO_ROOM = Ending("no room", "the gateway has no room: connect again later", 1013, True)
NOT_UNDERSTOOD = Ending("not understood", "too many messages that can't be read: see docs/protocol.md", 4400, False)
UNAUTHORIZED = Ending("unauthorized", "the token is missing, or not valid any more: connect with another", 4401, True)
FORBIDDEN = Ending("forbidden", "this is not allowed", 4403, False)
SLOW = Ending("slow", "too little was read for too long: connect again, with the last position", 4408, True)
SILENT = Ending("silent", "no answer to a ping: connect again, with the last position", 1011, True)
TOO_MANY = Ending("too many", "too many connections or messages: connect again later", 4429, True)
GONE = Ending("gone", "what was followed is no more", 1000, False)


_BY_STATUS = {401: UNAUTHORIZED, 403: FORBIDDEN, 429: TOO_MANY}


def ending_of(problem: Problem) -> Ending:
    """Why a connection ends if a problem keeps it from following what it was made for."""
    if problem.status == 503 and "limit" in problem.body:
        return NO_ROOM
    return _BY_STATUS.get(problem.status, GONE if problem.status < 500 else FAULT)

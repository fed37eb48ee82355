"""Errors that a client can get in several places: JSON that says what was expected, what came, and what to do."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import cast

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from tailrace.access.limits import Limits
from tailrace.access.refused import Refused

log = logging.getLogger(__name__)

RETRY_AFTER = {"Retry-After": "1"}
# Clients are not told where Kafka is, as whom this gateway asks it, and which file says so.
NO_KAFKA = "no answer that can be used: the gateway's log and health say why"
# How many mistakes of a request an answer names, and how many characters of the place of each.
_MOST_NAMED, _LONGEST_PLACE = 10, 200


class Problem(Exception):
    """An answer that is an error. A 503 means that nothing is wrong with the request: ask again."""

    def __init__(self, status: int, error: str, *, headers: Mapping[str, str] | None = None, **fields: object) -> None:
        super().__init__(error)
        self.status = status
        self.headers = {"Cache-Control": "no-store", **(headers or {})}
        self.body = {"error": error, **fields}

    def response(self) -> Response:
        return JSONResponse(self.body, self.status, self.headers)


def refusal(refused: Refused) -> Problem:
    """The answer to what access or a limit refuses."""
    headers = {} if refused.retry_after is None else {"Retry-After": str(refused.retry_after)}
    if refused.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    fields = {name: value for name, value in refused.fields.items() if name != "error"}
    return Problem(refused.status, refused.error, headers=headers, **fields)


def check_keys(limits: Limits, keys: Sequence[str]) -> None:
    """Raise a Problem if a client asks for too many keys at once, or for one that is too long."""
    try:
        limits.check_keys(len(keys), max((len(key.encode()) for key in keys), default=0))
    except Refused as refused:
        raise refusal(refused) from None


def unavailable(error: str, remedy: str, **fields: object) -> Problem:
    """A 503: the answer is not known now."""
    return Problem(503, error, headers=RETRY_AFTER, remedy=remedy, **fields)


def kafka_away(error: Exception, **fields: object) -> Problem:
    """A 503: Kafka does not answer, or refuses this gateway."""
    log.debug("kafka=unavailable error=%r", str(error))
    return unavailable(
        "Kafka is unavailable", "Ask again in a moment; if it lasts, see whether Kafka runs.", got=NO_KAFKA, **fields
    )


def redis_away(error: Exception) -> Problem:
    """A 503: Redis does not answer."""
    return unavailable(
        "Redis is unavailable", "Ask again in a moment; if it lasts, see whether Redis runs.", got=str(error)[:200]
    )


def being_restored(view: str, offset: int | None, target: int | None) -> Problem:
    """A 503: the partition is not whole; the store holds it up to `offset`, and must reach `target`."""
    remedy = "Ask again in a moment; if it lasts, see whether the materializer runs."
    return unavailable("being restored", remedy, view=view, offset=offset, target=target)


def shutting_down(remedy: str = "Connect again: another gateway answers, or this one when it is back.") -> Problem:
    """A 503: the gateway accepts nothing more."""
    return unavailable("shutting down", remedy)


def no_catalog(problem: str | None) -> Problem:
    """A 503: the gateway has no catalog yet; `problem` says why, if that is known."""
    return unavailable(
        "no catalog yet",
        "Ask again in a moment; if it lasts, see whether Redis, the pipeline and the materializer run.",
        expected="the catalog of the app in Redis",
        got=problem or "none",
    )


def unknown_view(name: str, expected: Sequence[str] = ()) -> Problem:
    """A 404: the catalog has no such view; `expected` are those that the client may know of."""
    return Problem(
        404,
        "unknown view",
        view=name,
        expected=sorted(expected),
        remedy="Take one of the expected views, or declare this one and start the pipeline.",
    )


def unknown_feed(name: str, expected: Sequence[str] = ()) -> Problem:
    """A 404: the catalog has no such feed; `expected` are those that the client may know of."""
    return Problem(
        404,
        "unknown feed",
        feed=name,
        expected=sorted(expected),
        remedy="Take one of the expected feeds, or declare this one and start the pipeline.",
    )


def answer_in_json(
    app: FastAPI,
    paths: str = "/views/{view}/{key} or another path of /openapi.json",
    remedy: str = "See /docs. A slash inside a key is written as %2F.",
) -> None:
    """Make every error of an app a JSON body. `paths` and `remedy` are told to clients that ask for another path."""

    async def problem(_: Request, error: Exception) -> Response:
        return cast(Problem, error).response()

    async def http(request: Request, error: Exception) -> Response:
        found = cast(HTTPException, error)
        if found.status_code == 404:
            return Problem(
                404,
                "unknown path",
                path=request.url.path,
                expected=paths,
                remedy=remedy,
            ).response()
        if found.status_code == 405:
            return Problem(
                405,
                "method not allowed",
                headers=found.headers,
                got=request.method,
                expected=(found.headers or {}).get("Allow", "GET"),
                remedy="See /docs.",
            ).response()
        if found.status_code == 400:
            return Problem(
                400,
                "unreadable body",
                expected="JSON, encoded as UTF-8",
                got=str(found.detail),
                remedy="Send what /docs shows for this path.",
            ).response()
        return Problem(found.status_code, str(found.detail), headers=found.headers).response()

    async def invalid(_: Request, error: Exception) -> Response:
        found = cast(RequestValidationError, error).errors()
        details = [{"where": _printable(one["loc"]), "expected": one["msg"]} for one in found[:_MOST_NAMED]]
        return Problem(
            422,
            "invalid request",
            expected="a body and parameters as /docs shows them",
            got=f"{len(found)} mistakes",
            problems=details,
            remedy="Correct what `problems` names; see /docs.",
        ).response()

    async def failed(request: Request, error: Exception) -> Response:
        log.error("request=failed method=%s path=%r error=%r", request.method, request.url.path[:200], error)
        return Problem(
            500,
            "internal error",
            remedy="Read the gateway's log, and please report it with the traceback you find there.",
        ).response()

    app.add_exception_handler(Problem, problem)
    app.add_exception_handler(HTTPException, http)
    app.add_exception_handler(RequestValidationError, invalid)
    app.add_exception_handler(Exception, failed)


def _printable(place: Sequence[object]) -> str:
    """The place of a mistake. The client may have named the field, with half a surrogate pair, which UTF-8 lacks."""
    return ".".join(map(str, place))[:_LONGEST_PLACE].encode(errors="replace").decode()

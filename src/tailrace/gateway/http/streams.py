"""The control API: streams that a client opens, connects to, begins, changes and ends, each step on any gateway."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Annotated

from fastapi import APIRouter, Path, Request, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field
from starlette.routing import BaseRoute, WebSocketRoute
from starlette.websockets import WebSocket

from tailrace.access.limits import Limits
from tailrace.contracts.commands import TTL, Stream
from tailrace.gateway.admission import cost_of, encoded, stream_query, with_redis
from tailrace.gateway.apidocs import examples
from tailrace.gateway.budgets import user_of
from tailrace.gateway.gateway import Gateway
from tailrace.gateway.guard.access import identity_of
from tailrace.gateway.http.event_stream import LastId, LastIdHeader, event_stream
from tailrace.gateway.http.websocket import serve
from tailrace.gateway.live.requests import FollowStream, Text
from tailrace.gateway.problems import Problem, check_keys

LONGEST_TTL = 86_400

Id = Annotated[str, Path(description="The id of a stream, as `POST /streams` gave it.", max_length=100)]


class NewStream(BaseModel):
    """What a stream follows: some keys of a view, a query or, without both, the whole view."""

    model_config = ConfigDict(extra="forbid", strict=True)
    view: Text = Field(description="The name of a view.", examples=["rating-averages"])
    keys: list[Text] | None = Field(None, description="The keys to follow.", examples=[["362", "71"]])
    where: Text | None = Field(None, description="A query: the text after SQL's WHERE.", examples=["rating > 8"])
    ttl: int = Field(TTL, ge=5, le=LONGEST_TTL, description="Seconds that it is kept while nobody is connected.")


class Changes(BaseModel):
    """Keys to add to a stream, and keys to remove."""

    model_config = ConfigDict(extra="forbid", strict=True)
    add: list[Text] = Field(default_factory=list)
    remove: list[Text] = Field(default_factory=list)


class StreamShown(BaseModel):
    """A stream. `expires` is when it ends unless a client uses it, in ms since 1970."""

    id: str
    view: str
    keys: list[str] | None
    where: str | None
    begun: bool
    ttl: int
    expires: int
    events: str = Field(description="The path of its Server-Sent Events.")
    ws: str = Field(description="The path of its WebSocket.")


def sockets(gateway: Gateway) -> list[BaseRoute]:
    """The WebSocket route of a stream: a connection is subscribed to the stream from the start, under its id."""

    async def endpoint(websocket: WebSocket) -> None:
        id = websocket.path_params["id"]
        await serve(gateway, websocket, FollowStream(id, id, websocket.query_params.get("position")))

    return [WebSocketRoute("/streams/{id}/ws", endpoint)]


def router(gateway: Gateway) -> APIRouter:
    routes = APIRouter(tags=["streams"], responses=examples.STREAMS)
    directory = gateway.directory

    @routes.post("/streams", summary="Open a stream", status_code=201, response_model=StreamShown)
    async def open_stream(request: Request, new: NewStream) -> Response:
        """Say what to follow. Then connect to `events` or `ws`, and ask for the snapshot with `begin`."""
        if new.keys is not None and new.where is not None:
            raise Problem(400, "keys and where", expected="keys or where", got="both", remedy="Leave one out.")
        keys = None if new.keys is None else tuple(dict.fromkeys(new.keys))
        check_keys(gateway.limits, keys or ())
        stream = Stream("", new.view, keys, new.where, begun=False, expires=0, ttl=new.ttl)
        identity = identity_of(request.scope)
        cost = cost_of(await stream_query(gateway, stream, identity))
        opened = directory.open(new.view, keys, new.where, new.ttl, user_of(identity), cost)
        return _shown(await with_redis(opened), 201)

    @routes.get("/streams/{id}", summary="Show a stream", response_model=StreamShown)
    async def show_stream(request: Request, id: Id) -> Response:
        """What a stream follows, whether it has begun, and when it ends unless a client uses it."""
        return _shown(await _allowed(gateway, request, id))

    @routes.post("/streams/{id}/begin", summary="Ask for the snapshot of a stream", response_model=StreamShown)
    async def begin_stream(request: Request, id: Id) -> Response:
        """The stream's connections get the rows, `ready`, then updates. Asking again changes nothing."""
        await _allowed(gateway, request, id)
        user = user_of(identity_of(request.scope))
        begun = directory.change(id, "begin", lambda stream: replace(stream, begun=True), user)
        return _shown(await with_redis(begun))

    @routes.patch("/streams/{id}", summary="Add and remove keys of a stream", response_model=StreamShown)
    async def change_stream(request: Request, id: Id, changes: Changes) -> Response:
        """Once the stream has begun, its connections get the rows of added keys, and `gone` for removed keys."""
        before, identity = await _allowed(gateway, request, id), identity_of(request.scope)
        gateway.access.may_follow_keys(identity, before.view, encoded(changes.add))
        command = "remove" if changes.remove and not changes.add else "add"
        change = partial(changed, changes=changes, limits=gateway.limits)
        return _shown(await with_redis(directory.change(id, command, change, user_of(identity))))

    @routes.delete("/streams/{id}", summary="End a stream", status_code=204, response_class=Response)
    async def end_stream(request: Request, id: Id) -> Response:
        """The stream's connections get `close` with the reason `gone`."""
        await _allowed(gateway, request, id)
        await with_redis(directory.end(id))
        return Response(status_code=204, headers={"Cache-Control": "no-store"})

    @routes.get("/streams/{id}/events", summary="Connect to a stream", response_class=Response, response_model=None)
    async def follow_events(
        request: Request, id: Id, last_event_id: LastId = None, last_event_id_header: LastIdHeader = None
    ) -> Response:
        """The Server-Sent Events of a stream. Nothing comes before the stream has begun."""
        follow = FollowStream(None, id, last_event_id_header or last_event_id)
        return await event_stream(gateway, request, follow)

    routes.add_api_route(
        "/streams/{id}/events", follow_events, methods=["HEAD"], include_in_schema=False, response_model=None
    )
    return routes


def changed(stream: Stream, changes: Changes, limits: Limits) -> Stream:
    """A stream with keys added and removed; a key in both is removed.

    Raises a Problem if it is not a stream of keys, or gets more keys than one subscription may have.
    """
    if stream.keys is None:
        raise Problem(
            400,
            "not a stream of keys",
            expected="a stream that was opened with keys",
            got="a query" if stream.where is not None else "a whole view",
            remedy="Open another stream with the query that you want.",
        )
    removed = set(changes.remove)
    keys = tuple(key for key in dict.fromkeys((*stream.keys, *changes.add)) if key not in removed)
    if len(keys) > len(stream.keys):
        check_keys(limits, keys)
    return replace(stream, keys=keys, changes=stream.changes.then(stream.keys, keys))


async def _allowed(gateway: Gateway, request: Request, id: str) -> Stream:
    """A stream that the client may follow. Raises a Problem for any other: even what is in it is confidential."""
    stream = await with_redis(gateway.directory.get(id))
    if gateway.access.on:
        await stream_query(gateway, stream, identity_of(request.scope))
    return stream


def _shown(stream: Stream, status: int = 200) -> Response:
    path = f"/streams/{stream.id}"
    shown = StreamShown(
        id=stream.id,
        view=stream.view,
        keys=None if stream.keys is None else list(stream.keys),
        where=stream.where,
        begun=stream.begun,
        ttl=stream.ttl,
        expires=stream.expires,
        events=f"{path}/events",
        ws=f"{path}/ws",
    )
    return JSONResponse(shown.model_dump(), status, {"Cache-Control": "no-store"})

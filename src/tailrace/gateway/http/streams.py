"""The control API: streams that a client opens, connects to, begins, changes and ends, each step on any gateway."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Path, Request, Response
from fastapi.responses import JSONResponse
from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from starlette.routing import BaseRoute, WebSocketRoute
from starlette.websockets import WebSocket

from tailrace.access.limits import Limits
from tailrace.contracts.commands import TTL, Stream
from tailrace.contracts.typed import is_utf8
from tailrace.gateway.apidocs import examples
from tailrace.gateway.connection.wire import Wire
from tailrace.gateway.gateway import Gateway
from tailrace.gateway.guard.access import Identity, identity_of
from tailrace.gateway.guard.budgets import name_of
from tailrace.gateway.http.follow import LastId, LastIdHeader, event_stream
from tailrace.gateway.http.follow_query import prepare_query
from tailrace.gateway.http.sockets import serve
from tailrace.gateway.http.views import known_view
from tailrace.gateway.live.keys.subscription import KeySubscription
from tailrace.gateway.live.positions import OTHER_RIGHTS
from tailrace.gateway.live.requests import FollowQuery, FollowStream
from tailrace.gateway.live.streams.position import stream_entry
from tailrace.gateway.live.streams.subscription import Inner, StreamSubscription, follows
from tailrace.gateway.live.subscription import Subscription
from tailrace.gateway.problems import Problem, check_keys, unavailable
from tailrace.store.read.reader import Unavailable

LONGEST_TTL = 86_400

Id = Annotated[str, Path(description="The id of a stream, as `POST /streams` gave it.", max_length=100)]


def _utf8(text: str) -> str:
    if not is_utf8(text):
        raise ValueError("expected text, got half a surrogate pair in it")
    return text


Text = Annotated[str, AfterValidator(_utf8)]


class NewStream(BaseModel):
    """What a stream follows: some keys of a view, a query, or the whole view where neither is given."""

    model_config = ConfigDict(extra="forbid", strict=True)
    view: Text = Field(description="The name of a view.", examples=["rating-averages"])
    keys: list[Text] | None = Field(None, description="The keys to follow.", examples=[["362", "71"]])
    where: Text | None = Field(None, description="A query: the text after SQL's WHERE.", examples=["rating > 8"])
    ttl: int = Field(TTL, ge=5, le=LONGEST_TTL, description="Seconds that it is kept while nobody is connected.")


class Changes(BaseModel):
    """Keys that a stream is to follow from now on, and keys that it is not."""

    model_config = ConfigDict(extra="forbid", strict=True)
    add: list[Text] = Field(default_factory=list)
    remove: list[Text] = Field(default_factory=list)


class StreamShown(BaseModel):
    """A stream. `expires` is when it ends unless somebody uses it, in ms since 1970."""

    id: str
    view: str
    keys: list[str] | None
    where: str | None
    begun: bool
    ttl: int
    expires: int
    events: str = Field(description="The path of its Server-Sent Events.")
    ws: str = Field(description="The path of its WebSocket.")


def register(gateway: Gateway) -> None:
    """Let clients follow streams."""

    async def make(stream: Stream, wire: Wire, follow: FollowStream) -> Inner:
        asked, identity = follows(stream, follow), wire.identity
        if gateway.access is not None and not await gateway.access.resumable(identity, asked):
            asked = follows(stream, replace(follow, position=OTHER_RIGHTS, positions={}))
        if isinstance(asked, FollowQuery):
            return (await prepare_query(gateway, asked, identity))(wire)
        view, keys = known_view(gateway, stream.view, identity), [key.encode() for key in asked.keys]
        _check_keys(gateway, identity, stream.view, asked.keys)
        come = stream_entry(stream, asked.position, asked.positions)
        return KeySubscription(
            gateway.joining,
            wire,
            view,
            keys,
            id=asked.id,
            position=asked.position,
            positions=come.positions,
            departed=_told(gateway, identity, stream.view, come.departed),
            reset=come.reset,
            growing=True,
        )

    async def follow_stream(follow: FollowStream, identity: Identity | None) -> Callable[[Wire], Subscription]:
        stream = await _asked(lambda: gateway.kept_streams.get(follow.stream, keep=True))
        # Another gateway may have opened it, and have other limits.
        check_keys(gateway.limits, stream.keys or ())
        query = await _check(gateway, identity, stream)
        afford = await gateway.afford(follows(stream, follow), identity)

        def made(wire: Wire) -> Subscription:
            return afford(StreamSubscription(gateway.held_streams, wire, follow, stream, query, make))

        return made

    gateway.followers[FollowStream] = follow_stream


def sockets(gateway: Gateway) -> list[BaseRoute]:
    """The WebSocket of a stream: subscribed to it from the start, under its id."""

    async def endpoint(websocket: WebSocket) -> None:
        id = websocket.path_params["id"]
        await serve(gateway, websocket, FollowStream(id, id, websocket.query_params.get("position")))

    return [WebSocketRoute("/streams/{id}/ws", endpoint)]


def router(gateway: Gateway) -> APIRouter:
    """The routes of streams."""
    routes = APIRouter(tags=["streams"], responses=examples.STREAMS)
    kept = gateway.kept_streams

    @routes.post("/streams", summary="Open a stream", status_code=201, response_model=StreamShown)
    async def open_stream(request: Request, new: NewStream) -> Response:
        """Say what is to be followed; connect to `events` or `ws`, then ask for the snapshot with `begin`."""
        if new.keys is not None and new.where is not None:
            raise Problem(400, "keys and where", expected="keys or where", got="both", remedy="Leave one out.")
        keys = None if new.keys is None else tuple(dict.fromkeys(new.keys))
        check_keys(gateway.limits, keys or ())
        stream = Stream("", new.view, keys, new.where, begun=False, expires=0, ttl=new.ttl)
        await _check(gateway, identity_of(request.scope), stream)
        cost = 0 if keys is not None else await gateway.cost(new.view, new.where, identity_of(request.scope))
        user = name_of(identity_of(request.scope))
        return _shown(await _asked(lambda: kept.open(new.view, keys, new.where, new.ttl, user, cost)), 201)

    @routes.get("/streams/{id}", summary="Show a stream", response_model=StreamShown)
    async def show_stream(request: Request, id: Id) -> Response:
        """What a stream follows, whether it has begun, and when it ends unless somebody uses it."""
        return _shown(await _allowed(gateway, request, id))

    @routes.post("/streams/{id}/begin", summary="Ask for the snapshot of a stream", response_model=StreamShown)
    async def begin_stream(request: Request, id: Id) -> Response:
        """Its connections get the rows, `ready`, then updates. Asking again changes nothing."""
        await _allowed(gateway, request, id)
        user = name_of(identity_of(request.scope))
        return _shown(await _asked(lambda: kept.change(id, "begin", lambda stream: replace(stream, begun=True), user)))

    @routes.patch("/streams/{id}", summary="Add and remove keys of a stream", response_model=StreamShown)
    async def change_stream(request: Request, id: Id, changes: Changes) -> Response:
        """The rows of added keys come while the stream is live; removed ones get `gone`."""
        before = await _allowed(gateway, request, id)
        _check_keys(gateway, identity_of(request.scope), before.view, changes.add)
        command = "remove" if changes.remove and not changes.add else "add"
        change = partial(changed, changes=changes, limits=gateway.limits)
        user = name_of(identity_of(request.scope))
        return _shown(await _asked(lambda: kept.change(id, command, change, user)))

    @routes.delete("/streams/{id}", summary="End a stream", status_code=204, response_class=Response)
    async def end_stream(request: Request, id: Id) -> Response:
        """Its connections get `close` with `gone`."""
        await _allowed(gateway, request, id)
        await _asked(lambda: kept.end(id))
        return Response(status_code=204, headers={"Cache-Control": "no-store"})

    @routes.get("/streams/{id}/events", summary="Connect to a stream", response_class=Response, response_model=None)
    async def follow_events(
        request: Request, id: Id, last_event_id: LastId = None, last_event_id_header: LastIdHeader = None
    ) -> Response:
        """Server-Sent Events of a stream; nothing comes before it has begun."""
        follow = FollowStream(None, id, last_event_id_header or last_event_id)
        return await event_stream(gateway, request, follow)

    routes.add_api_route(
        "/streams/{id}/events", follow_events, methods=["HEAD"], include_in_schema=False, response_model=None
    )
    return routes


def changed(stream: Stream, changes: Changes, limits: Limits) -> Stream:
    """A stream with keys added and removed; a key in both is removed.

    Raises a Problem if it is not about keys, or gets more of them than one subscription may have.
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
    """A stream that the client may follow; raises a Problem for any other: what it follows tells something, too."""
    stream: Stream = await _asked(lambda: gateway.kept_streams.get(id))
    if gateway.access is not None:
        await _check(gateway, identity_of(request.scope), stream)
    return stream


async def _check(gateway: Gateway, identity: Identity | None, stream: Stream) -> str | None:
    """Raise a Problem where a client may not follow a stream, or can't; returns what its query is named by."""
    view = known_view(gateway, stream.view, identity)
    if stream.keys is not None:
        _check_keys(gateway, identity, stream.view, stream.keys)
        return None
    filter = None if gateway.access is None else gateway.access.query_filter(identity, stream.view)
    _, predicate = await gateway.predicates.parse(view, stream.where, filter)
    return predicate.digest


def _check_keys(gateway: Gateway, identity: Identity | None, view: str, keys: Sequence[str]) -> None:
    if gateway.access is not None:
        gateway.access.may_follow_keys(identity, view, [key.encode() for key in keys])


def _told(gateway: Gateway, identity: Identity | None, view: str, keys: Iterable[bytes]) -> list[bytes]:
    """Those of some keys that the client may know of; what a stream had before may be more than it has now."""
    return [key for key in keys if gateway.access is None or gateway.access.allows_key(identity, view, key)]


async def _asked(what: Callable[[], Any]) -> Any:
    try:
        return await what()
    except Unavailable as error:
        raise unavailable(
            "Redis is unavailable", "Ask again in a moment; if it lasts, see whether Redis runs.", got=str(error)[:200]
        ) from None


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

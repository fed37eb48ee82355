"""What a client says on a WebSocket, read without I/O: a typed request, or an error that says what was expected."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tailrace.contracts.typed import is_utf8
from tailrace.gateway.problems import Problem

MAX_ID = 64
_SEE = "See docs/protocol.md, or the gateway's /asyncapi.json."


# What is followed; `id` is the client's name for it on a WebSocket, and None over Server-Sent Events.


@dataclass(frozen=True, slots=True)
class FollowKeys:
    """Follow some keys of a view; `positions` has the positions of some keys, `position` is for all others."""

    id: str | None
    view: str
    keys: tuple[str, ...]
    position: str | None = None
    positions: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class FollowQuery:
    """Follow a query over a view, or the whole view where `where` is None."""

    id: str | None
    view: str
    where: str | None = None
    position: str | None = None


@dataclass(frozen=True, slots=True)
class FollowFeed:
    """Follow the events of one client of a feed."""

    id: str | None
    feed: str
    client: str
    position: str | None = None


@dataclass(frozen=True, slots=True)
class FollowStream:
    """Follow a stream that is kept by the gateways; one of keys may have `positions` as `FollowKeys` has them."""

    id: str | None
    stream: str
    position: str | None = None
    positions: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Unsubscribe:
    """Follow no longer."""

    id: str


@dataclass(frozen=True, slots=True)
class Auth:
    """Say who the client is."""

    token: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Ping:
    """Ask for a sign of life."""


Follow = FollowKeys | FollowQuery | FollowFeed | FollowStream
Request = Follow | Unsubscribe | Auth | Ping


class NotARequest(Problem):
    """A message that can't be read. `id` is that of the subscription it names, where it names one."""

    def __init__(self, error: str, expected: object, got: object, id: str | None = None) -> None:
        super().__init__(400, error, expected=expected, got=got, remedy=_SEE)
        self.id = id


def read(text: str) -> Request:
    """The request that a message makes; raises NotARequest for one that makes none."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        raise NotARequest("unreadable message", "a JSON object", text[:200]) from None
    if not isinstance(found, dict):
        raise NotARequest("unreadable message", "a JSON object", _shown(found))
    kind = found.get("type")
    reader = _READERS.get(kind) if isinstance(kind, str) else None
    if reader is None:
        expected = f"a type: {', '.join(_READERS)}"
        raise NotARequest("unknown message", expected, _shown(kind), _known_id(found))
    return reader(found)


def _subscribe(found: dict[str, Any]) -> Follow:
    id = _id(found)
    position = _optional(found, "position", id)
    named = [name for name in ("view", "feed", "stream") if found.get(name) is not None]
    if len(named) != 1:
        got = ", ".join(named) or "none of them"
        raise NotARequest("unreadable subscription", "one of view, feed and stream", got, id)
    if named == ["feed"]:
        return FollowFeed(id, _text(found, "feed", id), _text(found, "client", id), position)
    if named == ["stream"]:
        return FollowStream(id, _text(found, "stream", id), position, _positions(found.get("positions"), id))
    view, keys, where = _text(found, "view", id), found.get("keys"), _optional(found, "where", id)
    if keys is None:
        return FollowQuery(id, view, where, position)
    if where is not None:
        raise NotARequest("unreadable subscription", "keys or where, not both", "both", id)
    return FollowKeys(id, view, _keys(keys, id), position, _positions(found.get("positions"), id))


def _unsubscribe(found: dict[str, Any]) -> Unsubscribe:
    return Unsubscribe(_id(found))


def _auth(found: dict[str, Any]) -> Auth:
    token = found.get("token")
    if not isinstance(token, str) or not token or not is_utf8(token):
        raise NotARequest("unreadable token", "a token as text", type(token).__name__)  # never shown
    return Auth(token)


def _ping(_: dict[str, Any]) -> Ping:
    return Ping()


_READERS: dict[str, Callable[[dict[str, Any]], Request]] = {
    "subscribe": _subscribe,
    "unsubscribe": _unsubscribe,
    "auth": _auth,
    "ping": _ping,
}


def _id(found: dict[str, Any]) -> str:
    id = _known_id(found)
    if id is None:
        raise NotARequest("unreadable id", f"an id: text of 1 to {MAX_ID} characters", _shown(found.get("id")))
    return id


def _known_id(found: dict[str, Any]) -> str | None:
    id = found.get("id")
    return id if isinstance(id, str) and 1 <= len(id) <= MAX_ID and is_utf8(id) else None


def _optional(found: dict[str, Any], name: str, id: str) -> str | None:
    return None if found.get(name) is None else _text(found, name, id)


def _text(found: dict[str, Any], name: str, id: str) -> str:
    value = found.get(name)
    if not isinstance(value, str) or not is_utf8(value):
        raise NotARequest("unreadable subscription", f"{name} as text", _shown(value), id)
    return value


def _keys(keys: object, id: str) -> tuple[str, ...]:
    if not isinstance(keys, list) or not keys or not all(isinstance(key, str) and is_utf8(key) for key in keys):
        raise NotARequest("unreadable keys", "an array of at least one key, each as text", _shown(keys), id)
    return tuple(dict.fromkeys(keys))


def _positions(positions: object, id: str) -> Mapping[str, str]:
    if positions is None:
        return {}
    texts = [*positions, *positions.values()] if isinstance(positions, dict) else [None]
    if not isinstance(positions, dict) or not all(isinstance(text, str) and is_utf8(text) for text in texts):
        raise NotARequest("unreadable positions", "an object of a position, as text, per key", _shown(positions), id)
    return positions


def _shown(value: object) -> str:
    return json.dumps(value)[:200]

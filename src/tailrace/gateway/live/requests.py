"""What a client says on a WebSocket, read without I/O: a typed request, or an error that says what was expected.

These classes are the only description: `read` checks messages by them, and `/asyncapi.json` shows them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Annotated, Any

from pydantic import AfterValidator, FailFast, Field, GetPydanticSchema, TypeAdapter, ValidationError, WithJsonSchema

from tailrace.gateway.problems import Problem

MAX_ID = 64
_SEE = "See docs/protocol.md, or the gateway's /asyncapi.json."

# Pydantic refuses half a surrogate pair only in text whose length it checks.
Text = Annotated[str, Field(min_length=0), WithJsonSchema({"type": "string"})]
Id = Annotated[str, Field(min_length=1, max_length=MAX_ID)]
# The client's name for what it follows. It is None over Server-Sent Events, and never in a message.
_Name = Annotated[str | None, GetPydanticSchema(lambda _, handler: handler(Id))]
_Keys = Annotated[
    tuple[Text, ...], Field(min_length=1), FailFast(), AfterValidator(lambda keys: tuple(dict.fromkeys(keys)))
]
_Positions = Annotated[Mapping[Text, Text], FailFast(), Field(description="The position of each key that is held.")]


@dataclass(frozen=True, slots=True)
class FollowKeys:
    """Follow some keys of a view; `positions` has the positions of some keys, `position` is for all others."""

    id: _Name
    view: Text
    keys: _Keys
    position: Text | None = None
    positions: _Positions = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class FollowQuery:
    """Follow a query over a view, or the whole view if `where` is left out."""

    id: _Name
    view: Text
    where: Annotated[Text | None, Field(description="The text after SQL's WHERE.")] = None
    position: Text | None = None


@dataclass(frozen=True, slots=True)
class FollowFeed:
    """Follow the events of one client of a feed."""

    id: _Name
    feed: Text
    client: Text
    position: Text | None = None


@dataclass(frozen=True, slots=True)
class FollowStream:
    """Follow a stream that the gateways keep; `positions` are those of its keys, if it has some."""

    id: _Name
    stream: Text
    position: Text | None = None
    positions: _Positions = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Unsubscribe:
    """Stop following something."""

    id: Id


@dataclass(frozen=True, slots=True)
class Auth:
    """Say who the client is."""

    token: Annotated[str, Field(min_length=1)] = field(repr=False)


@dataclass(frozen=True, slots=True)
class Ping:
    """Ask for a sign of life."""


Follow = FollowKeys | FollowQuery | FollowFeed | FollowStream
Request = Follow | Unsubscribe | Auth | Ping

# The types of messages, each with the classes that it may be read as.
MESSAGES: dict[str, tuple[type[Request], ...]] = {
    "subscribe": (FollowKeys, FollowQuery, FollowFeed, FollowStream),
    "unsubscribe": (Unsubscribe,),
    "auth": (Auth,),
    "ping": (Ping,),
}
_READERS: dict[type[Request], tuple[TypeAdapter[Any], tuple[str, ...]]] = {
    kind: (TypeAdapter(kind), tuple(member.name for member in fields(kind)))
    for kinds in MESSAGES.values()
    for kind in kinds
}
_ID = TypeAdapter[str](Id)
# What is wrong with a member, and what was expected. Any other member belongs to a subscription, and is text.
_MISTAKES = {
    "id": ("unreadable id", f"an id: text of 1 to {MAX_ID} characters"),
    "token": ("unreadable token", "a token as text"),
    "keys": ("unreadable keys", "an array of at least one key, each as text"),
    "positions": ("unreadable positions", "an object of a position, as text, per key"),
}


class NotARequest(Problem):
    """A message that can't be read. `id` is that of the subscription it names, if it names one."""

    def __init__(self, error: str, expected: object, got: object, id: str | None = None) -> None:
        super().__init__(400, error, expected=expected, got=got, remedy=_SEE)
        self.id = id


def read(text: str) -> Request:
    """The request in a message. Raises NotARequest if there is none."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        raise NotARequest("unreadable message", "a JSON object", text[:200]) from None
    if not isinstance(found, dict):
        raise NotARequest("unreadable message", "a JSON object", _shown(found))
    kind = found.get("type")
    kinds = MESSAGES.get(kind) if isinstance(kind, str) else None
    if kinds is None:
        raise NotARequest("unknown message", f"a type: {', '.join(MESSAGES)}", _shown(kind), _id(found))
    request = kinds[0] if len(kinds) == 1 else _followed(found)
    adapter, names = _READERS[request]
    # A member that is null counts as left out, and unknown members are passed over.
    members = {name: found[name] for name in names if found.get(name) is not None}
    try:
        made: Request = adapter.validate_python(members)
        return made
    except ValidationError as error:
        wrong = error.errors(include_url=False, include_context=False, include_input=False)[0]["loc"][0]
    raise _mistake(str(wrong), found)


def _followed(found: dict[str, Any]) -> type[Follow]:
    """What a message asks to follow."""
    named = [name for name in ("view", "feed", "stream") if found.get(name) is not None]
    keys, where = found.get("keys") is not None, found.get("where") is not None
    if len(named) != 1:
        wrong, got = "one of view, feed and stream", ", ".join(named) or "none of them"
    elif named == ["view"] and keys and where:
        wrong, got = "keys or where, not both", "both"
    else:
        return {"view": FollowKeys if keys else FollowQuery, "feed": FollowFeed, "stream": FollowStream}[named[0]]
    id = _id(found)
    raise _mistake("id", found) if id is None else NotARequest("unreadable subscription", wrong, got, id)


def _mistake(name: str, found: dict[str, Any]) -> NotARequest:
    error, expected = _MISTAKES.get(name, ("unreadable subscription", f"{name} as text"))
    value = found.get(name)
    if name == "token":
        return NotARequest(error, expected, type(value).__name__)  # never shown
    return NotARequest(error, expected, _shown(value), _id(found))


def _id(found: dict[str, Any]) -> str | None:
    try:
        return _ID.validate_python(found.get("id"))
    except ValidationError:
        return None


def _shown(value: object) -> str:
    return json.dumps(value)[:200]

"""The AsyncAPI document: what comes over Server-Sent Events and WebSockets, for every view and feed of the catalog.

The classes that the gateway reads messages with describe what a client says. Models here describe what the
gateway says: a member with a default may be left out. In an operation that sends, the gateway sends. The name
and the id of a Server-Sent Event are headers.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from urllib.parse import quote

from pydantic import BaseModel, TypeAdapter, create_model
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from tailrace.contracts.catalog import Catalog, CatalogFeed, CatalogView
from tailrace.gateway.apidocs.openapi import columns_of, event_name, key_schema, row_name, view_schema
from tailrace.gateway.live.requests import MESSAGES
from tailrace.types import spark
from tailrace.types.json_schema import example, schema

Json = dict[str, Any]

_DESCRIPTION = (
    "Live views of Kafka topics. A stream is `reset`? (`row` | `gone` | `event`)* `ready`, then news as it happens. "
    "Every frame has a position: a client that sends the last one back gets what is newer, from any gateway. "
    "Pass over frames and fields that you do not know."
)
_WHERE = {"type": "string", "description": "Only the rows that match: the text after SQL's WHERE."}
_KEYS = {"type": "array", "items": {"type": "string"}, "description": "Only these keys."}
_RESUME = {"type": "string", "description": "The id of the last frame seen; as the header `Last-Event-ID`."}


class _Plain(GenerateJsonSchema):
    """JSON schemas without titles, in which a member that may be left out is never null."""

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        inner = schema["schema"]
        return self.generate_inner(inner["schema"] if inner["type"] == "nullable" else inner)

    def field_title_should_be_set(self, schema: Any) -> bool:  # noqa: ARG002
        return False


def _model(description: str, **members: Any) -> type[BaseModel]:
    return create_model("Said", __doc__=description, **members)


def _payload(of: type) -> Json:
    found = TypeAdapter(of).json_schema(schema_generator=_Plain)
    del found["title"]
    return found


def _message(kind: str, *of: type, **known: Json) -> Json:
    """A WebSocket message of a type: one of these models, with the schemas that are known for some members."""
    found = [_payload(one) for one in of]
    for one in found:
        one["properties"] = {"type": {"const": kind}, **one.get("properties", {}), **known}
        one["required"] = ["type", *one.get("required", ())]
    if len(found) > 1:
        return {"name": kind, "payload": {"anyOf": found}}
    return {"name": kind, "summary": found[0].pop("description"), "payload": found[0]}


def _frame(name: str, summary: str, payload: Json, shown: Json | None = None) -> Json:
    """A Server-Sent Event."""
    id = {"type": "string", "description": "The position, if the frame moves it."}
    headers = {"type": "object", "properties": {"event": {"const": name}, "id": id}}
    held: Json = {"name": name, "summary": summary, "headers": headers, "payload": payload}
    return {**held, "examples": [{"payload": shown}]} if shown is not None else held


_TEXT, _TRUTH, _NUMBER, _ANY = (str | None, None), (bool | None, None), (int | None, None), (Any, None)
_RESET = {"reason": str, "message": str}

# Server-Sent Events that are the same for every view and feed.
_FRAMES = {
    kind: _frame(kind, (payload := _payload(of)).pop("description"), payload)
    for kind, of in {
        "ready": _model(
            "Everything up to here has been sent: from now on frames are news.",
            **{"view": _TEXT, "key": (list[str] | None, None), "feed": _TEXT, "client": _TEXT, "generation": int},
        ),
        "reset": _model("Drop what you hold, everything follows.", **_RESET),
        "progress": _model("The answer waits for a restore.", offset=int | None, target=int | None),
        "close": _model("The gateway ends the stream.", **_RESET, retry=bool),
    }.items()
}
# What a client says on a WebSocket.
_CLIENT = {kind: _message(kind, *of) for kind, of in MESSAGES.items()}
# What a gateway answers, other than rows and events.
_GATEWAY = {
    kind: _message(kind.removeprefix("socket."), of)
    for kind, of in {
        "subscribed": _model("A subscription is taken.", id=str, query=_TEXT),
        "unsubscribed": _model("A subscription has ended.", id=str),
        "socket.ready": _model("A snapshot is complete.", id=str, position=_TEXT),
        "socket.reset": _model("Drop what you hold, everything follows.", id=str, **_RESET),
        "socket.progress": _model("The answer waits for a restore.", id=str, offset=_NUMBER, target=_NUMBER),
        "error": _model(
            "With an id: that subscription has ended.",
            **{"id": _TEXT, "error": str, "expected": _ANY, "got": _ANY, "remedy": _TEXT, "retry": _TRUTH},
        ),
        "authenticated": _model("The token is good until then.", expires=_NUMBER),
        "pong": _model("A sign of life."),
    }.items()
}
# News on a WebSocket: what it is about, and its position.
_ROW = _model("What a key holds now.", view=str, query=_TEXT, key=str, position=_TEXT, row=dict[str, Any])
_GONE = _model("The key holds nothing any more, or does not match.", view=str, query=_TEXT, key=str, position=_TEXT)
_EVENT = _model("The next event.", feed=str, client=str, position=str, event=dict[str, Any])


def document(app: str, version: str, host: str, catalog: Catalog | None) -> Json:
    """The document of an app at a host."""
    found: Json = {
        "asyncapi": "3.0.0",
        "info": {"title": f"Tailrace: {app}", "version": version, "description": _DESCRIPTION},
        "defaultContentType": "application/json",
        "servers": {
            "events": {"host": host, "protocol": "http", "description": "Server-Sent Events."},
            "socket": {"host": host, "protocol": "ws", "description": "WebSockets, subprotocol `tailrace.v1`."},
        },
        "channels": {},
        "operations": {},
        "components": {"schemas": {}, "messages": {**_FRAMES, **_CLIENT, **_GATEWAY}},
    }
    sent = [*_GATEWAY]
    if catalog is not None:
        for view in catalog.views.values():
            sent += _add_view(found, view)
        for feed in catalog.feeds.values():
            sent += _add_feed(found, feed)
    found["channels"]["socket"] = _channel("/ws", "socket", {kind: kind for kind in (*sent, *_CLIENT)})
    found["operations"]["socket.ask"] = _operation("receive", "socket", _CLIENT)
    found["operations"]["socket.answer"] = _operation("send", "socket", sent)
    return found


def _add_view(found: Json, view: CatalogView) -> list[str]:
    """Add a view; returns the names of its WebSocket messages."""
    schemas, messages = found["components"]["schemas"], found["components"]["messages"]
    row, key, path = row_name(view.name), f"{view.name}.key", f"/views/{quote(view.name)}"
    schemas[row] = view_schema(view)
    schemas[key] = schema(spark.row(view.key, never_null=[column.name for column in view.key]))
    held, gone = _ref(row), _ref(key)
    shown = example(spark.row(columns_of(view.key, view.columns)))
    messages[f"{view.name}.row"] = _frame("row", "What a key holds now.", held, shown)
    messages[f"{view.name}.gone"] = _frame("gone", "The key holds nothing any more, or does not match.", gone)
    name = {"const": view.name}
    messages[f"socket.{view.name}.row"] = _message("row", _ROW, view=name, row=held)
    messages[f"socket.{view.name}.gone"] = _message("gone", _GONE, view=name)
    frames = {kind: f"{view.name}.{kind}" for kind in ("row", "gone")} | {kind: kind for kind in _FRAMES}
    parameters = {"key": {"description": str(key_schema(view).get("description", f"A value of {view.key[0].name}."))}}
    _add_events(found, key, f"{path}/{{key}}/events", frames, parameters)
    _add_events(found, f"{view.name}.rows", f"{path}/events", frames, where=_WHERE, key=_KEYS)
    return [f"socket.{view.name}.row", f"socket.{view.name}.gone"]


def _add_feed(found: Json, feed: CatalogFeed) -> list[str]:
    """Add a feed; returns the name of its WebSocket message."""
    messages, event = found["components"]["messages"], event_name(feed.name)
    of, held = spark.row(columns_of(feed.key, feed.columns)), _ref(event)
    found["components"]["schemas"][event] = schema(of)
    messages[event] = _frame("event", "The next event.", held, example(of))
    messages[f"socket.{event}"] = _message("event", _EVENT, feed={"const": feed.name}, event=held)
    frames = {"event": event, **{kind: kind for kind in _FRAMES}}
    parameters = {"client": {"description": "Who the events are for."}}
    _add_events(found, f"{feed.name}.events", f"/feeds/{quote(feed.name)}/{{client}}/events", frames, parameters)
    return [f"socket.{event}"]


def _add_events(
    found: Json, name: str, address: str, frames: dict[str, str], parameters: Json | None = None, **query: Json
) -> None:
    """Add a stream of Server-Sent Events."""
    found["channels"][name] = _channel(address, "events", frames)
    if parameters:
        found["channels"][name]["parameters"] = parameters
    asked = {"type": "object", "properties": {**query, "last_event_id": _RESUME}}
    bindings = {"http": {"method": "GET", "query": asked, "bindingVersion": "0.3.0"}}
    found["operations"][f"follow.{name}"] = {**_operation("send", name, frames), "bindings": bindings}


def _ref(name: str) -> Json:
    return {"$ref": f"#/components/schemas/{name}"}


def _channel(address: str, server: str, messages: dict[str, str]) -> Json:
    return {
        "address": address,
        "servers": [{"$ref": f"#/servers/{server}"}],
        "messages": {kind: {"$ref": f"#/components/messages/{message}"} for kind, message in messages.items()},
    }


def _operation(action: str, channel: str, messages: Iterable[str]) -> Json:
    return {
        "action": action,
        "channel": {"$ref": f"#/channels/{channel}"},
        "messages": [{"$ref": f"#/channels/{channel}/messages/{kind}"} for kind in messages],
    }

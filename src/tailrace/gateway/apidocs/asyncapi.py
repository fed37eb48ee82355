"""The AsyncAPI document: what comes over Server-Sent Events and WebSockets, for every view and feed of the catalog.

An operation that sends is one of the gateway. Of a Server-Sent Event, the name and the id stand as headers.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from tailrace.contracts.catalog import Catalog, CatalogFeed, CatalogView
from tailrace.gateway.apidocs.asyncapi_messages import CLIENT, FRAMES, GATEWAY, text
from tailrace.gateway.apidocs.openapi import columns_of, event_name, key_schema, row_name, view_schema
from tailrace.types import samples
from tailrace.types.spark_types import row_schema

Json = dict[str, Any]

_DESCRIPTION = (
    "Live views of Kafka topics. A stream is `reset`? (`row` | `gone` | `event`)* `ready`, then news as it happens. "
    "Every frame has a position: who sends the last one back gets what is newer, from any gateway. "
    "Frames and fields that are not known are to be passed over."
)
_WHERE = {"type": "string", "description": "Only the rows that match: the text after SQL's WHERE."}
_KEYS = {"type": "array", "items": {"type": "string"}, "description": "Only these keys."}
_RESUME = {"type": "string", "description": "The id of the last frame seen; as the header `Last-Event-ID`."}


def document(app: str, version: str, host: str, catalog: Catalog | None) -> Json:
    """The document of an app that is served at a host."""
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
        "components": {"schemas": {}, "messages": {**FRAMES, **CLIENT, **GATEWAY}},
    }
    views = catalog.views.values() if catalog is not None else ()
    feeds = catalog.feeds.values() if catalog is not None else ()
    for view in views:
        _add_view(found, view)
    for feed in feeds:
        _add_feed(found, feed)
    _add_socket(found, [view.name for view in views], [feed.name for feed in feeds])
    return found


def _add_view(found: Json, view: CatalogView) -> None:
    schemas, messages = found["components"]["schemas"], found["components"]["messages"]
    row, name = row_name(view.name), quote(view.name)
    schemas[row] = view_schema(view)
    schemas[f"{view.name}.key"] = row_schema(view.key, never_null=[column.name for column in view.key])
    held, gone = {"$ref": f"#/components/schemas/{row}"}, {"$ref": f"#/components/schemas/{view.name}.key"}
    example = samples.row(columns_of(view.key, view.columns))
    messages[f"{view.name}.row"] = _frame("row", "What a key holds now.", held, example)
    messages[f"{view.name}.gone"] = _frame("gone", "The key holds nothing any more, or does not match.", gone)
    messages[f"socket.{view.name}.row"] = _about("row", view.name, row=held)
    messages[f"socket.{view.name}.gone"] = _about("gone", view.name)
    own = {kind: f"{view.name}.{kind}" for kind in ("row", "gone")}
    frames = {**own, **{kind: kind for kind in FRAMES}}
    key = {"key": {"description": str(key_schema(view).get("description", f"A value of {view.key[0].name}."))}}
    query: dict[str, Json] = {"where": _WHERE, "key": _KEYS, "last_event_id": _RESUME}
    _add_events(found, f"{view.name}.key", f"/views/{name}/{{key}}/events", frames, key, {"last_event_id": _RESUME})
    _add_events(found, f"{view.name}.rows", f"/views/{name}/events", frames, {}, query)


def _add_feed(found: Json, feed: CatalogFeed) -> None:
    schemas, messages = found["components"]["schemas"], found["components"]["messages"]
    event, name = event_name(feed.name), quote(feed.name)
    schemas[event] = row_schema(columns_of(feed.key, feed.columns))
    held = {"$ref": f"#/components/schemas/{event}"}
    messages[event] = _frame("event", "The next event.", held, samples.row(columns_of(feed.key, feed.columns)))
    messages[f"socket.{event}"] = {
        "name": "event",
        "payload": _object("event", feed={"const": feed.name}, client=text(), position=text(), event=held),
    }
    client = {"client": {"description": "Who the events are for."}}
    frames = {"event": event, **{kind: kind for kind in FRAMES}}
    address = f"/feeds/{name}/{{client}}/events"
    _add_events(found, f"{feed.name}.events", address, frames, client, {"last_event_id": _RESUME})


def _add_events(
    found: Json, name: str, address: str, frames: dict[str, str], parameters: Json, query: dict[str, Json]
) -> None:
    found["channels"][name] = {
        "address": address,
        "servers": [{"$ref": "#/servers/events"}],
        "messages": {kind: {"$ref": f"#/components/messages/{message}"} for kind, message in frames.items()},
        **({"parameters": parameters} if parameters else {}),
    }
    found["operations"][f"follow.{name}"] = {
        "action": "send",
        "channel": {"$ref": f"#/channels/{name}"},
        "messages": [{"$ref": f"#/channels/{name}/messages/{kind}"} for kind in frames],
        "bindings": {
            "http": {"method": "GET", "query": {"type": "object", "properties": query}, "bindingVersion": "0.3.0"}
        },
    }


def _add_socket(found: Json, views: list[str], feeds: list[str]) -> None:
    sent = {kind: kind for kind in GATEWAY}
    sent |= {f"socket.{view}.{kind}": f"socket.{view}.{kind}" for view in views for kind in ("row", "gone")}
    sent |= {f"socket.{event_name(feed)}": f"socket.{event_name(feed)}" for feed in feeds}
    everything = {**sent, **{kind: kind for kind in CLIENT}}
    found["channels"]["socket"] = {
        "address": "/ws",
        "servers": [{"$ref": "#/servers/socket"}],
        "messages": {kind: {"$ref": f"#/components/messages/{message}"} for kind, message in everything.items()},
    }
    for operation, action, kinds in (("socket.ask", "receive", CLIENT), ("socket.answer", "send", sent)):
        found["operations"][operation] = {
            "action": action,
            "channel": {"$ref": "#/channels/socket"},
            "messages": [{"$ref": f"#/channels/socket/messages/{kind}"} for kind in kinds],
        }


def _frame(name: str, summary: str, payload: Json, example: Json | None = None) -> Json:
    headers = {"type": "object", "properties": {"event": {"const": name}, "id": text("Its position.")}}
    held: Json = {"name": name, "summary": summary, "headers": headers, "payload": payload}
    return {**held, "examples": [{"payload": example}]} if example is not None else held


def _about(kind: str, view: str, **more: Json) -> Json:
    fields: dict[str, Json] = {"view": {"const": view}, "query": text("Where it is about a query."), "key": text()}
    payload = _object(kind, **fields, position=text(), **more)
    payload["required"] = [name for name in payload["required"] if name not in ("query", "position")]
    return {"name": kind, "payload": payload}


def _object(kind: str, **fields: Json) -> Json:
    properties = {"type": {"const": kind}, **fields}
    return {"type": "object", "required": list(properties), "properties": properties}

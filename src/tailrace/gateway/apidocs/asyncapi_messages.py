"""The messages that are the same for every view and feed, as `docs/protocol.md` has them."""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]


def text(description: str | None = None) -> Json:
    return {"type": "string"} if description is None else {"type": "string", "description": description}


_WHOLE: Json = {"type": "integer"}
_NUMBER: Json = {"type": ["integer", "null"]}
_ANY: Json = {}
_TRUTH: Json = {"type": "boolean"}
_TEXTS: Json = {"type": "array", "items": {"type": "string"}}
_POSITIONS: Json = {"type": "object", "additionalProperties": {"type": "string"}}


def _frame(name: str, summary: str, *optional: str, **fields: Json) -> Json:
    headers = {"type": "object", "properties": {"event": {"const": name}, "id": text("The position, where it moves.")}}
    required = [field for field in fields if field not in optional]
    payload = {"type": "object", "required": required, "properties": fields}
    return {"name": name, "summary": summary, "headers": headers, "payload": payload}


def _message(kind: str, summary: str, *optional: str, **fields: Json) -> Json:
    properties = {"type": {"const": kind}, **fields}
    required = [field for field in properties if field not in optional]
    payload = {"type": "object", "required": required, "properties": properties}
    return {"name": kind, "summary": summary, "payload": payload}


# Server-Sent Events, beside rows and events.
FRAMES: dict[str, Json] = {
    "ready": _frame(
        "ready",
        "Everything up to here has been sent: from now on frames are news.",
        "view",
        "key",
        "feed",
        "client",
        view=text(),
        key=_TEXTS,
        feed=text(),
        client=text(),
        generation=_WHOLE,
    ),
    "reset": _frame("reset", "Drop what you hold, everything follows.", reason=text(), message=text()),
    "progress": _frame("progress", "The answer waits for a restore.", offset=_NUMBER, target=_NUMBER),
    "close": _frame("close", "The gateway ends the stream.", reason=text(), message=text(), retry=_TRUTH),
}

# What a client says on a WebSocket.
CLIENT: dict[str, Json] = {
    "subscribe": _message(
        "subscribe",
        "Follow keys, a query or a whole view, a feed, or a stream.",
        *("view", "keys", "where", "feed", "client", "stream", "position", "positions"),
        id={"type": "string", "minLength": 1, "maxLength": 64},
        view=text(),
        keys=_TEXTS,
        where=text("The text after SQL's WHERE."),
        feed=text(),
        client=text(),
        stream=text(),
        position=text(),
        positions=_POSITIONS,
    ),
    "unsubscribe": _message("unsubscribe", "Follow no longer.", id=text()),
    "auth": _message("auth", "Show a token.", token=text()),
    "ping": _message("ping", "Ask for a sign of life."),
}

# What a gateway answers, beside rows and events.
GATEWAY: dict[str, Json] = {
    "subscribed": _message("subscribed", "A subscription is taken.", "query", id=text(), query=text()),
    "unsubscribed": _message("unsubscribed", "A subscription has ended.", id=text()),
    "socket.ready": _message("ready", "A snapshot is complete.", "position", id=text(), position=text()),
    "socket.reset": _message("reset", "Drop what you hold.", id=text(), reason=text(), message=text()),
    "socket.progress": _message("progress", "A restore.", id=text(), offset=_NUMBER, target=_NUMBER),
    "error": _message(
        "error",
        "With an id: that subscription has ended.",
        *("id", "expected", "got", "remedy", "retry"),
        id=text(),
        error=text(),
        expected=_ANY,
        got=_ANY,
        remedy=text(),
        retry=_TRUTH,
    ),
    "authenticated": _message("authenticated", "The token is good until then.", "expires", expires=_NUMBER),
    "pong": _message("pong", "A sign of life."),
}

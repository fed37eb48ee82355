"""What answers about feeds look like, for the API's documentation."""

from __future__ import annotations

from typing import Any

from tailrace.gateway.apidocs import examples

_EVENTS = """retry: 1000

event: ready
id: a0b1c2d3.1.0-12
data: {"feed":"notices","client":"c7","generation":1}

event: event
id: a0b1c2d3.1.0-13
data: {"text":"your order was sent"}

event: event
id: a0b1c2d3.1.0-20
data: {"text":"your order has arrived"}

event: reset
id: a0b1c2d3.1
data: {"reason":"missed","message":"the position is at offset 20, events are kept from 9031 on only: …"}

event: event
id: a0b1c2d3.1.0-9031
data: {"text":"your order was returned"}

event: ready
id: a0b1c2d3.1.0-9040
data: {"feed":"notices","client":"c7","generation":1}

"""
_UNKNOWN_FEED = {"error": "unknown feed", "feed": "notes", "expected": ["notices"], "remedy": "…"}


def _json(description: str, body: dict[str, Any]) -> dict[str, Any]:
    schema = {"type": "object", "additionalProperties": True}
    return {"description": description, "content": {"application/json": {"schema": schema, "example": body}}}


FOLLOW: dict[int | str, dict[str, Any]] = {
    **examples.FOLLOW,
    200: {
        "description": "The stream: it has no end.",
        "content": {"text/event-stream": {"schema": {"type": "string"}, "example": _EVENTS}},
    },
    400: _json(
        "The feed or the client is not UTF-8 text, percent-encoded.",
        {"error": "unreadable client", "expected": "UTF-8 text, percent-encoded", "got": "%FF", "remedy": "…"},
    ),
    404: _json("There is no such feed. (A client that has no events is followed all the same.)", _UNKNOWN_FEED),
}

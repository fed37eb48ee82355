"""What answers look like, for the API's documentation."""

from __future__ import annotations

from typing import Any

_POSITION = "4be1a27c.1.0-17"
_ROW = {"movie_id": 362, "rating": 9.0, "ratings": 2}
_EVENTS = f"""retry: 1000

event: row
id: {_POSITION}
data: {{"movie_id":362,"rating":9.0,"ratings":2}}

event: ready
id: 4be1a27c.1.0-21
data: {{"view":"rating-averages","key":["movie_id"],"generation":1}}

event: row
id: 4be1a27c.1.0-22
data: {{"movie_id":362,"rating":8.0,"ratings":3}}

event: gone
id: 4be1a27c.1.0-30
data: {{"movie_id":362}}

"""


def _json(description: str, *bodies: dict[str, Any]) -> dict[str, Any]:
    named = {str(body.get("error", "example")): {"value": body} for body in bodies}
    schema = {"type": "object", "additionalProperties": True}
    return {"description": description, "content": {"application/json": {"schema": schema, "examples": named}}}


_BAD = _json(
    "The view or the key is not UTF-8 text, percent-encoded.",
    {"error": "unreadable key", "expected": "UTF-8 text, percent-encoded", "got": "%FF", "remedy": "…"},
)
_UNKNOWN_VIEW = {"error": "unknown view", "view": "ratings", "expected": ["rating-averages"], "remedy": "…"}
_UNKNOWN_KEY = {
    "error": "unknown key",
    "view": "rating-averages",
    "key": "999",
    "expected": "a value of movie_id",
    "remedy": "Check the key, or follow its events: a row may come yet.",
}
_LONG = _json("The key is too long to be one.", {"error": "URL too long", "expected": "…", "got": "…", "remedy": "…"})
_OTHER = _json("Any other error.", {"error": "…", "expected": "…", "got": "…", "remedy": "…"})
_NO_CATALOG = {"error": "no catalog yet", "expected": "the catalog of app movies in Redis", "remedy": "…"}
_RESTORED = {"error": "being restored", "view": "rating-averages", "offset": 1200, "target": 5000, "remedy": "…"}

LOOKUP: dict[int | str, dict[str, Any]] = {
    200: {
        **_json("The row.", _ROW),
        "headers": {
            "ETag": {"description": "The row's position.", "schema": {"type": "string", "example": f'"{_POSITION}"'}}
        },
    },
    304: {"description": "The row is still the one that `If-None-Match` names."},
    400: _BAD,
    404: _json("There is no such view, or the key holds no row.", _UNKNOWN_KEY, _UNKNOWN_VIEW),
    414: _LONG,
    503: _json("Not known now; ask again after `Retry-After` seconds.", _RESTORED, _NO_CATALOG),
    "default": _OTHER,
}

FOLLOW: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The stream: it has no end.",
        "content": {"text/event-stream": {"schema": {"type": "string"}, "example": _EVENTS}},
    },
    400: _BAD,
    404: _json("There is no such view. (A key that holds nothing is followed all the same.)", _UNKNOWN_VIEW),
    414: _LONG,
    503: _json("There is no catalog yet, or this gateway shuts down.", _NO_CATALOG),
    "default": _OTHER,
}

READY = _json(
    "Ready.",
    {
        "ready": True,
        "reasons": [],
        "views": {
            "rating-averages": {"generation": 1, "partitions": {"0": {"offset": 21, "whole": True, "generation": 1}}}
        },
        "feeds": {},
    },
)
NOT_READY = _json(
    "Not ready, and why.", {"ready": False, "reasons": ["the pub/sub link is down"], "views": {}, "feeds": {}}
)

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
_MANY = _json(
    "More keys are asked for than one subscription may have.",
    {"error": "too many keys", "expected": "at most 10000 keys in one subscription", "got": "10001", "remedy": "…"},
)
_OTHER = _json("Any other error.", {"error": "…", "expected": "…", "got": "…", "remedy": "…"})
_NO_CATALOG = {"error": "no catalog yet", "expected": "the catalog of the app in Redis", "remedy": "…"}
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

_ETAG = {
    "ETag": {"description": "The position and the question.", "schema": {"type": "string"}},
}

LISTING: dict[int | str, dict[str, Any]] = {
    200: {
        **_json(
            "A page of rows.",
            {
                "rows": [_ROW],
                "position": "4be1a27c.1.0-17.1-4",
                "as_of": 1790000000000,
                "next": "dGhlIG5leHQgcGFnZQ",
            },
        ),
        "headers": _ETAG,
    },
    304: {"description": "The page is still the one that `If-None-Match` names."},
    400: _json(
        "The query can't be used, or the page is none of this listing.",
        {
            "error": "unusable query",
            "expected": "one of the columns movie_id, rating",
            "got": "ratng",
            "at": 0,
            "remedy": "Did you mean rating?",
        },
    ),
    404: _json("There is no such view.", _UNKNOWN_VIEW),
    414: _LONG,
    422: _json(
        "A parameter is not what it must be.",
        {"error": "invalid request", "problems": [{"where": "query.limit", "expected": "…"}], "remedy": "…"},
    ),
    410: _json(
        "The view was built anew: ask for the first page.",
        {"error": "outdated page", "view": "rating-averages", "remedy": "…"},
    ),
    503: _json("Not known now; ask again after `Retry-After` seconds.", _RESTORED, _NO_CATALOG),
    "default": _OTHER,
}

_EVENT = {"movie_id": 362, "rating": 9.0}
EVENTS_BODY: dict[str, Any] = {
    "required": True,
    "content": {
        "application/json": {"schema": {}, "examples": {"one": {"value": _EVENT}, "several": {"value": [_EVENT]}}},
        "application/vnd.tailrace.records+json": {
            "schema": {},
            "examples": {"records": {"value": [{"key": "362", "value": _EVENT, "headers": {"source": "phone"}}]}},
        },
    },
}
EVENTS_IN: dict[int | str, dict[str, Any]] = {
    202: _json("Kafka has them.", {"topic": "ratings", "records": [{"partition": 0, "offset": 17}]}),
    400: _json("The body is no JSON.", {"error": "unusable body", "expected": "…", "got": "…", "remedy": "…"}),
    403: _json("The topic takes no events from clients.", {"error": "closed topic", "topic": "ratings", "remedy": "…"}),
    404: _json("There is no such topic.", {"error": "unknown topic", "topic": "rating", "expected": ["ratings"]}),
    413: _json("The body is too long.", {"error": "body too long", "expected": "…", "remedy": "…"}),
    415: _json("The body has another media type.", {"error": "unsupported media type", "remedy": "…"}),
    422: _json(
        "An event is not what the topic declares; none was written.",
        {
            "error": "unusable events",
            "topic": "ratings",
            "problems": [{"event": 0, "where": "rating", "expected": "a number", "got": "'nine'"}],
            "remedy": "…",
        },
    ),
    501: _json("The pipeline could not read what would be written.", {"error": "unsupported schema", "remedy": "…"}),
    502: _json(
        "Kafka refuses some, and `records` says which; or the registry has no schema to write with.",
        {"error": "not written", "records": []},
        {"error": "no schema", "topic": "ratings", "remedy": "…"},
    ),
    503: _json(
        "Kafka or the schema registry is away, or there is no room; ask again.",
        {"error": "not written", "records": []},
        {"error": "registry away", "remedy": "…"},
    ),
    "default": _OTHER,
}

FOLLOW: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The stream: it has no end.",
        "content": {"text/event-stream": {"schema": {"type": "string"}, "example": _EVENTS}},
    },
    400: _BAD,
    404: _json("There is no such view. (A key that holds nothing is followed all the same.)", _UNKNOWN_VIEW),
    413: _MANY,
    414: _LONG,
    503: _json("There is no catalog yet, or this gateway shuts down.", _NO_CATALOG),
    "default": _OTHER,
}

STREAMS: dict[int | str, dict[str, Any]] = {
    400: _json(
        "The body can't be used.",
        {"error": "keys and where", "expected": "keys or where", "got": "both", "remedy": "…"},
    ),
    404: _json("There is no such stream or view.", {"error": "unknown stream", "expected": "…", "remedy": "…"}),
    413: _json(
        "It has more keys than one subscription may have, or more than fit in a command.",
        {"error": "too many keys", "expected": "at most 10000 keys in one subscription", "got": "10001", "remedy": "…"},
        {"error": "stream too large", "expected": "…", "got": "…", "remedy": "…"},
    ),
    501: _json("This gateway has no Kafka to write commands to.", {"error": "…", "expected": "…", "remedy": "…"}),
    503: _json("Kafka or Redis is away; ask again.", {"error": "…", "expected": "…", "remedy": "…"}),
    "default": _OTHER,
}

READY = _json(
    "Ready.",
    {
        "ready": True,
        "reasons": [],
        "degraded": [
            {
                "view": "rating-averages",
                "reason": "the pipeline has failed on it, and tries again: rows stand still until then",
            }
        ],
        "views": {
            "rating-averages": {
                "generation": 1,
                "partitions": {"0": {"offset": 21, "whole": True, "generation": 1}},
                "delay": {"p50_ms": 9, "max_ms": 41, "rows": 1200},
                "behind_seconds": 0.0,
            }
        },
        "feeds": {},
    },
)
NOT_READY = _json(
    "Not ready, and why.",
    {"ready": False, "reasons": ["the pub/sub link is down"], "degraded": [], "views": {}, "feeds": {}},
)

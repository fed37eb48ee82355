"""What answers look like, for the API's documentation."""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]
Answers = dict[int | str, Json]


def _json(description: str, *bodies: Json) -> Json:
    """A JSON answer, with examples."""
    named = {str(body.get("error", "example")): {"value": body} for body in bodies}
    schema = {"type": "object", "additionalProperties": True}
    return {"description": description, "content": {"application/json": {"schema": schema, "examples": named}}}


def _error(error: str, **fields: Any) -> Json:
    return {"error": error, **fields, "remedy": "…"}


def _stream(events: str) -> Json:
    content = {"text/event-stream": {"schema": {"type": "string"}, "example": events}}
    return {"description": "The stream: it has no end.", "content": content}


_POSITION = "4be1a27c.1.0-17"
_ROW = {"movie_id": 362, "rating": 9.0, "ratings": 2}
_UNREADABLE = {"expected": "UTF-8 text, percent-encoded", "got": "%FF"}
_UNKNOWN_VIEW = _error("unknown view", view="ratings", expected=["rating-averages"])
_NO_CATALOG = _error("no catalog yet", expected="the catalog of the app in Redis")
_RESTORED = _error("being restored", view="rating-averages", offset=1200, target=5000)
_TOO_MANY = _error("too many keys", expected="at most 10000 keys in one subscription", got="10001")
_UNNAMED = _error("…", expected="…")

_BAD = _json("The view or the key is not UTF-8 text, percent-encoded.", _error("unreadable key", **_UNREADABLE))
_LONG = _json("The key is too long to be one.", _error("URL too long", expected="…", got="…"))
_UNKNOWN_NOW = _json("Not known now; ask again after `Retry-After` seconds.", _RESTORED, _NO_CATALOG)
_OTHERS: Answers = {"default": _json("Any other error.", _error("…", expected="…", got="…"))}

LOOKUP: Answers = {
    200: {
        **_json("The row.", _ROW),
        "headers": {
            "ETag": {"description": "The row's position.", "schema": {"type": "string", "example": f'"{_POSITION}"'}}
        },
    },
    304: {"description": "The row is still the one that `If-None-Match` names."},
    400: _BAD,
    404: _json(
        "There is no such view, or the key holds no row.",
        {
            **_error("unknown key", view="rating-averages", key="999", expected="a value of movie_id"),
            "remedy": "Check the key, or follow its events: a row may come yet.",
        },
        _UNKNOWN_VIEW,
    ),
    414: _LONG,
    503: _UNKNOWN_NOW,
    **_OTHERS,
}

LISTING: Answers = {
    200: {
        **_json(
            "A page of rows.",
            {"rows": [_ROW], "position": f"{_POSITION}.1-4", "as_of": 1790000000000, "next": "dGhlIG5leHQgcGFnZQ"},
        ),
        "headers": {"ETag": {"description": "The position and the question.", "schema": {"type": "string"}}},
    },
    304: {"description": "The page is still the one that `If-None-Match` names."},
    400: _json(
        "The query can't be used, or the page is none of this listing.",
        {
            **_error("unusable query", expected="one of the columns movie_id, rating", got="ratng", at=0),
            "remedy": "Did you mean rating?",
        },
    ),
    404: _json("There is no such view.", _UNKNOWN_VIEW),
    410: _json("The view was built anew: ask for the first page.", _error("outdated page", view="rating-averages")),
    414: _LONG,
    422: _json(
        "A parameter is not what it must be.",
        _error("invalid request", problems=[{"where": "query.limit", "expected": "…"}]),
    ),
    503: _UNKNOWN_NOW,
    **_OTHERS,
}

_EVENT = {"movie_id": 362, "rating": 9.0}
_RECORD = {"key": "362", "value": _EVENT, "headers": {"source": "phone"}}
EVENTS_BODY: Json = {
    "required": True,
    "content": {
        "application/json": {"schema": {}, "examples": {"one": {"value": _EVENT}, "several": {"value": [_EVENT]}}},
        "application/vnd.tailrace.records+json": {"schema": {}, "examples": {"records": {"value": [_RECORD]}}},
    },
}
_UNWRITTEN = {"error": "not written", "records": []}
EVENTS_IN: Answers = {
    202: _json("Kafka has them.", {"topic": "ratings", "records": [{"partition": 0, "offset": 17}]}),
    400: _json("The body is no JSON.", _error("unusable body", expected="…", got="…")),
    403: _json("The topic takes no events from clients.", _error("closed topic", topic="ratings")),
    404: _json("There is no such topic.", _error("unknown topic", topic="rating", expected=["ratings"])),
    413: _json("The body is too long.", _error("body too long", expected="…")),
    415: _json("The body has another media type.", _error("unsupported media type")),
    422: _json(
        "An event is not what the topic declares; none was written.",
        _error(
            "unusable events",
            topic="ratings",
            problems=[{"event": 0, "where": "rating", "expected": "a number", "got": "'nine'"}],
        ),
    ),
    501: _json("The pipeline could not read what would be written.", _error("unsupported schema")),
    502: _json(
        "Kafka refuses some, and `records` says which; or the registry has no schema to write with.",
        _UNWRITTEN,
        _error("no schema", topic="ratings"),
    ),
    503: _json(
        "Kafka or the schema registry is away, or there is no room; ask again.", _UNWRITTEN, _error("registry away")
    ),
    **_OTHERS,
}

FOLLOW: Answers = {
    200: _stream(f"""retry: 1000

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

"""),
    400: _BAD,
    404: _json("There is no such view. (A key that holds nothing is followed all the same.)", _UNKNOWN_VIEW),
    413: _json("More keys are asked for than one subscription may have.", _TOO_MANY),
    414: _LONG,
    503: _json("There is no catalog yet, or this gateway shuts down.", _NO_CATALOG),
    **_OTHERS,
}

FOLLOW_FEED: Answers = {
    **FOLLOW,
    200: _stream("""retry: 1000

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

"""),
    400: _json(
        "The feed or the client is not UTF-8 text, percent-encoded.", _error("unreadable client", **_UNREADABLE)
    ),
    404: _json(
        "There is no such feed. (A client that has no events is followed all the same.)",
        _error("unknown feed", feed="notes", expected=["notices"]),
    ),
}

STREAMS: Answers = {
    400: _json("The body can't be used.", _error("keys and where", expected="keys or where", got="both")),
    404: _json("There is no such stream or view.", _error("unknown stream", expected="…")),
    413: _json(
        "It has more keys than one subscription may have, or more than fit in a command.",
        _TOO_MANY,
        _error("stream too large", expected="…", got="…"),
    ),
    501: _json("This gateway has no Kafka to write commands to.", _UNNAMED),
    503: _json("Kafka or Redis is away; ask again.", _UNNAMED),
    **_OTHERS,
}

_SERVED = {
    "generation": 1,
    "partitions": {"0": {"offset": 21, "whole": True, "generation": 1}},
    "delay": {"p50_ms": 9, "max_ms": 41, "rows": 1200},
    "behind_seconds": 0.0,
}
_DEGRADED = {
    "view": "rating-averages",
    "reason": "the pipeline has failed on it, and tries again: rows stand still until then",
}
READY: Answers = {
    200: _json(
        "Ready.",
        {
            "ready": True,
            "reasons": [],
            "degraded": [_DEGRADED],
            "kafka": [],
            "views": {"rating-averages": _SERVED},
            "feeds": {},
        },
    ),
    503: _json(
        "Not ready, and why.",
        {
            "ready": False,
            "reasons": ["the pub/sub link is down"],
            "degraded": [],
            "kafka": [],
            "views": {},
            "feeds": {},
        },
    ),
}
BARELY_READY: Answers = {200: _json("Ready.", {"ready": True}), 503: _json("Not ready.", {"ready": False})}

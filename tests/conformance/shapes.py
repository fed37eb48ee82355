"""What docs/protocol.md says of the shape of every frame: `problems` lists what is wrong with one.

Fields that the document does not name are allowed: clients pass them over.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

POSITION = re.compile(r"[0-9a-f]{8}\.[0-9]+(\.[0-9]+-[0-9]+)*(\.c[1-9][0-9]*)?", re.ASCII)
REASONS = {"unreadable", "foreign", "generation", "rebuilt", "forgotten", "ahead", "missed", "query", "rights"}
CLOSES = {"shutdown", "unauthorized", "forbidden", "slow", "gone", "fault"}
CODES = {1000, 1001, 1007, 1009, 1011, 1013, 4400, 4401, 4403, 4408, 4429}

_Check = Callable[[Any], bool]
_Fields = Mapping[str, _Check]


def _text(value: object) -> bool:
    return isinstance(value, str) and bool(value)


def _position(value: object) -> bool:
    return isinstance(value, str) and POSITION.fullmatch(value) is not None


def _offset(value: object) -> bool:
    return value is None or (isinstance(value, int) and not isinstance(value, bool))


def _is(kind: type) -> _Check:
    return lambda value: isinstance(value, kind)


def _id(value: object) -> bool:
    return isinstance(value, str) and 1 <= len(value) <= 64


def _optional(check: _Check) -> _Check:
    return lambda value: value is None or check(value)


def _anything(_: object) -> bool:
    return True


_RESET: _Fields = {"reason": lambda value: value in REASONS, "message": _text}
_PROGRESS: _Fields = {"offset": _offset, "target": _offset}

# Of Server-Sent Events: the data's fields, and whether there is an id (None: may be).
EVENTS: Mapping[str, tuple[_Fields, bool | None]] = {
    "row": ({}, None),
    "gone": ({}, None),
    "event": ({}, None),
    "ready": ({"generation": _is(int)}, True),
    "reset": (_RESET, True),
    "progress": (_PROGRESS, False),
    "close": ({"reason": lambda value: value in CLOSES, "message": _text, "retry": _is(bool)}, False),
}

MESSAGES: Mapping[str, _Fields] = {
    "subscribed": {"id": _id, "query": _optional(_text)},
    "unsubscribed": {"id": _id},
    "row": {"view": _text, "key": _is(str), "position": _optional(_position), "query": _optional(_text)},
    "gone": {"view": _text, "key": _is(str), "position": _optional(_position), "query": _optional(_text)},
    "event": {"feed": _text, "client": _is(str), "position": _position},
    "ready": {"id": _id, "position": _position},
    "reset": {"id": _id, **_RESET},
    "progress": {"id": _id, **_PROGRESS},
    "error": {"id": _optional(_id), "error": _text, "remedy": _text, "retry": _is(bool)},
    "authenticated": {"expires": _optional(_is(int))},
    "pong": {},
}


def event_problems(event: str, id: str | None, data: Any) -> list[str]:
    """What is wrong with an event of a stream."""
    if event not in EVENTS:
        return [f"{event}: no such frame"]
    fields, has_id = EVENTS[event]
    found = [] if isinstance(data, dict) else [f"{event}: expected an object as data, got {data!r}"]
    if isinstance(data, dict):
        found += _wrong(event, data, fields)
        if event == "ready" and not ({"view", "key"} <= data.keys() or {"feed", "client"} <= data.keys()):
            found.append(f"ready: expected view and key, or feed and client, got {sorted(data)}")
    if id is not None and not _position(id):
        found.append(f"{event}: expected a position as id, got {id!r}")
    if has_id is not None and (id is not None) is not has_id:
        found.append(f"{event}: expected {'an' if has_id else 'no'} id, got {id!r}")
    return found


def message_problems(message: Any) -> list[str]:
    """What is wrong with a message of a WebSocket."""
    kind = message.get("type") if isinstance(message, dict) else None
    if not isinstance(kind, str) or kind not in MESSAGES:
        return [f"expected an object of a known type, got {message!r}"]
    found = _wrong(kind, message, MESSAGES[kind])
    if kind == "row" and "row" not in message:
        found.append("row: expected the row")
    if kind == "event" and "event" not in message:
        found.append("event: expected the event")
    return found


def order_problems(kinds: list[str]) -> list[str]:
    """What is wrong with the order of a stream's frames: `reset`? rows `ready` rows, and from `reset` on again."""
    found = []
    ready, begun = False, False
    for place, kind in enumerate(kinds):
        if kind == "ready" and ready:
            found.append(f"a second ready, without a reset, at {place}")
        if kind == "reset" and begun and not ready:
            found.append(f"a reset within a snapshot, at {place}")
        if kind == "progress" and ready:
            found.append(f"progress after ready, at {place}")
        ready = kind == "ready" or (ready and kind != "reset")
        begun = (begun and kind != "ready") or kind in ("row", "gone", "event")
    return found


def problem_problems(body: Any) -> list[str]:
    """What is wrong with the body of a refusal over HTTP."""
    if not isinstance(body, dict):
        return [f"expected a JSON object, got {body!r}"]
    return _wrong("refusal", body, {"error": _text, "remedy": _text, "expected": _anything})


def _wrong(kind: str, found: Mapping[str, Any], fields: _Fields) -> list[str]:
    return [f"{kind}: {name} is {found.get(name)!r}" for name, check in fields.items() if not check(found.get(name))]

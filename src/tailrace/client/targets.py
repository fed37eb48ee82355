"""What is followed: some keys of a view, a query, a whole view, a feed, or a stream."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import quote

from tailrace.client.local_copy import Kind

Target = Mapping[str, Any]
"""The fields of a `subscribe` that say what: `view` with `keys` or `where`; `feed` and `client`; `stream`."""


def key_text(key: object) -> str:
    """The key of a row as text: text as it is, several columns as a JSON array."""
    if isinstance(key, str):
        return key
    value = list(key) if isinstance(key, tuple) else key
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def is_apart(target: Target, others: Iterable[Target]) -> bool:
    """Whether a target needs a connection of its own.

    The frames of a stream name keys that only the gateway knows, and those of a feed can't be told apart from another
    subscription to it.
    """
    return "stream" in target or ("feed" in target and any(target == other for other in others))


def kind_of(target: Target) -> Kind:
    """How positions of a target are merged; a whole view and a stream are like a query."""
    if "feed" in target:
        return "feed"
    return "keys" if "keys" in target else "query"


def events_path(target: Target, position: str | None = None) -> str:
    """The path of a target's Server-Sent Events, below the gateway's address."""
    parameters = []
    if "feed" in target:
        path = f"feeds/{_encoded(target['feed'])}/{_encoded(target['client'])}/events"
    elif "stream" in target:
        path = f"streams/{_encoded(target['stream'])}/events"
    else:
        keys = target.get("keys")
        # URLs take `.` and `..` out of paths, also when they are encoded, and proxies join two slashes.
        if keys is not None and len(keys) == 1 and keys[0] not in ("", ".", ".."):
            path = f"views/{_encoded(target['view'])}/{_encoded(keys[0])}/events"
        else:
            path = f"views/{_encoded(target['view'])}/events"
            parameters += [f"key={_encoded(key)}" for key in keys or ()]
        if "where" in target:
            parameters.append(f"where={_encoded(target['where'])}")
    if position:
        parameters.append(f"last_event_id={_encoded(position)}")
    return f"{path}?{'&'.join(parameters)}" if parameters else path


def _encoded(text: str) -> str:
    return quote(text, safe="!'()*")

"""Server-Sent Events: from text to events, and from events to frames. No I/O."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from typing import Any

from tailrace.client.targets import Target

_LINE = re.compile(r"([^\r\n]*)(?:\r\n|\n|\r(?=.))", re.DOTALL)
_TOKEN = re.compile(r"\s*(?:(\"(?:[^\"\\]|\\.)*\")|(-?[0-9][^\s,}\]]*|true|false|null)|([{}\[\]:,]))", re.DOTALL)


class EventParser:
    """Makes events of a stream's text, whatever pieces it comes in."""

    def __init__(self) -> None:
        self._rest = ""
        self._event: dict[str, str] = {}

    def feed(self, text: str) -> list[dict[str, str]]:
        """The events that a piece of text completes: `event`, `data` and, if there is one, `id`."""
        found: list[dict[str, str]] = []
        self._rest += text
        at = 0
        while (line := _LINE.match(self._rest, at)) is not None:
            at = line.end()
            self._line(line[1], found)
        self._rest = self._rest[at:]
        return found

    def _line(self, line: str, found: list[dict[str, str]]) -> None:
        event = self._event
        if not line:
            if "data" in event:
                found.append({"event": "message", **event})
            self._event = {}
            return
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "data":
            event["data"] = f"{event['data']}\n{value}" if "data" in event else value
        elif name == "event" or (name == "id" and "\0" not in value):
            event[name] = value


def key_of(row: str, columns: Sequence[str]) -> str:
    """The text of the key of a row's JSON, by the names of the key columns. Numbers keep their digits."""
    values: dict[str, str] = {}
    depth, at = 0, 0
    name: str | None = None
    while (token := _TOKEN.match(row, at)) is not None:
        at = token.end()
        text, literal, mark = token.groups()
        if mark in ("{", "["):
            depth += 1
        elif mark in ("}", "]"):
            depth -= 1
        elif depth == 1 and mark == ",":
            name = None
        elif depth == 1 and mark is None:
            if name is None:
                name = json.loads(text)
            else:
                values[name] = literal or text
    texts = [values.get(column, "null") for column in columns]
    if len(texts) > 1:
        return f"[{','.join(texts)}]"
    found: str = json.loads(texts[0]) if texts[0].startswith('"') else texts[0]
    return found


class EventFrames:
    """Makes frames of events. Rows get the key that a WebSocket would name."""

    def __init__(self, target: Target, loads: Callable[[str], Any] = json.loads) -> None:
        keys = target.get("keys", ())
        self._key: str | None = keys[0] if len(keys) == 1 else None
        self._columns: list[str] | None = None
        self._waiting: list[tuple[dict[str, Any], str]] = []  # before the `ready` that says which columns are the key
        self._loads = loads

    def begin(self) -> None:
        """A connection begins: forget the events that wait for `ready`."""
        self._waiting = []

    def take(self, event: dict[str, str]) -> list[dict[str, Any]]:
        """The frames that an event means."""
        kind, data = event["event"], event["data"]
        frame: dict[str, Any] = {"type": kind, **({"position": event["id"]} if event.get("id") else {})}
        if kind in ("row", "gone"):
            if self._key is None and self._columns is None:
                self._waiting.append((frame, data))
                return []
            return [self._keyed(frame, data)]
        if kind == "event":
            return [{**frame, "event": self._loads(data)}]
        fields = json.loads(data)
        if kind == "reset":
            self._waiting, self._columns = [], None
        if kind != "ready":
            return [{**fields, **frame}]
        self._columns = fields.get("key", self._columns)
        before = [self._keyed(*waiting) for waiting in self._waiting]
        self._waiting = []
        return [*before, frame]

    def _keyed(self, frame: dict[str, Any], data: str) -> dict[str, Any]:
        key = self._key if self._key is not None else key_of(data, self._columns or ())
        return {**frame, "key": key, "row": self._loads(data)} if frame["type"] == "row" else {**frame, "key": key}

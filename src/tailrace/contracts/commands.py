"""Commands: what clients ask for, as records of the topic `tailrace.<app>.commands`.

    key    the id of a stream
    value  {"format":1,"command":"open","stream":{"id":…,"view":…,"keys":[…],"where":…,"begun":…,"expires":…,"ttl":…}},
           or null: the stream has ended

Each record holds the whole stream as it is after the command, so the newest one per key is enough: the topic is
compacted, and a process that reads it from the start knows every stream. If its keys were changed, a stream also has
`changes`.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Any

from tailrace.contracts.key_changes import KeyChanges, decode_changes
from tailrace.contracts.typed import check

FORMAT = 1
COMMANDS = ("open", "begin", "add", "remove", "refresh")
# A whole view, as a query.
EVERY_ROW = "true"
# How long a stream that nobody uses is kept by default, in seconds.
TTL = 60
# A stream with a ttl of more than a year, or that ends after the year 9999, is not valid.
_LONGEST_TTL = 366 * 86_400
_LAST = 253_402_300_799_999


@dataclass(frozen=True)
class Stream:
    """What one client follows: some keys, a query, or a whole view if both are None.

    `begun` says that its client has asked for the snapshot. `expires` is when it ends unless it is refreshed, in ms
    since 1970; `ttl` is how many seconds a refresh is good for. `changes` are those of its keys since it was opened.
    """

    id: str
    view: str
    keys: tuple[str, ...] | None
    where: str | None
    begun: bool
    expires: int
    ttl: int = TTL
    changes: KeyChanges = field(default_factory=KeyChanges)

    @property
    def query(self) -> str | None:
        """The text of the query that materializers evaluate for it; None if it follows only keys."""
        if self.where is not None:
            return self.where
        return EVERY_ROW if self.keys is None else None


@dataclass(frozen=True)
class Command:
    """What was done to a stream, and the stream after it."""

    command: str
    stream: Stream

    def encode(self) -> bytes:
        """Compact JSON."""
        stream = asdict(self.stream)
        if not self.stream.changes.number:
            del stream["changes"]
        found = {"format": FORMAT, "command": self.command, "stream": stream}
        return json.dumps(found, separators=(",", ":"), ensure_ascii=False).encode()


class NotACommand(ValueError):
    """The record lacks something that every command has. The text says what."""


def decode_command(key: str, value: bytes) -> Command:
    """The command in a record. Ignores what a newer gateway has added."""
    try:
        found = json.loads(value)
    except (ValueError, RecursionError):
        raise NotACommand(f"expected JSON, got {value[:40]!r}") from None
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        got = found.get("format") if isinstance(found, dict) else found
        raise NotACommand(f"expected a command of format {FORMAT}, got {str(got)[:40]}: update this process")
    command, held = found.get("command"), found.get("stream")
    # An unknown command leaves a stream like any other.
    if not isinstance(command, str):
        raise NotACommand(f"expected `command` as one of {', '.join(COMMANDS)}, got {str(command)[:40]}")
    if not isinstance(held, dict):
        raise NotACommand(f"expected `stream` as an object, got {str(held)[:40]}")
    stream = Stream(
        id=_of(held, "id", str),
        view=_of(held, "view", str),
        keys=_keys(held.get("keys")),
        where=None if held.get("where") is None else _of(held, "where", str),
        begun=_of(held, "begun", bool),
        expires=_of(held, "expires", int),
        ttl=TTL if held.get("ttl") is None else _of(held, "ttl", int),
        changes=_changes(held.get("changes")),
    )
    try:
        check(stream)
    except ValueError as error:
        raise NotACommand(str(error)) from None
    if not 0 <= stream.expires <= _LAST or not 0 < stream.ttl <= _LONGEST_TTL:
        raise NotACommand(f"expected times that come, got expires {stream.expires} and ttl {stream.ttl}")
    if stream.id != key:
        raise NotACommand(f"expected the record key to be the stream's id {stream.id[:40]!r}, got {key[:40]!r}")
    return Command(command, stream)


def commands_topic(app: str) -> str:
    """The topic that holds the commands of an app."""
    return f"tailrace.{app}.commands"


def _of(held: dict[str, Any], name: str, kind: type) -> Any:
    value = held.get(name)
    if type(value) is not kind:
        raise NotACommand(f"expected `{name}` of the stream as {_NAMES[kind]}, got {str(value)[:40]!r}")
    return value


def _keys(value: object) -> tuple[str, ...] | None:
    if value is None:
        return None
    if not isinstance(value, list) or not all(isinstance(key, str) for key in value):
        raise NotACommand(f"expected `keys` of the stream as a list of texts or null, got {str(value)[:40]!r}")
    return tuple(value)


def _changes(value: object) -> KeyChanges:
    found = decode_changes(value)
    if found is None:
        raise NotACommand(f"expected `changes` of the stream as numbers of its keys, got {str(value)[:40]!r}")
    return found


_NAMES = {str: "text", bool: "true or false", int: "a whole number"}

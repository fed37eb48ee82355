"""What an HTTP request asks for, as far as rights go. The path alone says it: one door for all surfaces."""

from __future__ import annotations

from dataclasses import dataclass

from tailrace.gateway.paths import decoded


@dataclass(frozen=True)
class HealthPath:
    """Whether the gateway lives, and pages that hold nothing of the app: for all clients."""


@dataclass(frozen=True)
class DocumentsPath:
    """What the app has: names and types, no rows. `general`: a part of it is for clients without a token."""

    general: bool = False


@dataclass(frozen=True)
class OperationsPath:
    """What the gateway counts."""


@dataclass(frozen=True)
class RowPath:
    """The row of one key."""

    view: str
    key: str


@dataclass(frozen=True)
class RowsPath:
    """Rows of a view."""

    view: str


@dataclass(frozen=True)
class EventsPath:
    """Events for a topic."""

    topic: str


@dataclass(frozen=True)
class OtherPath:
    """What other code checks: streams, which ask when they begin, and paths that are not served."""


Asked = HealthPath | DocumentsPath | OperationsPath | RowPath | RowsPath | EventsPath | OtherPath

_PAGES = ("/", "/docs", "/tailrace.js", "/favicon.ico")


def asked(path: str) -> Asked:
    """What a path asks for. Raises a Problem if it can't be read."""
    if path in _PAGES or path.startswith(("/docs/", "/health/", "/tailrace/")):
        return HealthPath()
    if path in ("/openapi.json", "/asyncapi.json"):
        return DocumentsPath(general=path == "/openapi.json")
    if path == "/metrics":
        return OperationsPath()
    match path.split("/")[1:]:
        case ["views", view]:
            return RowsPath(decoded(view, "view"))
        case ["views", _, "events"] | ["views", _, _, "events"]:
            return OtherPath()
        case ["views", view, key]:
            return RowPath(decoded(view, "view"), decoded(key, "key"))
        case ["topics", topic, "events"]:
            return EventsPath(decoded(topic, "topic"))
    return OtherPath()


def is_open(path: str, opened: frozenset[str]) -> bool:
    """Whether this path needs no token. `opened` is what `--open` names."""
    match asked(path):
        case HealthPath():
            return True
        case DocumentsPath():
            return "documents" in opened
        case OperationsPath():
            return "metrics" in opened
    return False

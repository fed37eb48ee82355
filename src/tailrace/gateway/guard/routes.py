"""What an HTTP request asks for, as far as rights go, told by its path alone: one door for all surfaces."""

from __future__ import annotations

from dataclasses import dataclass

from tailrace.gateway.paths import decoded


@dataclass(frozen=True)
class Health:
    """Whether the gateway lives, and pages that hold nothing of the app: for everyone."""


@dataclass(frozen=True)
class Documents:
    """What the app has: names and types, no rows. `general`: there is a part for who does not say who it is."""

    general: bool = False


@dataclass(frozen=True)
class Operations:
    """What the gateway counts."""


@dataclass(frozen=True)
class Row:
    """The row of one key."""

    view: str
    key: str


@dataclass(frozen=True)
class Rows:
    """Rows of a view."""

    view: str


@dataclass(frozen=True)
class Events:
    """Events for a topic."""

    topic: str


@dataclass(frozen=True)
class Other:
    """What is looked at elsewhere: streams, which ask when they begin, and paths that are not served."""


Asked = Health | Documents | Operations | Row | Rows | Events | Other

_PAGES = ("/", "/docs", "/tailrace.js", "/favicon.ico")


def asked(path: str) -> Asked:
    """What a path asks for; raises a Problem for one that can't be read."""
    if path in _PAGES or path.startswith(("/docs/", "/health/", "/tailrace/")):
        return Health()
    if path in ("/openapi.json", "/asyncapi.json"):
        return Documents(general=path == "/openapi.json")
    if path == "/metrics":
        return Operations()
    match path.split("/")[1:]:
        case ["views", view]:
            return Rows(decoded(view, "view"))
        case ["views", _, "events"] | ["views", _, _, "events"]:
            return Other()
        case ["views", view, key]:
            return Row(decoded(view, "view"), decoded(key, "key"))
        case ["topics", topic, "events"]:
            return Events(decoded(topic, "topic"))
    return Other()


def is_open(path: str, opened: frozenset[str]) -> bool:
    """Whether nobody asks who sends a request for this path; `opened` are what `--open` names."""
    match asked(path):
        case Health():
            return True
        case Documents():
            return "documents" in opened
        case Operations():
            return "metrics" in opened
    return False

"""Rights: what the claims of a token allow, by a document that stands in the token itself or in a file of the gateway.

    {"views": {"orders": {"keys": ["{sub}"], "where": "customer_id = {sub:integer}"}, "public-*": true},
     "feeds": {"notices": ["clients/{sub}"]},
     "topics": ["ratings"],
     "operations": true}

Nothing is allowed unless it is named, and nothing that needs a claim which the token does not have. Of several names
that fit, the exact one counts, otherwise the longest that ends in `*`; `false` allows nothing. Rights that can't be
understood whole are refused whole, and logged.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from tailrace.access.filters import FilterTemplate, read_filter
from tailrace.access.patterns import KeyPattern, PatternTemplate, read_pattern
from tailrace.access.telling import tell
from tailrace.access.templates import Claims, TemplateError, Unusable, claim

_FIELDS = ("views", "feeds", "topics", "operations")

Kind = Literal["view", "feed", "topic"]


class RightsError(ValueError):
    """A document that can't be read: the place, what was expected and what came."""


@dataclass(frozen=True)
class Grant:
    """What is allowed of one view: these keys, or all if None; and only rows that match `where`, a query.

    What the keys mean depends on the columns of the view's key: see `extents`.
    """

    keys: tuple[KeyPattern, ...] | None = None
    where: str | None = None


@dataclass(frozen=True)
class _Template:
    keys: tuple[PatternTemplate, ...] | None = None
    where: FilterTemplate | None = None


# By name; None if nothing is allowed, even if a pattern fits the name.
Templates = Mapping[str, _Template | None]


@dataclass(frozen=True)
class Document:
    """A document with claims to be filled in. Each map goes from names, which may end in `*`, to what is allowed.

    `when` says which tokens it is for: each claim must be, or hold, one of the values.
    """

    views: Templates = field(default_factory=dict)
    feeds: Templates = field(default_factory=dict)
    topics: Templates = field(default_factory=dict)
    operations: bool = False
    when: Mapping[str, tuple[object, ...]] = field(default_factory=dict)

    def applies(self, claims: Claims) -> bool:
        """Whether the document is for the token with these claims."""
        return all(any(_holds(claims, name, value) for value in values) for name, values in self.when.items())


class Rights:
    """What one token allows. Claims are filled in when something is first asked for, and once."""

    def __init__(self, document: Document, claims: Claims) -> None:
        self._claims = claims
        self._among = {"view": document.views, "feed": document.feeds, "topic": document.topics}
        self._granted: dict[tuple[Kind, str], Grant | None] = {}
        self.operations = document.operations

    def view(self, name: str) -> Grant | None:
        """What is allowed of a view; None if nothing is."""
        return self._grant("view", name)

    def feed(self, name: str) -> Grant | None:
        """What is allowed of a feed, whose keys are clients; None if nothing is."""
        return self._grant("feed", name)

    def topic(self, name: str) -> bool:
        """Whether events may be sent to a topic."""
        return self.names("topic", name)

    def names(self, kind: Kind, name: str) -> bool:
        """Whether anything with this name is allowed."""
        return self._grant(kind, name) is not None

    def _grant(self, kind: Kind, name: str) -> Grant | None:
        if (kind, name) not in self._granted:
            template = _named(self._among[kind], name)
            if len(self._granted) >= 1000:  # names that clients make up
                self._granted.clear()
            try:
                self._granted[kind, name] = None if template is None else self._filled(template)
            except Unusable as error:
                tell(kind, name, str(error))
                self._granted[kind, name] = None
        return self._granted[kind, name]

    def _filled(self, template: _Template) -> Grant | None:
        where = None
        if template.where is not None:
            where = template.where.text(self._claims)
            if where is None:
                return None
        if template.keys is None:
            return Grant(None, where)
        keys = tuple(pattern for one in template.keys for pattern in one.patterns(self._claims))
        return Grant(keys, where) if keys else None


NOTHING = Document()


def read_documents(found: object) -> tuple[Document, ...]:
    """The documents of a rights file: one, or a list of which the first that applies counts. Raises RightsError."""
    if isinstance(found, list):
        return tuple(read_document(one, f"[{n}]", rules=True) for n, one in enumerate(found))
    return (read_document(found),)


def rights_of(documents: tuple[Document, ...], claims: Claims) -> Rights:
    """What a token allows by the first document that is for it."""
    return Rights(next((one for one in documents if one.applies(claims)), NOTHING), claims)


def read_document(found: object, place: str = "", *, rules: bool = False) -> Document:
    """The document in decoded JSON. Raises RightsError."""
    held = _object(found, place or "the rights")
    for name in held:
        if name not in (*_FIELDS, *(("when",) if rules else ())):
            raise RightsError(f"{place}: expected one of {', '.join(_FIELDS)}, got {name!r}".lstrip(": "))
    operations = held.get("operations", False)
    if not isinstance(operations, bool):
        raise RightsError(f"{place}.operations: expected true or false, got {operations!r}".lstrip("."))
    when = _object(held.get("when", {}), f"{place}.when")
    return Document(
        views=_names(held.get("views", {}), f"{place}.views".lstrip("."), where=True),
        feeds=_names(held.get("feeds", {}), f"{place}.feeds".lstrip(".")),
        topics=_names(held.get("topics", {}), f"{place}.topics".lstrip("."), keys=False),
        operations=operations,
        when={name: tuple(value) if isinstance(value, list) else (value,) for name, value in when.items()},
    )


def _names(found: object, place: str, *, keys: bool = True, where: bool = False) -> Templates:
    if found is True:
        return {"*": _Template()}
    if isinstance(found, list) and all(isinstance(name, str) for name in found):
        found = dict.fromkeys(found, True)
    templates: dict[str, _Template | None] = {}
    for name, value in _object(found, place).items():
        if "*" in name[:-1]:
            raise RightsError(f"{place}.{name}: expected a name, or the beginning of one and *, got * elsewhere")
        refused = value is False
        templates[name] = None if refused else _template(value, f"{place}.{name}", keys=keys, where=where)
    return templates


def _template(value: object, place: str, *, keys: bool, where: bool) -> _Template:
    if value is True:
        return _Template()
    if isinstance(value, list) and keys:
        return _Template(_patterns(value, place))
    if isinstance(value, dict) and where and value and value.keys() <= {"keys", "where"}:
        text = value.get("where", "")
        if not isinstance(text, str):
            raise RightsError(f"{place}.where: expected a query as text, got {text!r}")
        try:
            template = read_filter(text) if "where" in value else None
        except TemplateError as error:
            raise RightsError(f"{place}.where: {error}") from None
        return _Template(_patterns(value["keys"], f"{place}.keys") if "keys" in value else None, template)
    shapes = [
        "true",
        "false",
        *(["a list of keys"] if keys else []),
        *(['{"keys": […], "where": "…"}'] if where else []),
    ]
    raise RightsError(f"{place}: expected {' or '.join(shapes)}, got {value!r}")


def _patterns(value: object, place: str) -> tuple[PatternTemplate, ...]:
    if not isinstance(value, list):
        raise RightsError(f"{place}: expected a list of keys, got {value!r}")
    try:
        return tuple(read_pattern(one) for one in value)
    except TemplateError as error:
        raise RightsError(f"{place}: {error}") from None


def _object(found: object, place: str) -> dict[str, object]:
    if not isinstance(found, dict):
        raise RightsError(f"{place.lstrip('.')}: expected an object, got {type(found).__name__}")
    return found


def _named(among: Templates, name: str) -> _Template | None:
    if name in among:
        return among[name]
    fitting = [other for other in among if other.endswith("*") and name.startswith(other[:-1])]
    return among[max(fitting, key=len)] if fitting else None


def _holds(claims: Claims, name: str, value: object) -> bool:
    found = claim(claims, name)
    if isinstance(found, list):
        return any(type(one) is type(value) and one == value for one in found)
    if name == "scope" and isinstance(found, str):
        return value in found.split()
    return found is not None and type(found) is type(value) and found == value

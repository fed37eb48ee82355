"""Templates: text with claims in it, such as `clients/{sub}`.

    {sub}               the claim `sub`
    {address.country}   a claim within a claim, unless a claim has the whole name
    {sub:integer}       a text that means a whole number: 0007 is 7
    {{ and }}           a brace

A template is read before anything is filled in, so nothing in a claim is ever taken for a part of the template.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import TypeVar

T = TypeVar("T")
Claims = Mapping[str, object]

KINDS = ("integer", "text")
# The most values of a list in a claim, and the most texts that a template may give; a token is small.
MOST = 1000

_WHOLE = re.compile(r"-?[0-9]{1,38}", re.ASCII)

_PARTS = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|([{}])")
_KIND = re.compile(rf"(.+):({'|'.join(KINDS)})", re.DOTALL)
_MISSING = object()


class TemplateError(ValueError):
    """A template that can't be read. The text says why."""


class Unusable(ValueError):
    """A claim that can't be understood whole. The text says why, without the claim's value.

    A part of it would mean something else: in `not in (…)`, more.
    """


@dataclass(frozen=True)
class Placeholder:
    """The place of a claim, and the kind that it is converted to, if any."""

    claim: str
    kind: str | None = None

    def __str__(self) -> str:
        return "{" + self.claim + (f":{self.kind}" if self.kind else "") + "}"


Piece = str | Placeholder


def read_template(text: str) -> tuple[Piece, ...]:
    """The pieces of a template. Raises TemplateError."""
    pieces: list[Piece] = []
    at = 0
    for found in _PARTS.finditer(text):
        pieces.append(text[at : found.start()])
        at = found.end()
        if found[2]:
            raise TemplateError(f"expected {{claim}}, or {{{{ for a brace, got {text[found.start() : at + 20]!r}")
        pieces.append(found[0][0] if found[1] is None else _placeholder(found[1]))
    pieces.append(text[at:])
    return tuple(_joined(pieces))


def claim(claims: Claims, name: str) -> object | None:
    """The claim with a name, or None: `a.b` is `b` within `a`, unless a claim is called `a.b`."""
    found = claims.get(name, _MISSING)
    if found is not _MISSING:
        return found
    held: object = claims
    for part in name.split("."):
        if not isinstance(held, Mapping) or part not in held:
            return None
        held = held[part]
    return held


def values(claims: Claims, name: str) -> list[str | int | float | bool]:
    """The values of a claim: several if it is a list, none if it is missing or empty. Raises Unusable."""
    found = claim(claims, name)
    if found is None or found == "" or found == []:
        return []
    many = found if isinstance(found, list) else [found]
    if len(many) > MOST:
        raise Unusable(f"expected at most {MOST} values in the claim {name}, got {len(many)}")
    return [_value(one, name) for one in many]


def text_value(value: str | int | float | bool, piece: Placeholder) -> str:
    """A value as text, of the requested kind. Raises Unusable."""
    text = text_of(value)
    if text is None:
        raise Unusable(f"expected a text or a whole number in the claim {piece.claim}, got {type(value).__name__}")
    if piece.kind == "integer":
        if not _WHOLE.fullmatch(text):
            raise Unusable(f"expected a whole number in the claim {piece.claim}, got another text")
        return str(int(text))
    return text


def fill(template: tuple[Piece, ...], claims: Claims) -> list[str]:
    """Every text that a template means: one per value if a claim is a list, none if it is missing or empty.

    An empty claim gives none, because the text next to it could then mean much more than was intended. Raises
    Unusable for a claim that can't be understood whole.
    """
    choices = [[piece] if isinstance(piece, str) else _texts(claims, piece) for piece in template]
    return ["".join(chosen) for chosen in product(*bounded(choices))]


def bounded(choices: list[list[T]]) -> list[list[T]]:
    """The choices, if they have at most this many combinations. Raises Unusable for more."""
    if (number := math.prod(map(len, choices))) > MOST:
        raise Unusable(f"expected claims that come to at most {MOST} texts, got {number}")
    return choices


def text_of(value: object) -> str | None:
    """A claim as text: text itself, or a whole number; None for anything else."""
    if isinstance(value, str):
        # JSON may spell half of a surrogate pair, which no key or row can have.
        return value if value.isascii() or not any("\ud800" <= c <= "\udfff" for c in value) else None
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return None


def _value(value: object, name: str) -> str | int | float | bool:
    if isinstance(value, int) or (isinstance(value, float) and math.isfinite(value)):
        return value
    if isinstance(value, str) and value and text_of(value) is not None:
        return value
    got = "an empty text" if value == "" else type(value).__name__
    raise Unusable(f"expected texts, numbers or booleans in the claim {name}, got {got}")


def _texts(claims: Claims, piece: Placeholder) -> list[str]:
    return [text_value(one, piece) for one in values(claims, piece.claim)]


def _placeholder(inside: str) -> Placeholder:
    kind = _KIND.fullmatch(inside)
    found = Placeholder(kind[1], kind[2]) if kind is not None else Placeholder(inside)
    if not found.claim or found.claim != found.claim.strip():
        raise TemplateError(f"expected the name of a claim in braces, got {{{inside}}}")
    return found


def _joined(pieces: list[Piece]) -> Iterator[Piece]:
    held = ""
    for piece in pieces:
        if isinstance(piece, str):
            held += piece
            continue
        if held:
            yield held
        yield piece
        held = ""
    if held:
        yield held

"""Templates: text with claims in it, such as `clients/{sub}`.

    {sub}               the claim `sub`
    {address.country}   a claim within a claim, unless a claim has the whole name
    {sub:integer}       in a filter: a text that is meant as a whole number
    {{ and }}           a brace

A template is read before anything is filled in, so that nothing in a claim is ever taken for a part of the template.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product

Claims = Mapping[str, object]

KINDS = ("integer", "text")
# So many values of a list of claims are looked at; a token is small.
MOST = 1000

_PARTS = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|([{}])")
_KIND = re.compile(rf"(.+):({'|'.join(KINDS)})", re.DOTALL)
_MISSING = object()


class TemplateError(ValueError):
    """A template that can't be read; the text says why."""


@dataclass(frozen=True)
class Placeholder:
    """Where a claim is filled in, and what it is meant as where that is not what it is."""

    claim: str
    kind: str | None = None

    def __str__(self) -> str:
        return "{" + self.claim + (f":{self.kind}" if self.kind else "") + "}"


Piece = str | Placeholder


def read_template(text: str) -> tuple[Piece, ...]:
    """The pieces of a template; raises TemplateError."""
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
    """The claim of a name, or None where there is none: `a.b` is `b` within `a`, unless a claim is called `a.b`."""
    found = claims.get(name, _MISSING)
    if found is not _MISSING:
        return found
    held: object = claims
    for part in name.split("."):
        if not isinstance(held, Mapping) or part not in held:
            return None
        held = held[part]
    return held


def fill(template: tuple[Piece, ...], claims: Claims) -> list[str]:
    """Every text that a template means: one per value where a claim is a list, none where it is missing or empty.

    An empty claim gives none, because what it stands beside could then mean much more than was intended.
    """
    choices = [[piece] if isinstance(piece, str) else _texts(claim(claims, piece.claim)) for piece in template]
    return ["".join(chosen) for _, chosen in zip(range(MOST), product(*choices), strict=False)]


def text_of(value: object) -> str | None:
    """A claim as text: text itself, or a whole number; None for anything else."""
    if isinstance(value, str):
        # JSON may spell half of a pair, which is no text that a key or a row can have.
        return value if value.isascii() or not any("\ud800" <= c <= "\udfff" for c in value) else None
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return None


def _texts(value: object) -> list[str]:
    values = value[:MOST] if isinstance(value, list) else [value]
    return [text for one in values if (text := text_of(one))]


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

"""Patterns of keys: which keys of a view, or clients of a feed, rights mean.

    "{sub}"            this key
    "{sub}/*"          every key with this beginning; a `*` elsewhere is a character like any other
    ["{sub}", "*"]     for a key of several columns: one pattern per column

A key of several columns is written as a JSON array, and a claim could end an element of it early. So such keys are
decoded and compared column by column, and a text pattern with claims may not spell an array.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import product

from tailrace.access.templates import Claims, Piece, Placeholder, TemplateError, bounded, fill, read_template


@dataclass(frozen=True)
class Pattern:
    """A text or, if `open`, everything that begins with it."""

    text: str
    open: bool = False

    @property
    def anything(self) -> bool:
        return self.open and not self.text

    def matches(self, text: str) -> bool:
        return text.startswith(self.text) if self.open else text == self.text


@dataclass(frozen=True)
class ColumnPatterns:
    """One pattern for each column of a key."""

    columns: tuple[Pattern, ...]


KeyPattern = Pattern | ColumnPatterns


@dataclass(frozen=True)
class PatternTemplate:
    """A pattern with claims to be filled in."""

    columns: tuple[tuple[tuple[Piece, ...], bool], ...]
    several: bool

    def patterns(self, claims: Claims) -> Iterable[KeyPattern]:
        """The patterns of a token: several if a claim is a list, none if one is missing. Raises Unusable."""
        choices = [[Pattern(text, is_open) for text in fill(pieces, claims)] for pieces, is_open in self.columns]
        for chosen in product(*bounded(choices)):
            yield ColumnPatterns(chosen) if self.several else chosen[0]


def read_pattern(value: object) -> PatternTemplate:
    """The template of a pattern. Raises TemplateError."""
    if isinstance(value, str):
        pieces, is_open = _read(value)
        first = pieces[0] if pieces else ""
        if (
            isinstance(first, str)
            and first.lstrip().startswith("[")
            and any(isinstance(p, Placeholder) for p in pieces)
        ):
            raise TemplateError(
                f'expected an array for a key of several columns, such as ["{{sub}}", "*"], got {value!r}'
            )
        return PatternTemplate(((pieces, is_open),), several=False)
    if isinstance(value, list) and value and all(isinstance(one, str) for one in value):
        return PatternTemplate(tuple(_read(one) for one in value), several=True)
    raise TemplateError(f"expected a text, or an array of texts for a key of several columns, got {value!r}")


def _read(text: str) -> tuple[tuple[Piece, ...], bool]:
    is_open = text.endswith("*")
    return read_template(text[:-1] if is_open else text), is_open


def cells(key: str) -> list[str | None] | None:
    """The columns of a key of several, each as text or None for null; None if the text is no such key."""
    if not key.startswith("["):
        return None
    try:
        # Numbers as they are written: a double might be written differently.
        found = json.loads(key, parse_float=str, parse_int=str)
    except (ValueError, RecursionError):
        return None
    return [_text(value) for value in found] if isinstance(found, list) else None


def _text(value: object) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return json.dumps(value)

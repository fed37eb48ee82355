"""A mistake in a declaration: its place, what was expected, what came and what to do."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from tailrace.declarations import durations
from tailrace.declarations.place import Place

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}", re.ASCII)
_COLUMN = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}", re.ASCII)


@dataclass(frozen=True)
class Mistake:
    """One mistake, with all that the reader needs to fix it."""

    place: Place
    subject: str
    expected: str
    got: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.place}: {self.subject}: expected {self.expected}, got {self.got}\n    {self.remedy}"


def of_name(place: Place, what: str, name: str) -> Iterator[Mistake]:
    """Mistakes in a name, which Kafka, Redis and URLs must take unchanged."""
    if not _NAME.fullmatch(name):
        yield Mistake(
            place,
            what,
            "a name of letters, digits, '.', '_' and '-', starting with a letter or digit, at most 200 long",
            repr(name),
            f"Rename the {what}.",
        )


def of_column_name(place: Place, subject: str, name: str) -> Iterator[Mistake]:
    """Mistakes in the name of a column."""
    if not _COLUMN.fullmatch(name):
        yield Mistake(place, subject, "a column name of letters, digits and _", repr(name), "Rename the column.")
    elif name.startswith("_"):
        yield Mistake(
            place,
            subject,
            "a column name that starts with a letter",
            f"{name!r}; names with a leading _ are for record metadata",
            f'Rename the column; .with_columns(name="{name}") gives a metadata column a name of its own.',
        )


def of_duration(place: Place, subject: str, name: str, text: str | None, *, zero: bool = False) -> Iterator[Mistake]:
    """Mistakes in a duration. `zero` allows a duration of zero."""
    if text is None:
        return
    try:
        good = durations.seconds(text) > 0 or zero
    except (ValueError, TypeError):
        good = False
    if not good:
        yield Mistake(place, subject, durations.EXPECTED, f"{name}={text!r}", f"Correct {name}=….")

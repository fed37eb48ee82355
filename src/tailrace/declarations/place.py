"""The place of a declaration in the user's module."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

_HERE = str(Path(__file__).parent)


@dataclass(frozen=True)
class Place:
    """File and line, as editors and terminals link them."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


def calling_place() -> Place:
    """The nearest caller outside this package."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_HERE):
        frame = frame.f_back
    return Place(frame.f_code.co_filename, frame.f_lineno)

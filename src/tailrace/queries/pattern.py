"""LIKE: `%` stands for any text, `_` for one character; after an escape they stand for themselves.

Matching takes at most the length of the text times that of the pattern: between two `%` the first place that fits is
as good as any later one, so nothing is ever tried twice.
"""

from __future__ import annotations

from dataclasses import dataclass, field

# Stands for one character; a pattern is a text of these and of characters.
ANY = None


class _Run:
    """The part between two `%`: characters and `_`, as literal texts with their offsets."""

    __slots__ = ("_anchor", "_others", "length", "texts")

    def __init__(self, length: int, texts: tuple[tuple[int, str], ...]) -> None:
        self.length = length
        self.texts = texts
        # The longest text occurs least often.
        self._anchor = max(texts, key=lambda text: len(text[1]), default=None)
        self._others = tuple(text for text in texts if text is not self._anchor)

    def fits(self, text: str, start: int) -> bool:
        """Whether it fits at a place."""
        for offset, part in self.texts:  # noqa: SIM110 - a generator costs more than the loop
            if not text.startswith(part, start + offset):
                return False
        return True

    def find(self, text: str, start: int, end: int) -> int:
        """The first place between two places at which it fits; -1 if there is none."""
        last = end - self.length
        if self._anchor is None:
            return start if start <= last else -1
        offset, part = self._anchor
        at = text.find(part, start + offset, end)
        while at != -1 and at - offset <= last:
            if not self._others or self.fits(text, at - offset):
                return at - offset
            at = text.find(part, at + 1, end)
        return -1


@dataclass(frozen=True)
class LikePattern:
    """A pattern, spelled with a backslash as escape."""

    text: str
    _runs: tuple[_Run, ...] = field(compare=False, repr=False)

    @property
    def plain(self) -> str | None:
        """The only text that it matches; None if there are several."""
        if len(self._runs) > 1 or sum(len(part) for _, part in self._runs[0].texts) < self._runs[0].length:
            return None
        return "".join(part for _, part in self._runs[0].texts)

    @property
    def pieces(self) -> int:
        """How many literal texts it looks for; a run without any counts as one."""
        return sum(len(run.texts) or 1 for run in self._runs)

    def matches(self, text: str) -> bool:
        """Whether the whole text has this shape."""
        first, *others = self._runs
        if not others:
            return len(text) == first.length and first.fits(text, 0)
        *middle, last = others
        start, end = first.length, len(text) - last.length
        if start > end or not first.fits(text, 0) or not last.fits(text, end):
            return False
        for run in middle:
            at = run.find(text, start, end)
            if at == -1:
                return False
            start = at + run.length
        return True


def read_pattern(text: str, escape: str) -> LikePattern:
    """The pattern in a text. Raises ValueError if the escape is before anything but %, _ and itself."""
    runs: list[list[str | None]] = [[]]
    characters = iter(text)
    for character in characters:
        if character == escape:
            escaped = next(characters, "")
            if escaped not in ("%", "_", escape) or not escaped:
                raise ValueError(escape + escaped)
            runs[-1].append(escaped)
        elif character == "%":
            runs.append([])
        else:
            runs[-1].append(ANY if character == "_" else character)
    # Two `%` in a row are one: an empty run in the middle finds nothing.
    kept = [run for i, run in enumerate(runs) if run or i in (0, len(runs) - 1)]
    return LikePattern("%".join(map(_spell, kept)), tuple(map(_run, kept)))


def _spell(run: list[str | None]) -> str:
    return "".join("_" if c is ANY else "\\" + c if c in ("%", "_", "\\") else c for c in run)


def _run(run: list[str | None]) -> _Run:
    texts: list[tuple[int, str]] = []
    for i, character in enumerate(run):
        if character is ANY:
            continue
        if texts and texts[-1][0] + len(texts[-1][1]) == i:
            texts[-1] = (texts[-1][0], texts[-1][1] + character)
        else:
            texts.append((i, character))
    return _Run(len(run), tuple(texts))

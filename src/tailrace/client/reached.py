"""How far a subscription has come: positions merged into one."""

from __future__ import annotations

from tailrace.contracts.position import Position


class Reached:
    """One position, or none; per partition the highest offset that was merged into it."""

    def __init__(self) -> None:
        self._text: str | None = None
        self._lineage = ""
        self._generation = 0
        self._offsets: dict[int, int] | None = None

    def merge(self, text: str | None) -> None:
        """Merge a frame's position. One of another build replaces what was there; None changes nothing."""
        if not text:
            return
        found = _parsed(text)
        held = self._offsets
        if found is None or held is None or (found.lineage, found.generation) != (self._lineage, self._generation):
            self.set(text)
            return
        for partition, offset in found.offsets.items():
            held[partition] = max(offset, held.get(partition, 0))
        self._text = None

    def covers(self, text: str | None) -> bool:
        """Whether this position has been reached already."""
        found = _parsed(text) if text else None
        held = self._offsets
        if found is None or held is None or (found.lineage, found.generation) != (self._lineage, self._generation):
            return False
        return bool(found.offsets) and all(held.get(partition, -1) >= at for partition, at in found.offsets.items())

    def set(self, text: str | None) -> None:
        """Replace the position; None for none."""
        found = _parsed(text) if text else None
        self._text, self._offsets = text or None, None
        if found is not None:
            self._lineage, self._generation, self._offsets = found.lineage, found.generation, dict(found.offsets)

    @property
    def text(self) -> str | None:
        """The position as text."""
        if self._text is None and self._offsets is not None:
            self._text = str(Position(self._lineage, self._generation, self._offsets))
        return self._text


def _parsed(text: str) -> Position | None:
    """A position that can be merged. That of a stream whose keys were changed is kept as it is."""
    found = Position.parse(text)
    return None if found is None or found.change else found

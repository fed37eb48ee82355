"""What the store's scripts promise, as a plain model of one partition: no Redis, no Lua, no script."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tailrace.contracts.record import Change
from tailrace.store.write.writer import PositionMoved

Rows = dict[bytes, Change]


def rank(change: Change) -> tuple[int, int, bool]:
    return (change.generation, change.version, bool(change.value))


@dataclass
class Build:
    """The rows, tombstones and expiries of one build."""

    rows: Rows = field(default_factory=dict)
    gone: Rows = field(default_factory=dict)
    expiries: dict[bytes, float] = field(default_factory=dict)

    def held(self, key: bytes) -> Change | None:
        return self.rows.get(key) or self.gone.get(key)

    def supersedes(self, change: Change) -> bool:
        held = self.held(change.key)
        return held is None or rank(change) > rank(held)

    def write(self, change: Change) -> None:
        to, other = (self.rows, self.gone) if change.value else (self.gone, self.rows)
        to[change.key] = change
        other.pop(change.key, None)
        if change.value and change.expires is not None:
            self.expiries[change.key] = float(change.expires)
        else:
            self.expiries.pop(change.key, None)


@dataclass
class Model:
    """A partition; `lineage` is None if Redis has nothing of it."""

    lineage: str | None = None
    offset: int = -1
    target: int = -1
    generation: int = 0
    next: int | None = None
    dropped: int | None = None
    pruned: int | None = None
    mark: tuple[int, int, int] | None = None
    served: Build = field(default_factory=Build)
    kept: Build = field(default_factory=Build)
    old: set[bytes] = field(default_factory=set)

    def begin(self, lineage: str, target: int, generation: int, *, anew: bool) -> tuple[int, int]:
        if self.lineage != lineage or anew:
            self.__init__(lineage, -1, target, generation)  # type: ignore[misc]
        return self.offset, self.generation

    def apply(
        self, lineage: str, expected: int, reached: int, changes: Sequence[Change]
    ) -> tuple[int, int, list[Change]] | int | None:
        """Accepted, old and what is published; or where the partition is, None if that is unknown."""
        if self.lineage != lineage:
            return None
        if self.offset != expected:
            return self.offset
        floor = max(self.generation, self.dropped or 0)
        latest = max([c.generation for c in changes if c.generation > floor], default=0)
        before = self.next
        self.next = max(self.next or 0, latest) or None
        known = self.served.rows.keys() | self.served.gone.keys()
        old = [c for c in changes if c.generation < self.generation and c.value and c.key not in known]
        if self.next != before:
            self.kept = Build()
        served = [c for c in changes if c.generation == self.generation and self.served.supersedes(c)]
        kept = [c for c in changes if c.generation == self.next and self.kept.supersedes(c)]
        for build, accepted in ((self.served, served), (self.kept, kept)):
            for change in accepted:
                build.write(change)
        self.old |= {c.key for c in old}
        self.offset = reached
        return len(served) + len(kept), len(old), served

    def serve(self, lineage: str, generation: int, since: int) -> str | int | None:
        if self.lineage != lineage:
            return None
        if self.generation >= generation:
            return "served"
        if self.offset < since or self.old:
            return "waiting"
        if (self.next or 0) > generation or (self.dropped or 0) >= generation:
            self.__init__(lineage, -1, self.offset, generation)  # type: ignore[misc]
            return -1
        self.old = set(self.served.rows)
        self.served = self.kept if self.next == generation else Build()
        self.generation, self.next, self.kept = generation, None, Build()
        self.pruned = self.mark = None
        return "served"

    def moved(self, lineage: str, generation: int) -> PositionMoved | None:
        """What a writer of this build is told; None if this is the build."""
        if self.lineage != lineage:
            return PositionMoved(None)
        return None if self.generation == generation else PositionMoved(self.offset)

    def abandon(self, lineage: str, generation: int, given_up: int) -> bool | PositionMoved:
        if (moved := self.moved(lineage, generation)) is not None:
            return moved
        if self.next != given_up:
            return False
        self.next, self.dropped, self.kept = None, given_up, Build()
        return True

    def due(self, lineage: str, now: int, most: int) -> list[tuple[bytes, int, int]] | PositionMoved:
        if self.lineage != lineage:
            return PositionMoved(None)
        late = sorted((at, key) for key, at in self.served.expiries.items() if at <= now)[:most]
        found = [self.served.rows[key] for _, key in late]
        return [(change.key, change.generation, change.version) for change in found]

    def prune(
        self, lineage: str, generation: int, now: int, keep: int, batch: int | None, keys: Sequence[bytes]
    ) -> tuple[int, int, int] | PositionMoved | None:
        if (moved := self.moved(lineage, generation)) is not None:
            return moved
        if self.offset < self.target:
            return None
        horizon = -1 if self.pruned is None else self.pruned
        drop = [key for key in keys if key in self.served.gone and self.served.gone[key].offset <= horizon]
        if batch is not None and self.mark is None:
            self.mark = (self.offset, now, batch)
        elif batch is not None and self.mark is not None and now >= self.mark[1] + keep and batch >= self.mark[2] + 2:
            self.pruned = horizon = max(horizon, self.mark[0])
            self.mark = (self.offset, now, batch)
        for key in drop:
            del self.served.gone[key]
        return horizon, (now if self.mark is None else self.mark[1]) + keep, len(drop)

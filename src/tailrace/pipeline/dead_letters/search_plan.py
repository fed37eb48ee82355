"""Which records of a topic to search for dead letters; decided without I/O.

Every view and feed counts the records that it skips. If all outputs of a topic have read a range and skipped nothing,
the range holds no dead letter, and nobody has to search it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

# So many of a partition are searched at a time.
MOST = 500_000

# Partition → the offset that comes next.
Offsets = Mapping[int, int]


@dataclass(frozen=True)
class SkipReport:
    """How far one output has read the topic, and how many records it has skipped so far.

    A batch whose count got lost counts as one that skipped something. `whole`: the build began at the earliest record.
    """

    generation: int
    offsets: Offsets
    skipped: int
    whole: bool = True


@dataclass(frozen=True)
class Searching:
    """Records up to `target` are to be searched."""

    target: Offsets


@dataclass(frozen=True)
class Passing:
    """Records up to `target` are known to be good: no search is needed."""

    target: Offsets


class SearchPlan:
    """Decides which records of one topic to search, from the reports of every output that reads it."""

    def __init__(self) -> None:
        self._reports: dict[str, SkipReport] = {}
        # From where on an output has skipped nothing; None if that is not known yet.
        self._clean: dict[str, Offsets | None] = {}

    def hear(self, output: str, report: SkipReport) -> None:
        """Note the newest report of an output."""
        known = self._reports.get(output)
        if known is None or known.generation != report.generation:
            if report.whole and not report.skipped:
                self._clean[output] = {}
            else:
                self._clean[output] = report.offsets or None
        elif self._clean[output] is None or report.skipped != known.skipped:
            self._clean[output] = report.offsets or self._clean[output]
        self._reports[output] = report

    def decide(self, searched: Offsets, ends: Offsets, *, impatient: bool) -> Searching | Passing | None:
        """What to do about the records after `searched`; None if it is not known yet.

        `impatient`: do not wait any longer for outputs that are behind, or have failed.
        """
        here = {p: searched.get(p, 0) for p in ends}
        if all(here[p] >= end for p, end in ends.items()):
            return None
        if not self._reports:
            return Searching(_capped(here, ends))
        reached, vouched = self._read(max, here, ends), self._read(min, here, ends)
        if reached == here:
            return Searching(_capped(here, ends)) if impatient else None
        if self._doubtful(here):
            return Searching(_capped(here, reached))
        if vouched != here:
            return Passing(vouched)
        return Searching(_capped(here, reached)) if impatient else None

    def _read(self, choose: Callable[[Iterable[int]], int], here: Offsets, ends: Offsets) -> Offsets:
        """How far the first of the outputs has read, or the last, from here on."""
        read = {p: choose(report.offsets.get(p, 0) for report in self._reports.values()) for p in ends}
        return {p: min(end, max(here[p], read[p])) for p, end in ends.items()}

    def _doubtful(self, here: Offsets) -> bool:
        """Whether some output has skipped records from here on, or may have."""
        return any(
            clean is None or any(offset > here.get(p, 0) for p, offset in clean.items())
            for clean in self._clean.values()
        )


def _capped(here: Offsets, target: Offsets) -> Offsets:
    return {p: min(end, here[p] + MOST) for p, end in target.items()}

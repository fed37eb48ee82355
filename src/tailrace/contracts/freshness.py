"""Freshness: what materializers report of a view or feed, and what readers conclude from it. No I/O.

A report is of one view and one materializer. It holds how long rows took, from the timestamp of a source record until
the row was in the store, over the last minute: counts by length, so that the reports of several materializers add up.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

# A report that is older than this, in ms, says nothing of the present: its materializer has ended, or hangs.
SILENT = 30_000
# After this time it is removed.
FORGOTTEN = 600_000
# From so many seconds on, a store that is behind its changelog makes a view degraded.
SLOW = 30.0

_LONGEST = 2**40
_EXACT = 16
_PARTS = 8


@dataclass(frozen=True, slots=True)
class Delay:
    """How long rows took that came to the store in the last minute. Half of them took `p50_ms` or less."""

    p50_ms: int
    max_ms: int
    rows: int


@dataclass(frozen=True, slots=True)
class Report:
    """What one materializer says of a view, at the time `at`, in ms since 1970.

    `counts` has the rows of the last minute by the class of their delay (see `delay_class`), `longest` is the longest
    delay in ms. `newest` is the highest source timestamp, in ms, that this materializer has stored of the generation;
    None if it has stored nothing. `behind` is how many seconds records of the changelog have waited for the store;
    None if that is not known.
    """

    at: int
    lineage: str
    generation: int
    newest: int | None = None
    behind: float | None = None
    longest: int = 0
    counts: Mapping[int, int] = field(default_factory=dict)

    def encode(self) -> bytes:
        """Compact JSON."""
        found = {name: getattr(self, name) for name in ("at", "lineage", "generation", "newest", "behind", "longest")}
        found["counts"] = [[number, count] for number, count in self.counts.items()]
        return json.dumps(found, separators=(",", ":")).encode()

    @classmethod
    def decode(cls, data: bytes) -> Report | None:
        """The report in a value; None if it is not one, or one of another version."""
        try:
            found = json.loads(data)
            return cls(
                int(found["at"]),
                str(found["lineage"]),
                int(found["generation"]),
                None if found["newest"] is None else int(found["newest"]),
                None if found["behind"] is None else float(found["behind"]),
                int(found["longest"]),
                {int(number): int(count) for number, count in found["counts"]},
            )
        except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
            return None


@dataclass(frozen=True, slots=True)
class Freshness:
    """What all reports of a view say together.

    `delay` is None if no row came in the last minute. `newest` is the highest source timestamp in the store, in ms, and
    `behind_seconds` how long records of the changelog have waited for the store, each None if it is not known.
    `silent` is how many seconds ago the last materializer reported; None if one reports now, or if none ever has.
    `at` is when `newest` was true, in ms: the time of the newest report; None if no materializer reports.
    """

    delay: Delay | None = None
    newest: int | None = None
    behind_seconds: float | None = None
    silent: float | None = None
    at: int | None = None


def freshness(reports: Iterable[Report], lineage: str, generation: int, now: int) -> Freshness:
    """What reports say at a time in ms. Those of another changelog say nothing, those of another build no `newest`.

    `newest` is taken from every report, because what an ended materializer has stored stays stored.
    """
    found = [one for one in reports if one.lineage == lineage]
    if not found:
        return Freshness()
    newest = [one.newest for one in found if one.generation == generation and one.newest is not None]
    current = [one for one in found if now - one.at <= SILENT]
    behind = [one.behind for one in current]
    known = [seconds for seconds in behind if seconds is not None]
    return Freshness(
        _delay(current),
        max(newest, default=None),
        max(known) if known and len(known) == len(behind) else None,
        None if current else (now - max(one.at for one in found)) / 1000,
        max((one.at for one in current), default=None),
    )


def why_stale(mode: str, said: Iterable[str], found: Freshness) -> list[str]:
    """Why rows of a view may be stale, as far as catalog and store know it; empty if nothing is known.

    `mode` and `said` are those of the pipeline's progress.
    """
    reasons = []
    if mode == "failed":
        reasons.append("the pipeline has failed on it, and tries again: rows stand still until then")
    reasons += said
    if found.silent is not None:
        reasons.append(f"no materializer has reported on it for {found.silent:.0f} s: rows may stand still")
    if found.behind_seconds is not None and found.behind_seconds >= SLOW:
        reasons.append(f"the store is {found.behind_seconds:.0f} s behind its changelog")
    return reasons


def delay_class(ms: int) -> int:
    """The class of a delay: those below 16 ms are exact, the others within an eighth; there are some 300."""
    ms = min(max(ms, 0), _LONGEST)
    if ms < _EXACT:
        return ms
    shift = ms.bit_length() - 4
    return shift * _PARTS + (ms >> shift)


def class_middle(number: int) -> int:
    """The delay in the middle of a class, in ms."""
    if number < _EXACT:
        return number
    shift = number // _PARTS - 1
    return ((number - shift * _PARTS) << shift) + (1 << shift >> 1)


def _delay(reports: Iterable[Report]) -> Delay | None:
    counts: Counter[int] = Counter()
    longest = 0
    for one in reports:
        counts.update(one.counts)
        longest = max(longest, one.longest)
    rows = sum(counts.values())
    if rows == 0:
        return None
    return Delay(min(_median(counts, rows), longest), longest, rows)


def _median(counts: Mapping[int, int], rows: int) -> int:
    seen = 0
    for number in sorted(counts):
        seen += counts[number]
        if 2 * seen >= rows:
            return class_middle(number)
    return 0

"""How long rows took to the store in the last minute, and the highest source timestamp there. Does no I/O.

It is called for every batch, so of a large batch it looks at some of the changes only.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from tailrace.contracts.freshness import Report, delay_class
from tailrace.contracts.record import Change
from tailrace.store.layout.packed import Packed
from tailrace.store.layout.packed_events import PackedEvents

# The last minute is this many slots of this many seconds, and the slot that has begun.
_SLOTS = 12
_SLOT = 5
# How many changes of a batch are looked at, and how many of the last ones for the highest timestamp.
_MOST = 16
_LAST = 16
# What stands before the JSON of a packed row is shorter: four numbers of 64 bits, as text.
_HEAD = 84
# A source timestamp this many ms ahead of the clock is wrong: the store has not reached it.
_AHEAD = 5_000

Item = TypeVar("Item")


class Minute:
    """Rows of the last minute by their delay."""

    def __init__(self) -> None:
        self._slots: deque[tuple[int, Counter[int], list[int]]] = deque()

    def add(self, delays: Iterable[int], rows: int, now: float) -> None:
        """Count rows that came at `now`, in seconds. `delays`, in ms, are those of some of them, evenly chosen."""
        found = [max(0, delay) for delay in delays]
        if not found:
            return
        number = int(now) // _SLOT
        if not self._slots or self._slots[-1][0] < number:
            self._slots.append((number, Counter(), [0]))
            self._forget(number)
        _, counts, longest = self._slots[-1]
        share, rest = divmod(rows, len(found))
        for delay in found:
            counts[delay_class(delay)] += share
        counts[delay_class(found[0])] += rest
        longest[0] = max(longest[0], max(found))

    def counts(self, now: float) -> tuple[dict[int, int], int]:
        """The rows of the last minute by the class of their delay, and the longest delay in ms."""
        self._forget(int(now) // _SLOT)
        total: Counter[int] = Counter()
        for _, counts, _ in self._slots:
            total.update(counts)
        return dict(total), max((longest[0] for _, _, longest in self._slots), default=0)

    def _forget(self, number: int) -> None:
        while self._slots and self._slots[0][0] < number - _SLOTS:
            self._slots.popleft()


@dataclass
class _Held:
    lineage: str
    generation: int
    newest: int | None = None
    minute: Minute = field(default_factory=Minute)


class Delays:
    """What one materializer has stored of each view and feed. Any thread may ask; `clock` gives seconds since 1970."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._views: dict[str, _Held] = {}

    def stored(self, place: tuple[str, str, int], times: Times, *, live: bool) -> None:
        """Note that a batch is in the store; `place` is its view, lineage and generation.

        `live` says that its records were written after the partition was opened: a restore is no delay.
        """
        view, lineage, generation = place
        now = self._clock()
        ms = int(now * 1000)
        newest = max((one for one in (*times.spread, *times.last) if 0 < one <= ms + _AHEAD), default=None)
        with self._lock:
            held = self._views.get(view)
            if held is None or held.lineage != lineage:
                held = self._views[view] = _Held(lineage, generation)
            if generation > held.generation:
                held.generation, held.newest = generation, None
            if generation == held.generation and newest is not None:
                held.newest = max(newest, held.newest or 0)
            if live:
                known = [ms - one for one in times.spread if one > 0]
                held.minute.add(known, times.rows * len(known) // max(1, len(times.spread)), now)

    def reports(self, behind: Mapping[str, float | None]) -> dict[str, Report]:
        """The report of each view. This materializer reads the views in `behind`: see `Report`."""
        now = self._clock()
        at = int(now * 1000)
        with self._lock:
            return {
                view: Report(at, held.lineage, held.generation, held.newest, behind.get(view), longest, counts)
                for view, held in self._views.items()
                for counts, longest in [held.minute.counts(now)]
                if view in behind or counts
            }

    def know(self, view: str, lineage: str, generation: int) -> None:
        """Report on a view from now on, also while no records come: a partition of it was opened."""
        with self._lock:
            if view not in self._views or self._views[view].lineage != lineage:
                self._views[view] = _Held(lineage, generation)


@dataclass(frozen=True, slots=True)
class Times:
    """Source timestamps of a batch, in ms: `spread` of changes from all over it, `last` of the last ones.

    `rows` is the number of changes in the batch.
    """

    spread: Sequence[int]
    last: Sequence[int]
    rows: int


def times_of(packed: Packed, added: Sequence[Change], *, live: bool) -> Times:
    """The times of changes. Those that a materializer has added have none. `spread` is for live batches only."""
    own = {change.offset for change in added}
    count = len(packed)
    last = _times(packed.fields[2 * max(0, count - _LAST) + 1 :: 2], own)
    if not live:
        return Times((), last, count)
    if count <= _LAST:
        return Times(last, (), len(last))
    spread = _times([packed.fields[2 * n + 1] for n in _spread(range(count))], own)
    return Times(spread, last, max(len(spread), count - len(own)))


def times_of_events(packed: PackedEvents, *, live: bool) -> Times:
    """The times of events; if there are many, of the last one of some clients. `spread` is for live batches only."""
    step = 1 if packed.ordered else 2
    clients = list(packed.clients.values())
    last = _times(held[-step] for held in clients[-_LAST:])
    if not live:
        return Times((), last, packed.count)
    if packed.count <= _MOST:
        return Times(_times(event for held in clients for event in held[::step]), last, packed.count)
    return Times(_times(held[-step] for held in _spread(clients)), last, packed.count)


def _spread(items: Sequence[Item]) -> list[Item]:
    """At most `_MOST` items, from all over, the last one among them."""
    step = -(-len(items) // _MOST) or 1
    return list(items[::-step])


def _times(rows: Iterable[bytes], without: set[int] | None = None) -> list[int]:
    """The timestamps of packed rows, except those at the offsets `without`."""
    heads = [row[:_HEAD].split(b" ", 4) for row in rows]
    return [int(head[3]) for head in heads if not without or int(head[2]) not in without]

"""Reads a changelog and says what is wrong with it: plain Python, linear in its records, no product code.

At quiet, when nothing is produced and everything is processed, these must hold for every key:

    one partition    all its records are in one
    lost             a row that the fold has is there
    wrong row        it is the row of the fold, and so is every record with its version
    zombie           a key that the fold does not have is gone
    going back       the record with the highest offset has the highest generation and version
    two rows         if asked for: records of one generation and version hold the same bytes

A reader accepts a record only if its generation and version are higher than what it has. So it ends with the
first record that has the highest ones, and that record is compared with the fold.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Change:
    """A record of a changelog; `source` is the partition that an event of a feed came from."""

    key: str
    value: bytes | None
    generation: int
    version: int
    partition: int
    offset: int
    source: int = -1

    @property
    def rank(self) -> tuple[int, int]:
        return (self.generation, self.version)


def violations(
    changes: Iterable[Change], expected: Mapping[Any, Mapping[str, Any]], *, several: bool = False, exact: bool = False
) -> list[str]:
    """What is wrong with the changelog of a view that must hold the expected rows, one line each.

    several: keys are JSON arrays of several columns, and tuples in `expected`.
    exact: the events of a key come from one partition, so that every version is one row.
    """
    by_key = _by_key(changes, several)
    found = []
    for key, row in expected.items():
        if key not in by_key:
            found.append(f"lost: {_short(key)} was never written; expected {_short(row)}")
    for key, written in by_key.items():
        found += _of_key(key, written, expected.get(key), exact)
    return found


def _by_key(changes: Iterable[Change], several: bool) -> dict[Any, list[Change]]:
    found: dict[Any, list[Change]] = {}
    for change in changes:
        found.setdefault(tuple(json.loads(change.key)) if several else change.key, []).append(change)
    for written in found.values():
        written.sort(key=lambda change: (change.partition, change.offset))
    return found


def _of_key(key: Any, written: Sequence[Change], row: Mapping[str, Any] | None, exact: bool) -> list[str]:
    found = []
    name = _short(key)
    if len(partitions := {change.partition for change in written}) > 1:
        found.append(f"one partition: {name} is in {sorted(partitions)}")
    highest = max(change.rank for change in written)
    newest = [change for change in written if change.rank == highest]
    if written[-1].rank != highest:
        found.append(f"going back: {name} ends with {written[-1].rank}, after {highest}")
    for held in _distinct(newest):
        if row is None and held is not None:
            found.append(f"zombie: {name} holds {_short(held)}")
        elif row is not None and held is None:
            found.append(f"lost: {name} is gone; expected {_short(row)}")
        elif row is not None and held != row:
            found.append(f"wrong row: {name} holds {_short(held)}; expected {_short(row)}")
    if exact:
        texts = {(change.rank, change.value) for change in written}
        several = Counter(rank for rank, _ in texts)
        found += [f"two rows: {name} has {count} for {rank}" for rank, count in several.items() if count > 1]
    return found


def _distinct(changes: Sequence[Change]) -> list[Any]:
    return [None if value is None else json.loads(value) for value in {change.value: None for change in changes}]


def repeats(changes: Iterable[Change]) -> int:
    """How many records have a version that was there before, because a crash made the pipeline write it again."""
    counts = Counter((change.key, change.source, change.rank) for change in changes)
    return sum(counts.values()) - len(counts)


def feed_violations(
    changes: Iterable[Change], expected: Iterable[tuple[str, int, int, Mapping[str, Any]]], *, once: bool = True
) -> list[str]:
    """What is wrong with the changelog of a feed: every event must be there, in the order of its source partition.

    expected: key, source partition, version and row of each event; once: no event may be there twice.
    """
    events = {(key, source, version): row for key, source, version, row in expected}
    found = []
    times: Counter[tuple[str, int, int]] = Counter()
    last: dict[tuple[str, int], int] = {}
    for change in sorted(changes, key=lambda change: (change.partition, change.offset)):
        event = (change.key, change.source, change.version)
        name = f"{_short(change.key)} from partition {change.source} offset {change.version - 1}"
        row = None if change.value is None else json.loads(change.value)
        if event not in events:
            found.append(f"zombie: {name} holds {_short(row)}")
        elif row != events[event]:
            found.append(f"wrong row: {name} holds {_short(row)}; expected {_short(events[event])}")
        times[event] += 1
        before = last.get((change.key, change.source), 0)
        if times[event] == 1 and change.version < before:
            found.append(f"going back: {name} comes for the first time after offset {before - 1}")
        if times[event] > 1 and once:
            found.append(f"repeated: {name}")
        last[change.key, change.source] = max(before, change.version)
    for key, source, version in events:
        if (key, source, version) not in times:
            found.append(f"lost: {_short(key)} from partition {source} offset {version - 1}")
    return found


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:200]}… ({len(text)} characters)"

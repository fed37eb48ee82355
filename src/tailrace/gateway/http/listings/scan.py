"""One page of a listing: a scan from a place on, until there is enough.

If only rows of certain keys can match a query, these keys are read instead. Rows go out as they are stored.
Another thread decides which rows match, so that a costly query does not hold up other clients. A page looks
at a bounded number of rows: if few of them match, it has few rows, or none, and the next page goes on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from tailrace.gateway.catalog import ServedView
from tailrace.gateway.http.listings.page import ScanPlace, digest, digests
from tailrace.gateway.live.keys.reads import Reads
from tailrace.queries import Predicate
from tailrace.store.layout.row import StoredRow
from tailrace.store.layout.stored_position import StoredPosition
from tailrace.store.read.reader import KeyRead
from tailrace.store.read.scans import ScanBatch

# What one page may cost, beside its last batch: rows that it looks at, and bytes that it has.
EXAMINED = 10_000
BYTES = 4 * 1024 * 1024
_FEWEST, _MOST = 10, 500


class RowScanner(Protocol):
    """What scans rows: `tailrace.store.read.scans.Scans`."""

    async def batch(
        self, view: str, partition: int, lineage: str, *, gone: bool = False, cursor: int = 0, count: int = 100
    ) -> ScanBatch:
        """Some rows, or tombstones, of a partition."""

    async def server(self, view: str, partition: int) -> str:
        """Which server process holds a partition."""


class Moved(Exception):
    """The partition no longer has the rows that the scan began with: it serves another build, or was lost."""

    def __init__(self, partition: int, stored: StoredPosition) -> None:
        super().__init__(partition)
        self.partition = partition
        self.stored = stored


@dataclass
class ListingPage:
    """Rows, and keys that are gone. `place` is where the next page begins; None after the last page."""

    rows: dict[bytes, StoredRow] = field(default_factory=dict)
    gone: dict[bytes, StoredRow] = field(default_factory=dict)
    place: ScanPlace | None = None
    examined: int = 0
    size: int = 0

    def __len__(self) -> int:
        return len(self.rows) + len(self.gone)

    def add(self, key: bytes, row: StoredRow, *, gone: bool) -> None:
        """Take a row in. If a key comes twice, its newer row counts."""
        before = self.rows.pop(key, None) or self.gone.pop(key, None)
        if before is not None and before.rank > row.rank:
            row, gone = before, before.value is None
        (self.gone if gone else self.rows)[key] = row
        self.size += len(key) + len(row.value or b"")


Matches = Callable[[bytes], bool]


async def scan(
    source: RowScanner, view: ServedView, place: ScanPlace | None, limit: int, matches: Matches | None
) -> ListingPage:
    """A page of at most `limit` rows and keys that are gone. Raises Moved, and Unavailable."""
    if place is not None and (place.cursor or place.sent):
        server = await source.server(view.name, place.partition)
        if server != place.server:
            place = replace(place, cursor=0, server=server, sent=frozenset())
    found = ListingPage()
    while (place := _with_news(place)) is not None:
        if len(found) >= limit or found.examined >= EXAMINED or found.size >= BYTES:
            break
        wanted = limit - len(found)
        count = _MOST if matches is not None or place.after is not None else min(max(wanted, _FEWEST), _MOST)
        batch = await source.batch(
            view.name, place.partition, view.lineage, gone=place.gone, cursor=place.cursor, count=count
        )
        _check(place, batch.stored)
        found.examined += max(1, len(batch.rows))
        chosen = await _chosen(batch.rows, place, matches)
        taken = list(chosen)[:wanted]
        for key in taken:
            found.add(key, batch.rows[key], gone=chosen[key])
        if len(taken) < len(chosen):
            place = replace(place, sent=place.sent | digests(taken))
            break
        place = _next(place, batch.cursor, view.partitions)
    if place is not None and (place.cursor or place.sent) and not place.server:
        place = replace(place, server=await source.server(view.name, place.partition))
    found.place = place
    return found


async def _chosen(rows: Mapping[bytes, StoredRow], place: ScanPlace, matches: Matches | None) -> dict[bytes, bool]:
    """The keys that belong to the page, each with whether it is gone."""
    if place.sent:
        rows = {key: row for key, row in rows.items() if digest(key) not in place.sent}
    if place.after is None and matches is None:
        return dict.fromkeys(rows, False)
    if not rows:
        return {}
    return await asyncio.to_thread(choose, rows, place, matches)


def choose(rows: Mapping[bytes, StoredRow], place: ScanPlace, matches: Matches | None) -> dict[bytes, bool]:
    """Which rows or tombstones belong to a listing, each with whether its key is gone for the client.

    A client that has seen nothing of a partition holds nothing that could be gone.
    """
    seen = place.after.get(place.partition) if place.after is not None else None
    found: dict[bytes, bool] = {}
    for key, row in rows.items():
        if seen is not None and row.offset <= seen:
            continue
        there = row.value is not None and (matches is None or matches(row.value))
        if there or seen is not None:
            found[key] = not there
    return found


def _with_news(place: ScanPlace | None) -> ScanPlace | None:
    """The place, or the first one after it whose partition may hold something new to the client."""
    while place is not None and place.after is not None:
        seen = place.after.get(place.partition, -1)
        if place.offsets[place.partition] > seen and not (place.gone and seen < 0):
            return place
        place = _following(place, len(place.offsets))
    return place


def _next(place: ScanPlace, cursor: int, partitions: int) -> ScanPlace | None:
    if cursor:
        return replace(place, cursor=cursor, sent=frozenset())
    if place.after is not None and not place.gone:
        return replace(place, gone=True, cursor=0, server="", sent=frozenset())
    return _following(place, partitions)


def _following(place: ScanPlace, partitions: int) -> ScanPlace | None:
    if place.partition + 1 >= partitions:
        return None
    return replace(place, partition=place.partition + 1, gone=False, cursor=0, server="", sent=frozenset())


def _check(place: ScanPlace, stored: StoredPosition) -> None:
    generation = stored.generation if stored.generation is not None else place.generation
    if not stored.whole or generation != place.generation or (stored.offset or 0) < place.offsets[place.partition]:
        raise Moved(place.partition, stored)


def asked_keys(view: ServedView, predicates: Sequence[Predicate]) -> list[bytes] | None:
    """The keys of which every matching row has one; None if a row of any key may match."""
    if len(view.key) != 1:
        return None
    name = view.key[0].name
    asked = [predicate.equal[name] for predicate in predicates if name in predicate.equal]
    if not asked:
        return None
    return [_text(value) for value in frozenset.intersection(*asked)]


async def pick(
    reads: Reads, view: ServedView, place: ScanPlace, keys: Sequence[bytes], matches: Matches | None
) -> ListingPage:
    """The only page of a listing of some keys. Raises Moved, and Unavailable."""
    held = await reads.all(view, keys)
    return await asyncio.to_thread(_picked, view, place, dict(zip(keys, held, strict=True)), matches)


def _picked(view: ServedView, place: ScanPlace, held: dict[bytes, KeyRead], matches: Matches | None) -> ListingPage:
    found = ListingPage()
    for key, one in held.items():
        partition = view.partition(key)
        generation = one.generation if one.generation is not None else place.generation
        if not one.whole or generation != place.generation or (one.offset or 0) < place.offsets[partition]:
            raise Moved(partition, StoredPosition(one.offset, one.target, one.generation))
        if one.row is not None:
            chosen = choose({key: one.row}, replace(place, partition=partition), matches)
            for name, gone in chosen.items():
                found.add(name, one.row, gone=gone)
    return found


def _text(value: object) -> bytes:
    """A value as the key of a row spells it."""
    return (str(value).lower() if isinstance(value, bool) else str(value)).encode("utf-8", "surrogatepass")

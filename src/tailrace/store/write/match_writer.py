"""The members of queries in the store, written in step with the rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import redis

from tailrace.contracts.record import Change
from tailrace.store.connection.scripts import script_text
from tailrace.store.layout.keys import QueryNames
from tailrace.store.layout.message import QueryEvent
from tailrace.store.layout.packed import pack
from tailrace.store.layout.row import StoredRow, unpack
from tailrace.store.write.writer import Applied, Parcel, PositionMoved, Rejected, StoreWriter, applied, moved

# The most keys that are remembered as having left a query, for clients that come back.
MOST_LEFT = 10_000

QUIET, UNSETTLED, SETTLED = "quiet", "unsettled", "settled"


@dataclass(frozen=True, slots=True)
class BelievedPartition:
    """A partition as it is believed to be stored. If Redis holds another position or generation, nothing is written."""

    view: str
    partition: int
    lineage: str
    offset: int
    generation: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """What happened in queries: events in the order of their offsets, and by query their numbers, from 1.

    `expires` says when the keys of a query expire, in ms since 1970.
    """

    events: Sequence[QueryEvent]
    of: Mapping[str, Sequence[int]]
    modes: Mapping[str, str]
    expires: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Matched:
    """The batch and its outcome are in the store, except for queries whose keys are `lost`; `made` counts messages."""

    applied: Applied
    lost: list[str]
    made: int


class MatchWriter:
    """Writes changes together with what they mean for queries. Methods raise Unavailable if they fail."""

    def __init__(self, writer: StoreWriter, *, most_left: int = MOST_LEFT) -> None:
        self.writer = writer
        self._most_left = most_left
        text = f"local function apply(KEYS, ARGV)\n{script_text('apply')}\nend\n{script_text('matching')}"
        self._matching = writer.script_of(text)
        self._enlist = writer.script("enlist")
        self._settle = writer.script("settle")
        self._unsettle = writer.script("unsettle")
        self._forget_left = writer.script("forget_left")

    def names(self, place: BelievedPartition) -> QueryNames:
        """The keys of queries in a partition."""
        return QueryNames(self.writer.prefix, place.view, place.partition)

    def apply(
        self, place: BelievedPartition, reached: int, changes: Sequence[Change], outcome: Outcome
    ) -> Matched | PositionMoved | Rejected:
        """Apply changes as `StoreWriter.apply` does, and what they mean for queries, in one step.

        To write what happened in queries alone, pass no changes and the stored offset as `reached`.
        """
        names = self.names(place)
        parcel = Parcel(place.view, place.partition, place.lineage, place.offset, reached, pack(changes))
        keys, args = self.writer.script_input(parcel)
        arguments: list[Any] = [len(keys), len(args), *args]
        arguments += (place.lineage, place.generation, names.channel(place.lineage, ""), self._most_left)
        arguments.append(len(outcome.events))
        for event in outcome.events:
            arguments += (event.kind, event.key, event.offset, event.pack())
        for query, numbers in outcome.of.items():
            held = names.of(query)
            keys += (held.query, held.matches, held.left)
            arguments += (query, outcome.modes[query], outcome.expires[query], " ".join(map(str, numbers)))
        try:
            result = cast(list[Any], self._matching(keys=keys, args=arguments))
        except redis.ResponseError as error:
            return Rejected(str(error))
        found = applied(result)
        if isinstance(found, PositionMoved):
            return found
        return Matched(found, [query.decode() for query in result[3]], int(result[4]))

    def enlist(
        self, place: BelievedPartition, queries: Mapping[str, tuple[bool, int]], now: int
    ) -> dict[str, bool] | PositionMoved:
        """Begin with queries, id → (has a clock, when its keys expire). True for those that begin from nothing."""
        names = self.names(place)
        keys = [self.writer.keys(place.view, place.partition).position, names.index]
        args: list[Any] = [place.lineage, place.offset, place.generation, now]
        for query, (clock, expires) in queries.items():
            held = names.of(query)
            keys += (held.query, held.matches, held.left)
            args += (query, int(clock), expires)
        result = cast(list[bytes], self._enlist(keys, args))
        if result[0] == b"moved":
            return moved(result[1])
        return {query: found == b"fresh" for query, found in zip(queries, result[1:], strict=True)}

    def settle(self, place: BelievedPartition, queries: Sequence[str], now: int) -> list[str] | PositionMoved:
        """Say that queries are complete. Returns those whose keys are lost."""
        names = self.names(place)
        keys = [self.writer.keys(place.view, place.partition).position, *(names.of(query).query for query in queries)]
        args: list[Any] = [place.lineage, place.offset, place.generation, names.channel(place.lineage, ""), now]
        result = cast(list[bytes], self._settle(keys, [*args, *queries]))
        return moved(result[1]) if result[0] == b"moved" else [query.decode() for query in result[1:]]

    def unsettle(self, place: BelievedPartition) -> None:
        """Say that no query is complete: whoever opens a partition does not know what was evaluated before."""
        names = self.names(place)
        with self.writer.at(names.index) as client:
            found = cast(set[bytes], client.smembers(cast(str, names.index)))
        if found:
            self._unsettle([names.of(query.decode()).query for query in found], [place.offset])

    def delist(self, place: BelievedPartition, queries: Iterable[str]) -> None:
        """Forget queries."""
        names = self.names(place)
        with self.writer.at(names.index) as client:
            pipeline = client.pipeline(transaction=True)
            for query in queries:
                held = names.of(query)
                pipeline.unlink(held.query, held.matches, held.left)
                pipeline.srem(cast(str, names.index), query)
            pipeline.execute()

    def extend(self, place: BelievedPartition, expires: Mapping[str, int], last: int) -> list[str]:
        """Let the keys of queries live until a time in ms since 1970. Returns the queries whose keys are lost.

        `last` is when the last query of the partition expires.
        """
        names = self.names(place)
        # Together, so that no key of a query outlives another.
        with self.writer.at(names.index) as client:
            pipeline = client.pipeline(transaction=True)
            for query, at in expires.items():
                held = names.of(query)
                for name in (held.query, held.matches, held.left):
                    pipeline.pexpireat(name, at)
            pipeline.pexpireat(names.index, last)
            found = pipeline.execute()
        return [query for n, query in enumerate(expires) if not found[3 * n]]

    def forget_left(self, place: BelievedPartition, queries: Sequence[str], offset: int) -> int:
        """Forget which keys have left queries up to an offset. Returns how many."""
        names = self.names(place)
        keys = [name for query in queries for name in (names.of(query).query, names.of(query).left)]
        return int(cast(int, self._forget_left(keys, [offset])))

    def held(self, place: BelievedPartition, keys: Sequence[bytes]) -> list[StoredRow | None]:
        """The row or tombstone of each key. It may be outdated unless a write to the same place succeeds after it."""
        if not keys:
            return []
        names = self.writer.keys(place.view, place.partition)
        with self.writer.at(names.rows) as client:
            pipeline = client.pipeline(transaction=False)
            pipeline.hmget(cast(str, names.rows), cast(list[str], keys))
            pipeline.hmget(cast(str, names.gone), cast(list[str], keys))
            rows, gone = cast(list[list[bytes | None]], pipeline.execute())
        found = (tomb if row is None else row for row, tomb in zip(rows, gone, strict=True))
        return [None if data is None else unpack(data) for data in found]

    def scan_rows(self, place: BelievedPartition, cursor: int, count: int) -> tuple[int, dict[bytes, StoredRow]]:
        """About `count` rows from a cursor on. The cursor is 0 again after the last."""
        names = self.writer.keys(place.view, place.partition)
        with self.writer.at(names.rows) as client:
            following, rows = cast(Any, client.hscan(cast(str, names.rows), cursor, count=count))
        return int(following), {key: unpack(data) for key, data in rows.items()}

    def scan_members(
        self, place: BelievedPartition, cursors: Sequence[tuple[str, int]], count: int
    ) -> list[tuple[int, list[bytes]]]:
        """About `count` members of each query from a cursor on."""
        names = self.names(place)
        with self.writer.at(names.index) as client:
            pipeline = client.pipeline(transaction=False)
            for query, cursor in cursors:
                pipeline.zscan(cast(str, names.of(query).matches), cursor, count=count)
            return [(int(cursor), [key for key, _ in found]) for cursor, found in pipeline.execute()]

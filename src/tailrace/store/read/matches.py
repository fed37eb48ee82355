"""Queries as the gateway reads them: their members now, and what has changed since a position."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

from tailrace.store.connection.scripts import AsyncScript, script_text
from tailrace.store.connection.servers import AsyncServers
from tailrace.store.layout.keys import QueryNames, partition_keys
from tailrace.store.layout.row import StoredRow, unpack


@dataclass(frozen=True, slots=True)
class Members:
    """What a partition holds of a query at one moment, with its offset and generation at that moment.

    `rows` are all members, or those that are newer than the position asked for. `left` are the keys that have
    left since that position, with the offset at which they did. `number` is that of the last message before
    this moment. `next` says where the next page begins; None if this is the last one.
    """

    offset: int
    generation: int
    number: int
    rows: dict[bytes, StoredRow]
    left: dict[bytes, int]
    next: int | None = None


@dataclass(frozen=True, slots=True)
class Offsets:
    """Like `Members`, with the offsets of the members' rows only."""

    offset: int
    generation: int
    number: int
    held: dict[bytes, int]
    next: int | None


@dataclass(frozen=True, slots=True)
class Head:
    """How far a complete query is in a partition: its generation, and the number of its last message."""

    generation: int
    number: int


@dataclass(frozen=True, slots=True)
class NotReady:
    """The query is not complete now: ask again after its channel has said `ready`."""


@dataclass(frozen=True, slots=True)
class NotResumable:
    """The position can't be used: read all members. `reason` is one of

    generation: the position is of another build
    clock: the query has now(), and what comes or goes by the clock has no offset
    horizon: the store no longer knows what has left since
    break: the query was not evaluated there, so the position is from a store that has been rolled back
    ahead: the store has not come as far
    """

    reason: str


class Matches:
    """Reads queries. Every method raises Unavailable when it fails."""

    def __init__(self, servers: AsyncServers, prefix: str) -> None:
        self._prefix = prefix
        self._servers = servers
        self._members = AsyncScript(servers, script_text("members"))

    async def snapshot(
        self, view: str, partition: int, lineage: str, query: str, *, page: int | None = None, most: int | None = None
    ) -> Members | NotReady:
        """All members of a query in a partition; or at most `most` of them, from where the page before has ended.

        Each page has its own moment. A reader that also has every message after the first page has seen
        everything.
        """
        arguments = [b"", b"", _text(page), _text(most), b"rows"]
        result = await self._read(view, partition, lineage, query, arguments)
        return _members(result) if result[0] == b"members" else NotReady()

    async def suffix(
        self,
        view: str,
        partition: int,
        lineage: str,
        query: str,
        generation: int,
        after: int,
        *,
        most: int | None = None,
    ) -> Members | NotReady | NotResumable:
        """What has changed for a reader that has seen everything of a generation up to the offset `after`.

        With `most`, this is the first page of the members, and everything that has left; `snapshot` has the
        next pages.
        """
        arguments = [b"%d" % generation, b"%d" % after, b"", _text(most), b"rows"]
        result = await self._read(view, partition, lineage, query, arguments)
        if result[0] == b"reset":
            return NotResumable(result[1].decode())
        return _members(result) if result[0] == b"members" else NotReady()

    async def offsets(
        self, view: str, partition: int, lineage: str, query: str, *, page: int | None = None, most: int | None = None
    ) -> Offsets | NotReady:
        """Like `snapshot`, without the rows."""
        result = await self._read(view, partition, lineage, query, [b"", b"", _text(page), _text(most), b"offsets"])
        if result[0] != b"members":
            return NotReady()
        _, offset, generation, number, held, _, following = result
        return Offsets(int(offset), int(generation), int(number), _scores(held), int(following) if following else None)

    async def heads(self, asked: Sequence[tuple[str, int, str, str]]) -> list[Head | None]:
        """How far each (view, partition, lineage, query) is; None if it is not complete."""
        names = [QueryNames(self._prefix, view, partition).of(query).query for view, partition, _, query in asked]
        found: list[Head | None] = [None] * len(asked)
        for numbers in await self._servers.together(names):
            async with self._servers.at(names[numbers[0]]) as redis:
                pipeline = redis.pipeline(transaction=False)
                for n in numbers:
                    pipeline.hmget(cast(str, names[n]), ["lineage", "generation", "sent", "ready"])
                answers = await pipeline.execute()
            for n, (lineage, generation, sent, ready) in zip(numbers, answers, strict=True):
                if ready is not None and lineage == asked[n][2].encode():
                    found[n] = Head(int(generation), int(sent))
        return found

    def channel(self, view: str, partition: int, lineage: str, query: str) -> bytes:
        """The channel of a query's messages."""
        return QueryNames(self._prefix, view, partition).channel(lineage, query)

    async def _read(self, view: str, partition: int, lineage: str, query: str, arguments: Sequence[bytes]) -> list[Any]:
        names, held = partition_keys(self._prefix, view, partition), QueryNames(self._prefix, view, partition).of(query)
        keys = [names.position, names.rows, held.query, held.matches, held.left]
        return cast(list[Any], await self._members(keys=keys, args=[lineage, *arguments]))


def _members(result: list[Any]) -> Members:
    _, offset, generation, number, rows, left, following = result
    return Members(
        int(offset),
        int(generation),
        int(number),
        {key: unpack(row) for key, row in zip(rows[::2], rows[1::2], strict=True)},
        _scores(left),
        int(following) if following else None,
    )


def _scores(found: list[bytes]) -> dict[bytes, int]:
    return {key: int(score) for key, score in zip(found[::2], found[1::2], strict=True)}


def _text(number: int | None) -> bytes:
    return b"" if number is None else b"%d" % number

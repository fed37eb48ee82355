"""The gateway's side of queries in the store: their members now, and what has changed since a position."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

from tailrace.store.async_servers import AsyncServers
from tailrace.store.keys import QueryNames, partition_keys
from tailrace.store.row import Row, unpack
from tailrace.store.scripts import AsyncScript, script_text


@dataclass(frozen=True, slots=True)
class Members:
    """What a partition holds of a query, at one moment: up to which offset, and of which generation.

    `rows` are all members, or those that are newer than what was asked for; `left` are keys that have left since then,
    with the offset at which they did. `number` is that of the last message that was published before.
    """

    offset: int
    generation: int
    number: int
    rows: dict[bytes, Row]
    left: dict[bytes, int]


@dataclass(frozen=True, slots=True)
class NotReady:
    """The query is not complete now: ask again after `ready` was published on its channel."""


@dataclass(frozen=True, slots=True)
class Reset:
    """The position can't be honoured: read all members. `reason` is one of

    generation: it is of another build. clock: the query has now(), whose comings and goings have no offset.
    horizon: it is no longer known what has left since. break: the query was not evaluated there, so the position is
    from a store that has been rolled back. ahead: the store has not come as far.
    """

    reason: str


class Matches:
    """Reads queries. Every method raises Unavailable when it fails."""

    def __init__(self, servers: AsyncServers, prefix: str) -> None:
        self._prefix = prefix
        self._members = AsyncScript(servers, script_text("members"))

    async def snapshot(self, view: str, partition: int, lineage: str, query: str) -> Members | NotReady:
        """All members of a query in a partition."""
        result = await self._read(view, partition, lineage, query, b"", b"")
        return _members(result) if result[0] == b"members" else NotReady()

    async def suffix(
        self, view: str, partition: int, lineage: str, query: str, generation: int, after: int
    ) -> Members | NotReady | Reset:
        """What has changed for who has seen everything of a generation up to the offset `after`."""
        result = await self._read(view, partition, lineage, query, b"%d" % generation, b"%d" % after)
        if result[0] == b"reset":
            return Reset(result[1].decode())
        return _members(result) if result[0] == b"members" else NotReady()

    def channel(self, view: str, partition: int, lineage: str, query: str) -> bytes:
        """The channel that the messages of a query are published on."""
        return QueryNames(self._prefix, view, partition).channel(lineage, query)

    async def _read(
        self, view: str, partition: int, lineage: str, query: str, generation: bytes, after: bytes
    ) -> list[Any]:
        names, held = partition_keys(self._prefix, view, partition), QueryNames(self._prefix, view, partition).of(query)
        keys = [names.position, names.rows, held.query, held.matches, held.left]
        return cast(list[Any], await self._members(keys=keys, args=[lineage, generation, after]))


def _members(result: list[Any]) -> Members:
    _, offset, generation, number, rows, left = result
    return Members(
        int(offset),
        int(generation),
        int(number),
        {key: unpack(row) for key, row in zip(rows[::2], rows[1::2], strict=True)},
        {key: int(score) for key, score in zip(left[::2], left[1::2], strict=True)},
    )

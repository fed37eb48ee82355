"""Reads of single keys, made together: while one read of a partition is under way, the next ones gather."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Protocol

from tailrace.gateway.catalog import ServedView
from tailrace.store.read.reader import KeyRead

_BATCH = 200

_Group = tuple[str, int, str]


class RowSource(Protocol):
    """What reads rows: `tailrace.store.read.reader.Reader`."""

    async def held(self, view: str, partition: int, lineage: str, keys: Sequence[bytes]) -> list[KeyRead]:
        """What some keys of one partition hold."""


class Reads:
    """Reads what keys hold. A thousand clients that ask at once cost a few round trips."""

    def __init__(self, source: RowSource) -> None:
        self._source = source
        self._asked: dict[_Group, dict[bytes, asyncio.Future[KeyRead]]] = {}
        self._tasks: dict[_Group, asyncio.Task[None]] = {}

    async def held(self, view: ServedView, key: bytes) -> KeyRead:
        """What a key holds, read after this call; raises what the source raises."""
        # Shielded, because another caller may wait for the same key.
        return await asyncio.shield(self._ask(view, key))

    async def all(self, view: ServedView, keys: Sequence[bytes]) -> list[KeyRead]:
        """What keys hold, read after this call; those of one partition at one moment, up to 200 of them."""
        asked = [self._ask(view, key) for key in keys]
        return [await asyncio.shield(one) for one in asked]

    def _ask(self, view: ServedView, key: bytes) -> asyncio.Future[KeyRead]:
        group = (view.name, view.partition(key), view.lineage)
        asked = self._asked.setdefault(group, {})
        if key not in asked:
            asked[key] = asyncio.get_running_loop().create_future()
        if group not in self._tasks:
            self._tasks[group] = asyncio.create_task(self._read(group))
        return asked[key]

    async def _read(self, group: _Group) -> None:
        view, partition, lineage = group
        try:
            while asked := self._asked.pop(group, None):
                keys = list(asked)
                for first in range(0, len(keys), _BATCH):
                    batch = keys[first : first + _BATCH]
                    try:
                        found = await self._source.held(view, partition, lineage, batch)
                    except Exception as error:
                        for key in batch:
                            asked[key].set_exception(error)
                            asked[key].exception()  # the callers may be gone
                    else:
                        for key, held in zip(batch, found, strict=True):
                            asked[key].set_result(held)
        finally:
            del self._tasks[group]

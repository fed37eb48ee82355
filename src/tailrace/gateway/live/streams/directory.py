"""Streams of clients: any gateway serves any step of any of them.

Each step is written to the commands topic, which survives the loss of Redis, and then to Redis, which every
gateway reads. If Redis lacks a stream, one gateway at a time searches the topic, and writes all lost streams
back. If the time of a stream has passed, a gateway that has used it writes the record that ends it.
"""

from __future__ import annotations

import asyncio
import heapq
import secrets
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

from tailrace.contracts.commands import Command, NotACommand, Stream, decode_command
from tailrace.errors import TailraceError
from tailrace.gateway.budgets import Budgets
from tailrace.gateway.live.commands import CommandWriter
from tailrace.gateway.problems import Problem, kafka_away, unavailable
from tailrace.kafka.async_delivery import LARGEST
from tailrace.store.connection.outages import Unavailable
from tailrace.store.read.streams import Kept, Streams

# What the id of a client's stream begins with.
CLIENTS = "s-"
# How long a search for lost streams may take, and how long to wait before the next one, in ms.
_SEARCH, _REST = 30_000, 5_000
_ATTEMPTS = 20
_RETRY = 5.0


class CommandsTopic(Protocol):
    """Reads the commands topic from its start: `tailrace.kafka.commands_topic.CommandsReader`."""

    def read_whole(self) -> dict[str, bytes]:
        """The newest value per stream."""

    def close(self) -> None: ...


class StreamDirectory:
    """Reads and changes streams. Raises a Problem, or Unavailable if Redis is away.

    `topic` opens a reader of the commands topic; None if the gateway has no Kafka. `look`: see `Timing`.
    """

    def __init__(
        self,
        store: Streams,
        commands: CommandWriter,
        topic: Callable[[], CommandsTopic] | None,
        budgets: Budgets,
        look: float,
    ) -> None:
        self.store = store
        self._look = look
        self._budgets = budgets
        self._commands = commands
        self._topic = topic
        self._looks: list[tuple[float, str]] = []
        # When the time of each stream will have passed, if no client uses it.
        self._watched: dict[str, float] = {}

    async def open(
        self, view: str, keys: tuple[str, ...] | None, where: str | None, ttl: int, user: str, cost: int = 0
    ) -> Stream:
        """Open a stream of a user. `cost` is that of its query, which is computed from now on."""
        id = CLIENTS + secrets.token_urlsafe(18)
        stream = Stream(id, view, keys, where, begun=False, expires=_expires(ttl), ttl=ttl)
        opened = Command("open", stream)
        self._budgets.queries.check(user, cost)
        self._write(opened, user)
        self._budgets.queries.hold(id, user, cost)
        await self._commands.write(opened)
        await self.store.put(id, None, opened.encode(), ttl * 1000)
        return stream

    async def get(self, id: str, *, keep: bool = False) -> Stream:
        """A stream. With `keep`, this counts as a use: it is kept for its time from now on."""
        kept = await self._found(id)
        stream = _decoded(id, kept)
        if keep:
            await self.store.keep(id, stream.ttl * 1000)
            self._watch(id, stream.ttl)
            return replace(stream, expires=_expires(stream.ttl))
        return replace(stream, expires=int(time.time() * 1000) + kept.left)

    async def change(self, id: str, command: str, change: Callable[[Stream], Stream], user: str) -> Stream:
        """Change a stream for a user. `change` may raise a Problem, and may be called again.

        If it changes nothing, nothing is written. The stream is kept for its time, as by any use.
        """
        for _ in range(_ATTEMPTS):
            kept = await self._found(id)
            before = _decoded(id, kept)
            after = change(before)
            if after == before:
                return await self.get(id, keep=True)
            stream = replace(after, expires=_expires(before.ttl))
            done = Command(command, stream)
            self._write(done, user)
            await self._commands.write(done)
            if await self.store.put(id, kept.revision, done.encode(), stream.ttl * 1000):
                return stream
        raise unavailable("busy stream", "Ask again: others were changing the stream at the same time.", stream=id)

    async def end(self, id: str) -> None:
        for _ in range(_ATTEMPTS):
            kept = await self._found(id)
            await self._commands.end(id)
            if await self.store.put(id, kept.revision, None, _decoded(id, kept).ttl * 1000):
                self._budgets.ended(id)
                # Once more: another gateway may have written a refresh behind the end, and checked for it too early.
                self._commands.later(id, None)
                return
        raise unavailable("busy stream", "Ask again: others were changing the stream at the same time.", stream=id)

    async def refresh(self, stream: Stream, *, command: bool = True) -> Stream | None:
        """Keep a stream that has a connection here, even if Redis has lost it; None if it has ended."""
        kept = await self.store.get(stream.id, keep=stream.ttl * 1000)
        if kept is None:
            stream = replace(stream, expires=_expires(stream.ttl))
            await self.store.put(stream.id, None, Command("refresh", stream).encode(), stream.ttl * 1000)
        elif kept.text is None:
            return None
        else:
            stream = replace(_decoded(stream.id, kept), expires=_expires(stream.ttl))
        self._watch(stream.id, stream.ttl)
        if command:
            self._commands.later(stream.id, Command("refresh", stream), lambda: self._has_ended(stream.id))
        return stream

    async def _has_ended(self, id: str) -> bool:
        try:
            kept = await self.store.get(id)
        except Unavailable:
            return False
        return kept is not None and kept.text is None

    async def tend(self) -> None:
        """Write the end of streams whose time has passed, and stop counting streams that have ended."""
        now = time.monotonic()
        while self._looks and self._looks[0][0] <= now:
            _, id = heapq.heappop(self._looks)
            end = self._watched.pop(id)
            try:
                kept = await self.store.get(id)
            except Unavailable:
                self._watch(id, _RETRY)
                raise
            if kept is not None and kept.text is not None:
                self._watch(id, kept.left / 1000)
                continue
            if kept is None and end > now:
                # Redis may have lost the stream.
                self._watch(id, end - now)
                continue
            self._budgets.ended(id)
            if kept is None:
                self._commands.later(id, None)

    def __len__(self) -> int:
        return len(self._watched)

    async def _found(self, id: str) -> Kept:
        kept = await self.store.get(id)
        if kept is None and id.startswith(CLIENTS):
            await self._search()
            kept = await self.store.get(id)
        if kept is None or kept.text is None:
            raise Problem(
                404,
                "unknown stream",
                expected="the id of a stream that is in use",
                got=id[:100],
                remedy="It has ended, or nobody was connected for its ttl: open another with POST /streams.",
            )
        return kept

    async def _search(self) -> None:
        """Write back what Redis has lost, or wait for the gateway that does so."""
        if self._topic is None:
            return
        if not await self.store.search(_SEARCH):
            for _ in range(_SEARCH // 100):
                if not await self.store.is_searching():
                    return
                await asyncio.sleep(0.1)
            return
        try:
            records = await asyncio.to_thread(self._read)
        except TailraceError as error:
            await self.store.searched(1)
            raise kafka_away(error) from None
        now = int(time.time() * 1000)
        for id, value in records.items():
            try:
                stream = decode_command(id, value).stream
            except NotACommand:
                continue
            if id.startswith(CLIENTS) and stream.expires > now:
                await self.store.put(id, None, value, stream.expires - now)
        await self.store.searched(_REST)

    def _read(self) -> dict[str, bytes]:
        reader = self._topic() if self._topic is not None else None
        if reader is None:
            return {}
        try:
            return reader.read_whole()
        finally:
            reader.close()

    def _write(self, command: Command, user: str) -> None:
        """Count a command that is about to be written; raises a Problem."""
        self._budgets.write(command.stream.id, user, _check_size(command))
        # Even if the write fails: then a look finds no stream, and stops counting it.
        self._watch(command.stream.id, command.stream.ttl)

    def _watch(self, id: str, seconds: float) -> None:
        """Check after so many seconds, or sooner, whether a stream still exists: it may end elsewhere."""
        if id not in self._watched:
            now = time.monotonic()
            end = self._watched[id] = now + seconds + 1
            heapq.heappush(self._looks, (min(end, now + self._look), id))


def _check_size(command: Command) -> int:
    """How many bytes a command is written as. Raises a Problem if Kafka would not take it as one record."""
    size = len(command.encode())
    if size > LARGEST:
        raise Problem(
            413,
            "stream too large",
            expected=f"keys and a query that fit in {LARGEST} bytes as JSON",
            got=f"{size} bytes",
            remedy="Open several streams, or follow a query.",
        )
    return size


def _expires(ttl: int) -> int:
    return int(time.time() * 1000) + ttl * 1000


def _decoded(id: str, kept: Kept) -> Stream:
    try:
        return decode_command(id, kept.text or b"").stream
    except NotACommand as error:
        raise Problem(
            404,
            "unreadable stream",
            expected="a stream as this gateway writes it",
            got=str(error)[:200],
            remedy="Open another with POST /streams.",
        ) from None

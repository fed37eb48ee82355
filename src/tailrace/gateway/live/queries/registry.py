"""All queries that are followed here, and the streams that have them evaluated.

With its first client, the gateway joins a query's channels and opens one stream for it, which it refreshes
while the query has clients here. It keeps the query for a while after the last client, so that one that comes
back finds it complete. If the gateway dies, the stream expires.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Sequence
from functools import partial

from tailrace.contracts.commands import Command, Stream
from tailrace.gateway.catalog import ServedCatalog, ServedView
from tailrace.gateway.live.channels import ChannelRegistry
from tailrace.gateway.live.commands import CommandWriter
from tailrace.gateway.live.positions import rebuilt
from tailrace.gateway.live.predicates import Predicates
from tailrace.gateway.live.queries.repair import PAGE, QueryPartition
from tailrace.gateway.live.queries.watched import MOST_HELD, MOST_RECENT, QueryFollower, WatchedQuery
from tailrace.gateway.live.tick import Tick
from tailrace.gateway.metrics import Metrics
from tailrace.gateway.problems import unknown_view
from tailrace.gateway.timing import Timing
from tailrace.queries import Predicate
from tailrace.store.connection.outages import Unavailable
from tailrace.store.read.matches import Matches
from tailrace.store.read.reader import Reader

log = logging.getLogger(__name__)

# What the id of a gateway's own stream begins with. No client can follow one.
OWN = "q-"
# What all queries together may hold: members' offsets, and bytes of updates for clients that are behind.
_MOST_HELD_BY_ALL = 1_000_000
_MOST_RECENT_OF_ALL = 256 * 1024 * 1024

_Name = tuple[str, str, int, str]


class _Open:
    """A followed query, its partitions, its stream, and when it was last refreshed and last had a client."""

    def __init__(
        self, followed: WatchedQuery, parts: list[QueryPartition], opening: asyncio.Task[None], stream: str
    ) -> None:
        self.followed = followed
        self.parts = parts
        self.opening = opening
        self.stream = stream
        self.refreshed = self.used = time.monotonic()


class QueryRegistry:
    """Followed queries by (view, lineage, generation, digest), and what subscriptions of queries need."""

    def __init__(
        self,
        channels: ChannelRegistry,
        matches: Matches,
        reader: Reader,
        known: ServedCatalog,
        predicates: Predicates,
        commands: CommandWriter,
        tick: Tick,
        metrics: Metrics,
        timing: Timing,
        *,
        most_held: int = MOST_HELD,
        most_recent: int = MOST_RECENT,
        page: int = PAGE,
    ) -> None:
        self.matches = matches
        self.reader = reader
        self.metrics = metrics
        self.timing = timing
        self.page = page
        self._channels = channels
        self._known = known
        self._predicates = predicates
        self._commands = commands
        self._tick = tick
        self._limits = (most_held, most_recent)
        self._token = secrets.token_hex(6)
        self._count = 0
        self._held: dict[_Name, _Open] = {}
        self._parts: dict[bytes, QueryPartition] = {}

    def __len__(self) -> int:
        return len(self._held)

    async def open(self, view: ServedView, text: str, predicate: Predicate) -> WatchedQuery:
        """The watched query of a text. Raises a Problem if materializers can't be asked to evaluate it."""
        name = (view.name, view.lineage, view.generation, predicate.digest)
        held = self._held.get(name)
        if held is None:
            held = self._held[name] = self._begin(view, text, predicate)
        held.used = time.monotonic()
        try:
            await asyncio.shield(held.opening)
        except Exception:
            self._end(name, held)
            raise
        return held.followed

    async def enlist(self, follower: QueryFollower, name: str, text: str) -> WatchedQuery:
        """Have a client follow a query of a view, which may have been rebuilt since the client asked."""
        while True:
            view = self._known.views.get(name)
            if view is None:
                raise unknown_view(name)
            _, predicate = await self._predicates.parse(text, view.columns)
            followed = await self.open(view, text, predicate)
            # If it was built anew meanwhile, `rebuild` did not know of this client.
            if self._known.views.get(name) == view:
                break
        followed.followers.add(follower)
        self.metrics.followers.inc()
        return followed

    def leave(self, follower: QueryFollower, followed: WatchedQuery) -> None:
        """Note that a client no longer follows a query."""
        if follower in followed.followers:
            followed.leave(follower)
            self.metrics.followers.dec()
            held = self._held.get(_name(followed))
            if held is not None:
                held.used = time.monotonic()

    async def reached(self, followed: WatchedQuery, partition: int, number: int) -> None:
        """Wait until every message up to a number was taken in. If one does not come in time, read."""
        course = followed.courses[partition]
        while course.number < number:
            try:
                async with asyncio.timeout(self.timing.late):
                    await followed.settled(lambda: course.number >= number)
            except TimeoutError:
                held = self._held.get(_name(followed))
                if held is not None and course.live:
                    held.parts[partition].read()

    def recovered(self) -> None:
        """The pub/sub link was replaced: messages may have been lost."""
        for part in tuple(self._parts.values()):
            part.read()

    def rebuild(self, views: set[str]) -> None:
        """Start the clients of rebuilt views again, with a `reset`.

        A client that has not begun to come in was told nothing of the build before, and is judged by its own
        position.
        """
        for name, held in tuple(self._held.items()):
            if name[0] not in views:
                continue
            view = self._known.views.get(name[0])
            for follower in tuple(held.followed.followers):
                if follower.begun and view is not None:
                    follower.again(None, rebuilt(view))
                else:
                    follower.again(follower.position, follower.reset)
            self._end(name, held)
            self._commands.later(held.stream, None)

    async def run(self) -> None:
        """Refresh streams, end those without clients, and read what pub/sub has lost, until cancelled."""
        checked = time.monotonic()
        while True:
            await asyncio.sleep(min(1.0, self.timing.sweep, self.timing.query_lease / 6))
            self._tend(time.monotonic())
            if time.monotonic() - checked >= self.timing.sweep:
                try:
                    await find_lost(tuple(self._parts.values()), self.matches, self.timing.late)
                except Unavailable as error:
                    log.debug("queries=unchecked error=%r", str(error))
                checked = time.monotonic()

    def _begin(self, view: ServedView, text: str, predicate: Predicate) -> _Open:
        held, recent = self._limits
        followed = WatchedQuery(view, text, predicate, self._tick, self.metrics, most_held=held, most_recent=recent)
        parts = []
        for number in range(view.partitions):
            channel = self.matches.channel(view.name, number, view.lineage, predicate.digest)
            part = QueryPartition(
                followed,
                number,
                self.matches,
                partial(self._channels.joined, channel),
                self.metrics,
                self.timing,
                page=self.page,
            )
            self._parts[channel] = part
            self._channels.join(channel, part)
            part.read()
            parts.append(part)
        self._count += 1
        stream = f"{OWN}{self._token}-{self._count}"
        opening = asyncio.create_task(self._commands.write(self._command("open", stream, followed)))
        opening.add_done_callback(lambda task: task.cancelled() or task.exception())
        return _Open(followed, parts, opening, stream)

    def _end(self, name: _Name, held: _Open) -> None:
        """Stop following a query; the caller writes that its stream has ended."""
        if self._held.get(name) is not held:
            return
        del self._held[name]
        for part in held.parts:
            part.close()
            view = held.followed.view
            channel = self.matches.channel(view.name, part.partition, view.lineage, held.followed.query)
            self._parts.pop(channel, None)
            self._channels.leave(channel, part)

    def _tend(self, now: float) -> None:
        for name, held in tuple(self._held.items()):
            if not held.opening.done():
                continue
            if not held.followed.followers and now - held.used >= self.timing.linger:
                self._end(name, held)
                self._commands.later(held.stream, None)
            elif now - held.refreshed >= self.timing.query_lease / 3:
                held.refreshed = now
                self._commands.later(held.stream, self._command("refresh", held.stream, held.followed))

        bound(self.followed())

    def _command(self, command: str, stream: str, followed: WatchedQuery) -> Command:
        expires = int((time.time() + self.timing.query_lease) * 1000)
        return Command(command, Stream(stream, followed.view.name, None, followed.text, True, expires))

    def followed(self) -> list[WatchedQuery]:
        return [held.followed for held in self._held.values()]


def _name(followed: WatchedQuery) -> _Name:
    return (followed.view.name, followed.view.lineage, followed.view.generation, followed.query)


async def find_lost(parts: Sequence[QueryPartition], matches: Matches, late: float) -> None:
    """Ask the store for the number of each query's last message, and read if it did not come within `late` seconds.

    Raises Unavailable.
    """
    asked = [(p.followed.view.name, p.partition, p.followed.view.lineage, p.followed.query) for p in parts]
    taken = [part.course.number for part in parts]
    heads = await matches.heads(asked) if asked else []
    behind = []
    for part, head, number in zip(parts, heads, taken, strict=True):
        if head is None or not part.course.live:
            continue
        if head.number < number:
            # The store was rolled back, and gives the same numbers again.
            part.read()
        elif head.number > part.course.number:
            behind.append((part, head.number))
    if behind:
        await asyncio.sleep(late)
    for part, number in behind:
        if part.course.live and number > part.course.number:
            part.read()


def bound(
    followed: Sequence[WatchedQuery], most_held: int = _MOST_HELD_BY_ALL, most_recent: int = _MOST_RECENT_OF_ALL
) -> None:
    """If all queries together hold too much, let the largest ones forget."""
    members = sum(one.held_count() for one in followed)
    for one in sorted(followed, key=WatchedQuery.held_count, reverse=True):
        if members <= most_held:
            break
        members -= one.held_count()
        one.drop_held()
    recent = sum(one.recent.bytes for one in followed)
    for one in sorted(followed, key=lambda one: one.recent.bytes, reverse=True):
        if recent <= most_recent:
            break
        recent -= one.recent.bytes
        one.forget_recent()

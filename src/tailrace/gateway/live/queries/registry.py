"""All queries that are followed here, and the streams that have them evaluated.

A query is followed from its first client on: its channels are joined, and one stream is opened for it, which is
refreshed while it has clients here. It is kept for a while after the last one, so that who comes back finds it
complete. Of a gateway that dies, the stream expires.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from functools import partial

from tailrace.contracts.commands import Command, Stream
from tailrace.gateway.catalog import Known, KnownView
from tailrace.gateway.connection.close_reasons import FAULT
from tailrace.gateway.live.positions import rebuilt
from tailrace.gateway.live.predicates import Predicates
from tailrace.gateway.live.queries.repair import PAGE, Mending
from tailrace.gateway.live.queries.subscription import QuerySubscription
from tailrace.gateway.live.queries.upkeep import bound, find_lost
from tailrace.gateway.live.queries.watched import MOST_HELD, MOST_RECENT, FollowedQuery
from tailrace.gateway.live.streams.commands import Commanding
from tailrace.gateway.metrics import Metrics
from tailrace.gateway.timing import Timing
from tailrace.gateway.unknown import unknown_view
from tailrace.queries import Predicate
from tailrace.store.layout.message import unpack_message
from tailrace.store.read.channels import Channels
from tailrace.store.read.matches import Matches
from tailrace.store.read.reader import Unavailable

log = logging.getLogger(__name__)

# What the id of a gateway's own stream begins with: no client is served one.
OWN = "q-"

_Name = tuple[str, str, int, str]


class _Held:
    """A followed query, its partitions, its stream, and when it was last refreshed and last had a client."""

    def __init__(self, followed: FollowedQuery, parts: list[Mending], opening: asyncio.Task[None], stream: str) -> None:
        self.followed = followed
        self.parts = parts
        self.opening = opening
        self.stream = stream
        self.refreshed = self.used = time.monotonic()


class Queries:
    """Followed queries by (view, lineage, generation, digest)."""

    def __init__(
        self,
        channels: Channels,
        matches: Matches,
        known: Known,
        predicates: Predicates,
        commanding: Commanding,
        metrics: Metrics,
        timing: Timing,
        *,
        most_held: int = MOST_HELD,
        most_recent: int = MOST_RECENT,
        page: int = PAGE,
    ) -> None:
        self._channels = channels
        self._matches = matches
        self._known = known
        self._predicates = predicates
        self._commanding = commanding
        self._metrics = metrics
        self._timing = timing
        self._limits = (most_held, most_recent)
        self._page = page
        self._token = secrets.token_hex(6)
        self._count = 0
        self._held: dict[_Name, _Held] = {}
        self._parts: dict[bytes, Mending] = {}
        self._changed: dict[FollowedQuery, None] = {}

    def __len__(self) -> int:
        return len(self._held)

    def deliver(self, channel: bytes, data: bytes) -> bool:
        """Pass a published message on; False where the channel is not a query's. What can't be read is a gap."""
        part = self._parts.get(channel)
        if part is None:
            return False
        try:
            part.deliver(unpack_message(data))
        except Exception:
            log.exception("message=dropped channel=%r bytes=%d", channel[:200], len(data))
            self._metrics.set_aside("message")
            part.read()
        return True

    async def open(self, view: KnownView, where: str | None, filter: str | None) -> FollowedQuery:
        """The followed query of a text; raises a Problem where it can't be used, or not be evaluated."""
        text, predicate = await self._predicates.parse(view, where, filter)
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

    async def enlist(self, follower: QuerySubscription) -> FollowedQuery:
        """Have a client follow what it asks for."""
        view = self._known.views.get(follower.view)
        if view is None:
            raise unknown_view(follower.view)
        followed = await self.open(view, follower.where, follower.filter)
        followed.followers.add(follower)
        follower.followed = followed
        self._metrics.followers.inc()
        return followed

    def leave(self, follower: QuerySubscription, followed: FollowedQuery) -> None:
        """A client follows a query no longer."""
        if follower in followed.followers:
            followed.leave(follower)
            self._metrics.followers.dec()
            held = self._held.get(_name(followed))
            if held is not None:
                held.used = time.monotonic()

    async def reached(self, followed: FollowedQuery, partition: int, number: int) -> None:
        """Wait until every message up to a number was taken in; one that does not come is read."""
        course = followed.courses[partition]
        while course.number < number:
            try:
                async with asyncio.timeout(self._timing.late):
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

        Who has not begun to come in was told nothing of the build before, and is judged by its own position.
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
            self._commanding.later(held.stream, None)

    def flush(self) -> None:
        """Write all that has changed; runs once per tick of the loop, after the messages of the tick."""
        changed, self._changed = self._changed, {}
        for followed in changed:
            try:
                followed.flush()
            except Exception:
                log.exception("flush=failed view=%s query=%s", followed.view.name, followed.query)
                self._metrics.set_aside("flush")
                for wire in {follower.wire for follower in followed.followers}:
                    wire.finish(FAULT)

    async def run(self) -> None:
        """Refresh streams, end those that nobody uses, and read what pub/sub has lost, until cancelled."""
        checked = time.monotonic()
        while True:
            await asyncio.sleep(min(1.0, self._timing.sweep, self._timing.query_lease / 6))
            self._tend(time.monotonic())
            if time.monotonic() - checked >= self._timing.sweep:
                try:
                    await find_lost(list(self._parts.values()), self._matches, self._timing.late)
                except Unavailable as error:
                    log.debug("queries=unchecked error=%r", str(error))
                checked = time.monotonic()

    def _begin(self, view: KnownView, text: str, predicate: Predicate) -> _Held:
        held, recent = self._limits
        followed = FollowedQuery(view, text, predicate, self._mark, self._metrics, most_held=held, most_recent=recent)
        parts = []
        for number in range(view.partitions):
            channel = self._matches.channel(view.name, number, view.lineage, predicate.digest)
            part = Mending(
                followed,
                number,
                self._matches,
                partial(self._channels.joined, channel),
                self._metrics,
                self._timing,
                page=self._page,
            )
            self._parts[channel] = part
            self._channels.join(channel)
            part.read()
            parts.append(part)
        self._count += 1
        stream = f"{OWN}{self._token}-{self._count}"
        opening = asyncio.create_task(self._commanding.write(self._command("open", stream, followed)))
        opening.add_done_callback(lambda task: task.cancelled() or task.exception())
        return _Held(followed, parts, opening, stream)

    def _end(self, name: _Name, held: _Held) -> None:
        """Follow a query no longer; who opened it writes that its stream has ended."""
        if self._held.get(name) is not held:
            return
        del self._held[name]
        self._changed.pop(held.followed, None)
        for part in held.parts:
            part.close()
            view = held.followed.view
            channel = self._matches.channel(view.name, part.partition, view.lineage, held.followed.query)
            self._parts.pop(channel, None)
            self._channels.leave(channel)

    def _tend(self, now: float) -> None:
        for name, held in tuple(self._held.items()):
            if not held.opening.done():
                continue
            if not held.followed.followers and now - held.used >= self._timing.linger:
                self._end(name, held)
                self._commanding.later(held.stream, None)
            elif now - held.refreshed >= self._timing.query_lease / 3:
                held.refreshed = now
                self._commanding.later(held.stream, self._command("refresh", held.stream, held.followed))

        bound(self.followed())

    def _command(self, command: str, stream: str, followed: FollowedQuery) -> Command:
        expires = int((time.time() + self._timing.query_lease) * 1000)
        return Command(command, Stream(stream, followed.view.name, None, followed.text, True, expires))

    def _mark(self, followed: FollowedQuery) -> None:
        if not self._changed:
            asyncio.get_running_loop().call_soon(self.flush)
        self._changed[followed] = None

    def followed(self) -> list[FollowedQuery]:
        """Every query that is followed here."""
        return [held.followed for held in self._held.values()]


def _name(followed: FollowedQuery) -> _Name:
    return (followed.view.name, followed.view.lineage, followed.view.generation, followed.query)

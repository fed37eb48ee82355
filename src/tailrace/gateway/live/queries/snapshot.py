"""How a client of a query comes in: its members, then updates, without a gap.

The steps: 1 the query is followed here and complete: every partition was read once, and each message since then was
taken in; 2 from now on updates are kept for the client; 3 its position is judged, and every partition is read, in
pages, each written as the client takes it; 4 what has changed meanwhile is written, then `ready`: the client is live.
A page is written once every message before it has been taken in; a key that has changed since step 2 is left out of it,
because its newest update comes in step 4. So no key goes back.
Cancelling a join leaves nothing behind but what `Queries.leave` removes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping

from tailrace.contracts.position import Position
from tailrace.gateway.catalog import KnownView
from tailrace.gateway.connection.wire import Wire
from tailrace.gateway.frames import notices
from tailrace.gateway.live.positions import Fresh, Later, Reset
from tailrace.gateway.live.queries.position import Since, query_entry, refused
from tailrace.gateway.live.queries.registry import Queries
from tailrace.gateway.live.queries.subscription import QuerySubscription
from tailrace.gateway.live.queries.watched import FollowedQuery
from tailrace.gateway.metrics import Metrics
from tailrace.gateway.timing import Timing
from tailrace.store.read import matches
from tailrace.store.read.matches import Matches, Members, NotReady
from tailrace.store.read.reader import Reader, Unavailable

# Members of a page: Redis answers others between two of them.
PAGE = 500


class QueryJoining:
    """Brings subscriptions in; `page` is how many members are read at once."""

    def __init__(
        self,
        queries: Queries,
        matches: Matches,
        reader: Reader,
        metrics: Metrics,
        timing: Timing,
        *,
        page: int = PAGE,
    ) -> None:
        self._queries = queries
        self._matches = matches
        self._reader = reader
        self._metrics = metrics
        self._timing = timing
        self._page = page

    async def join(self, follower: QuerySubscription, *, ready: bool) -> None:
        """Bring a client in; raises a Problem where that can't be. Without `ready` it was live before."""
        followed = await self._queries.enlist(follower)
        while True:
            await self._complete(follower, followed)
            followed.begin(follower)
            follower.begun = True
            leaps = [course.leaps for course in followed.courses]
            entry = follower.reset or await self._judged(follower, followed)
            follower.reset = None
            await _writable(follower.wire)
            pages: Mapping[int, Members] = {}
            if isinstance(entry, dict):
                pages = entry
            elif isinstance(entry, Reset):
                self._write(follower, "reset", 1, _reset(follower, followed, entry))
                self._metrics.reset(entry.reason)
                ready = True
            elif not follower.wire.socket:
                follower.wire.send(followed.frames.incomplete())
            for partition in range(followed.view.partitions):
                if not await self._send(follower, followed, partition, pages.get(partition), leaps[partition]):
                    break
            else:
                await _writable(follower.wire)
                if follower.wire.closed.done() or followed.enter(follower, ready=ready):
                    return
                # So much has changed meanwhile that it is not kept: what is newer than the begin is read, too.
                follower.position = str(Position(followed.view.lineage, followed.view.generation, follower.offsets))

    def leave(self, follower: QuerySubscription, followed: FollowedQuery) -> None:
        """A client follows a query no longer."""
        self._queries.leave(follower, followed)

    async def _judged(self, follower: QuerySubscription, followed: FollowedQuery) -> Fresh | Reset | dict[int, Members]:
        """What the position is worth: the first page of each partition where it can be honoured."""
        clock = asyncio.get_running_loop().time
        impatient = clock() + self._timing.patience
        while True:
            entry = query_entry(follower.position, followed.view)
            if isinstance(entry, Since):
                found = await self._suffixes(followed, entry)
                if not isinstance(found, matches.Reset):
                    return found
                if found.reason not in ("ahead", "generation") or clock() >= impatient:
                    return refused(found)
            elif not isinstance(entry, Later):
                return entry
            elif clock() >= impatient:
                expected = followed.view.generation
                return Reset("generation", f"the position is of generation {entry.generation}, the view of {expected}")
            await asyncio.sleep(self._timing.poll)

    async def _suffixes(self, followed: FollowedQuery, since: Since) -> dict[int, Members] | matches.Reset:
        view, found = followed.view, {}
        for partition, offset in since.offsets.items():
            while True:
                try:
                    page = await self._matches.suffix(
                        view.name, partition, view.lineage, followed.query, view.generation, offset, most=self._page
                    )
                except Unavailable:
                    page = NotReady()
                if isinstance(page, matches.Reset) or (isinstance(page, Members) and _fits(followed, partition, page)):
                    break
                await asyncio.sleep(self._timing.poll)
            if isinstance(page, matches.Reset):
                return page
            found[partition] = page
        return found

    async def _send(
        self, follower: QuerySubscription, followed: FollowedQuery, partition: int, first: Members | None, leaps: int
    ) -> bool:
        """Write the members of a partition, from a first page that was read after so many leaps, or all of them.

        False where that first page is not to be told any more: then the position is to be judged again.
        """
        course, after, page = followed.courses[partition], None, first
        while True:
            if page is None:
                leaps = course.leaps
                page = await self._next(followed, partition, after)
            await self._queries.reached(followed, partition, page.number)
            await _writable(follower.wire)
            if follower.wire.closed.done():
                return True
            if course.leaps != leaps:
                if page is first:
                    return False
                page = None
                continue
            told = followed.recent.has
            gone = [(key, None) for key in page.left if key not in page.rows and not told(key, follower.seen)]
            rows = [(key, row.value) for key, row in page.rows.items() if not told(key, follower.seen)]
            self._write(follower, "gone", len(gone), _encoded(follower, followed, partition, gone))
            self._write(follower, "row", len(rows), _encoded(follower, followed, partition, rows))
            if page.next is None:
                return True
            after, page = page.next, None

    async def _next(self, followed: FollowedQuery, partition: int, after: int | None) -> Members:
        view = followed.view
        while True:
            try:
                page = await self._matches.snapshot(
                    view.name, partition, view.lineage, followed.query, page=after, most=self._page
                )
            except Unavailable:
                page = NotReady()
            if isinstance(page, Members) and _fits(followed, partition, page):
                return page
            await asyncio.sleep(self._timing.poll)

    async def _complete(self, follower: QuerySubscription, followed: FollowedQuery) -> None:
        """Wait until the query is complete here; the client hears how far a restore has come."""
        while not followed.complete:
            try:
                async with asyncio.timeout(self._timing.poll):
                    await followed.settled(lambda: followed.complete)
            except TimeoutError:
                await self._report(follower, followed.view)

    async def _report(self, follower: QuerySubscription, view: KnownView) -> None:
        places = [(view.name, number, view.lineage) for number in range(view.partitions)]
        try:
            stored = await self._reader.stored(places)
        except Unavailable:
            return
        for found in stored:
            if not found.whole and not follower.wire.paused:
                self._write(follower, "progress", 1, notices.progress(follower, found.offset, found.target))
                return

    def _write(self, follower: QuerySubscription, kind: str, count: int, frames: bytes) -> None:
        if count:
            follower.wire.send(frames)
            self._metrics.sent(kind, count, len(frames), follower.wire.framing.surface)


def _fits(followed: FollowedQuery, partition: int, page: Members) -> bool:
    """Whether a page is of the build that is followed, and of a store that has come as far as other clients have."""
    reached = followed.courses[partition].offset
    return page.generation == followed.view.generation and (reached is None or page.offset >= reached)


async def _writable(wire: Wire) -> None:
    """Wait until the client reads; it may have become slow again before the one who waits runs."""
    while wire.paused and not wire.closed.done():
        await wire.writable()


def _encoded(
    follower: QuerySubscription,
    followed: FollowedQuery,
    partition: int,
    found: Iterable[tuple[bytes, bytes | None]],
) -> bytes:
    frames = followed.frames
    if follower.wire.socket:
        return b"".join(frames.message(key, value, partition, None) for key, value in found)
    return b"".join(frames.event(key, value) for key, value in found)


def _reset(follower: QuerySubscription, followed: FollowedQuery, reset: Reset) -> bytes:
    return followed.frames.reset(follower.wire.socket, follower.id, reset.reason, reset.message)

"""A query, or a whole view, that one client follows.

How a client comes in without a gap:

1. Wait until the query is complete here: every partition was read once, and each message since then was taken in.
2. From now on, keep updates for the client.
3. Judge its position, and read every partition in pages. Write each page as the client takes it.
4. Write what has changed meanwhile, then `ready`: the client is live.

A page is written once every message before it has been taken in. A key that has changed since step 2 is left
out of the page, because its newest update comes in step 4. So no key goes back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from functools import partial

from tailrace.contracts.position import Position
from tailrace.gateway.catalog import ServedView
from tailrace.gateway.connection.wire import Wire
from tailrace.gateway.frames.frame import Frame, place
from tailrace.gateway.live.positions import Fresh, Later, Reset, Since, too_far_ahead
from tailrace.gateway.live.queries.position import NO_BUILD, query_entry, refused
from tailrace.gateway.live.queries.registry import QueryRegistry
from tailrace.gateway.live.queries.watched import WatchedQuery
from tailrace.gateway.live.subscription import Behind, Subscription
from tailrace.store.connection.outages import Unavailable
from tailrace.store.read import matches
from tailrace.store.read.matches import Members, NotReady

_Judged = Fresh | Reset | dict[int, Members]


class QuerySubscription(Subscription):
    """A wire, and the query that it follows: `text`, with what its client may see. It is live from `ready` on.

    `query` is its name in frames. `position` is what its client came with. `reset` is what the client must be
    told when it comes in. `begun` says that it may have been written something since. While it is behind,
    `seen` is the last update that it was written, and `offsets` the position that this update reaches.
    """

    def __init__(
        self,
        registry: QueryRegistry,
        wire: Wire,
        id: str | None,
        query: str,
        view: str,
        text: str,
        position: str | None,
    ) -> None:
        super().__init__(wire, id, registry.metrics, registry.timing)
        self.query = query
        self.view = view
        self.text = text
        self.position = position
        self.reset: Reset | None = None
        self.followed: WatchedQuery | None = None
        self.live = False
        self.begun = False
        self.seen = 0
        self.offsets: Mapping[int, int] = {}
        self._registry = registry
        self._task: asyncio.Task[None] | None = None
        self._closed = False

    def start(self) -> None:
        if not self._closed:
            self._task = asyncio.create_task(self.guarded(self._join))

    def again(self, position: str | None, reset: Reset | None) -> None:
        self._leave()
        self.position, self.reset, self.begun = position, reset, False
        self.start()

    def pause(self) -> None:
        """The client reads too slowly: the newest change of each key is kept for it."""
        if self.live and self.followed is not None:
            self.followed.pause(self)

    def resume(self) -> None:
        followed = self.followed
        if not self.live or followed is None or followed.resume(self):
            return
        # More has changed than is kept: the client goes on from its position, as if it came back.
        position = Position(followed.view.lineage, followed.view.generation, self.offsets)
        self._leave()
        self.position = str(position)
        self._task = asyncio.create_task(self.guarded(self._join, ready=False))

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
        if self.followed is not None:
            self.followed.silence(self)
        self.live = False

    def close(self) -> None:
        self._closed = True
        self._leave()

    def _leave(self) -> None:
        if self._task is not None and self._task is not asyncio.current_task():
            self._task.cancel()
        self._task = None
        self.live = False
        if self.followed is not None:
            followed, self.followed = self.followed, None
            self._registry.leave(self, followed)

    async def _join(self, *, ready: bool = True) -> None:
        """Come in; raises a Problem if that is impossible. Without `ready` the client was live before."""
        followed = await self._registry.enlist(self, self.view, self.text)
        self.followed = followed
        view, surface = followed.view, self.wire.surface
        while True:
            await self._complete(followed)
            followed.begin(self)
            self.begun = True
            leaps = [course.leaps for course in followed.courses]
            if self.reset is not None:
                come: _Judged = self.reset
            else:
                come = await self.restored(partial(self._judged, followed))
            self.reset = None
            await self._writable()
            pages: Mapping[int, Members] = {}
            everything = place(view.lineage, NO_BUILD, 0, -1)
            if isinstance(come, dict):
                pages = come
            elif isinstance(come, Reset):
                self.send("reset", surface.reset(self.id, come.reason, come.message, everything.decode()))
                self.metrics.reset(come.reason)
                ready = True
            else:
                self.wire.send(surface.begin(everything))
            for partition in range(view.partitions):
                if not await self._send_members(followed, partition, pages.get(partition), leaps[partition]):
                    break
            else:
                await self._writable()
                if self.wire.closed.done() or followed.enter(self, partial(self._ready, view) if ready else None):
                    return
                # More has changed meanwhile than is kept: read what is newer than the begin, too.
                self.position = str(Position(view.lineage, view.generation, self.offsets))

    def _ready(self, view: ServedView, offsets: Mapping[int, int]) -> bytes:
        about = {"view": view.name, "key": [column.name for column in view.key], "generation": view.generation}
        frame = self.wire.surface.ready(self.id, about, str(Position(view.lineage, view.generation, offsets)))
        self.metrics.sent("ready", 1, len(frame), self.wire.surface.name)
        return frame

    async def _judged(self, followed: WatchedQuery) -> _Judged | Behind[_Judged]:
        """What the position is worth: the first page of each partition, if the store can honour it."""
        entry = query_entry(self.position, followed.view)
        if isinstance(entry, Later):
            return Behind(None, too_far_ahead(entry, followed.view, -1))
        if not isinstance(entry, Since):
            return entry
        found = await self._suffixes(followed, entry)
        if isinstance(found, matches.NotResumable):
            told = refused(found)
            return Behind(None, told) if found.reason in ("ahead", "generation") else told
        return found

    async def _suffixes(self, followed: WatchedQuery, since: Since) -> dict[int, Members] | matches.NotResumable:
        view, found = followed.view, {}
        for partition, offset in since.offsets.items():
            while True:
                try:
                    page = await self._registry.matches.suffix(
                        view.name,
                        partition,
                        view.lineage,
                        followed.query,
                        view.generation,
                        offset,
                        most=self._registry.page,
                    )
                except Unavailable:
                    page = NotReady()
                if isinstance(page, matches.NotResumable) or (
                    isinstance(page, Members) and _fits(followed, partition, page)
                ):
                    break
                await asyncio.sleep(self.timing.poll)
            if isinstance(page, matches.NotResumable):
                return page
            found[partition] = page
        return found

    async def _send_members(self, followed: WatchedQuery, partition: int, first: Members | None, leaps: int) -> bool:
        """Write the members of a partition: from a first page that was read after so many leaps, or all of them.

        False if a leap has outdated that first page: then the position must be judged again.
        """
        course, after, page = followed.courses[partition], None, first
        while True:
            if page is None:
                leaps = course.leaps
                page = await self._next(followed, partition, after)
            await self._registry.reached(followed, partition, page.number)
            await self._writable()
            if self.wire.closed.done():
                return True
            if course.leaps != leaps:
                if page is first:
                    return False
                page = None
                continue
            told = followed.recent.has
            gone = [(key, None) for key in page.left if key not in page.rows and not told(key, self.seen)]
            rows = [(key, row.value) for key, row in page.rows.items() if not told(key, self.seen)]
            self.send("gone", self._encoded(followed, gone), len(gone))
            self.send("row", self._encoded(followed, rows), len(rows))
            if page.next is None:
                return True
            after, page = page.next, None

    async def _next(self, followed: WatchedQuery, partition: int, after: int | None) -> Members:
        view = followed.view
        while True:
            try:
                page = await self._registry.matches.snapshot(
                    view.name, partition, view.lineage, followed.query, page=after, most=self._registry.page
                )
            except Unavailable:
                page = NotReady()
            if isinstance(page, Members) and _fits(followed, partition, page):
                return page
            await asyncio.sleep(self.timing.poll)

    async def _complete(self, followed: WatchedQuery) -> None:
        """Wait until the query is complete here. The client is told how far a restore has come."""
        while not followed.complete:
            try:
                async with asyncio.timeout(self.timing.poll):
                    await followed.settled(lambda: followed.complete)
            except TimeoutError:
                await self._report(followed.view)

    async def _report(self, view: ServedView) -> None:
        places = [(view.name, number, view.lineage) for number in range(view.partitions)]
        try:
            stored = await self._registry.reader.stored(places)
        except Unavailable:
            return
        for found in stored:
            if not found.whole and not self.wire.paused:
                self.send("progress", self.wire.surface.progress(self.id, found.offset, found.target))
                return

    async def _writable(self) -> None:
        """Wait until the client reads; it may have become slow again before this runs."""
        while self.wire.paused and not self.wire.closed.done():
            await self.wire.writable()

    def _encoded(self, followed: WatchedQuery, found: Iterable[tuple[bytes, bytes | None]]) -> bytes:
        bare = self.wire.surface.bare
        return b"".join(bare(Frame(followed.about, key, value, None)) for key, value in found)


def _fits(followed: WatchedQuery, partition: int, page: Members) -> bool:
    """Whether a page is of the build that is followed, from a store that has come as far as other clients."""
    reached = followed.courses[partition].offset
    return page.generation == followed.view.generation and (reached is None or page.offset >= reached)

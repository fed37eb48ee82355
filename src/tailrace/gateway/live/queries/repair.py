"""One partition of a watched query: its messages, and reads of the store if messages do not say all.

It reads at first, and whenever something was missed. Clients are told what has changed since the position, as
they are told any update. If the store no longer knows that, all members are read and compared with those that
clients were told of. If those were too many to keep, all clients get `reset`. There is one read at a time per
partition. Messages that come meanwhile wait, and are judged after it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from tailrace.gateway.live.positions import Reset
from tailrace.gateway.live.queries.position import refused
from tailrace.gateway.live.queries.state import QueryProgress
from tailrace.gateway.live.queries.watched import WatchedQuery
from tailrace.gateway.metrics import Metrics
from tailrace.gateway.timing import Timing
from tailrace.store.connection.outages import Unavailable
from tailrace.store.layout.message import READY, Message, unpack_message
from tailrace.store.read import matches
from tailrace.store.read.matches import Matches, Members, NotReady

log = logging.getLogger(__name__)

PAGE = 500
# How many messages may wait for a read; if more come, it is made again.
_MOST_EARLY = 20_000


class QueryPartition:
    """Takes the messages of one partition, and reads the store if it must."""

    def __init__(
        self,
        followed: WatchedQuery,
        partition: int,
        matches: Matches,
        joined: Callable[[], Awaitable[None]],
        metrics: Metrics,
        timing: Timing,
        *,
        page: int = PAGE,
    ) -> None:
        self.followed = followed
        self.partition = partition
        self._matches = matches
        self._joined = joined
        self._metrics = metrics
        self._timing = timing
        self._page = page
        self._early: list[Message] = []
        self._again = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._impatient: float | None = None

    @property
    def course(self) -> QueryProgress:
        """How far the partition was followed."""
        return self.followed.courses[self.partition]

    def receive(self, data: bytes) -> None:
        self.deliver(unpack_message(data))

    def missed(self) -> None:
        """Read, because a message that can't be read is a gap."""
        self.read()

    def deliver(self, message: Message) -> None:
        if self._task is None:
            if not self.followed.take(self.partition, message):
                self.read()
            return
        if message.event.kind == READY:
            self._again.set()
        if len(self._early) < _MOST_EARLY:
            self._early.append(message)

    def read(self) -> None:
        """Read what has changed, because something may have been missed. A read under way is made again."""
        self.course.live = False
        if self._task is None:
            self._task = asyncio.create_task(self._run())
        else:
            self._early.clear()
            self._again.set()

    def close(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        try:
            while True:
                # Before the read, so that everything published from here on is heard.
                await self._joined()
                self._again.clear()
                self._early.clear()
                try:
                    complete = await self._read()
                except Unavailable:
                    complete = False
                except Exception:
                    log.exception("read=failed view=%s query=%s", self.followed.view.name, self.followed.query)
                    complete = False
                if complete and self._replayed():
                    return
                await self._pause()
        finally:
            self._task = None
            self.followed.learned()

    def _replayed(self) -> bool:
        if self._again.is_set() or len(self._early) >= _MOST_EARLY:
            # A `ready` came during the read, which may be from before it.
            self.course.live = False
            return False
        early, self._early = self._early, []
        return all(self.followed.take(self.partition, message) for message in early)

    async def _pause(self) -> None:
        if self._again.is_set():
            return
        try:
            async with asyncio.timeout(self._timing.poll):
                await self._again.wait()
        except TimeoutError:
            return

    async def _read(self) -> bool:
        course = self.course
        if course.offset is None:
            return await self._begin()
        view = self.followed.view
        found = await self._matches.suffix(
            view.name,
            self.partition,
            view.lineage,
            self.followed.query,
            course.generation,
            course.offset,
            most=self._page,
        )
        if isinstance(found, Members):
            return await self._learn(found, found)
        if isinstance(found, NotReady) or found.reason == "generation":
            # Another build is served: the catalog will say so, and then everything begins again.
            return False
        first = await self._page_after(None)
        if first is None or self._is_behind(first):
            return False
        if course.held is not None:
            return await self._compare(first)
        self._reset(found)
        return False

    def _is_behind(self, page: Members) -> bool:
        """Whether the store is behind what clients were told: it was rolled back, and is about to be restored.

        After a while the store is believed: the changelog has lost what they saw.
        """
        clock = asyncio.get_running_loop().time
        if self.course.offset is None or page.offset >= self.course.offset:
            self._impatient = None
            return False
        self._impatient = self._impatient or clock() + self._timing.patience
        return clock() < self._impatient

    async def _begin(self) -> bool:
        """Note where the partition is, and who its members are."""
        followed, view, course = self.followed, self.followed.view, self.course
        page, first = None, None
        while True:
            found = await self._matches.offsets(
                view.name, self.partition, view.lineage, followed.query, page=page, most=self._page
            )
            if isinstance(found, NotReady) or found.generation != course.generation:
                return False
            first = first or found
            if course.held is not None:
                course.held.update(found.held)
                if followed.too_many():
                    followed.drop_held()
            if course.held is None or found.next is None:
                break
            page = found.next
        course.restart(first.offset, first.number, {}, first.number)
        return True

    async def _learn(self, first: Members, page: Members) -> bool:
        """Tell clients what has changed since the position."""
        known: dict[bytes, int] = {}
        for key, offset in first.left.items():
            if key not in first.rows:
                self._tell(key, None, offset)
                known[key] = first.number
        while True:
            for key, row in page.rows.items():
                if self.course.held is None or self.course.held.get(key) != row.offset:
                    self._tell(key, row.value, row.offset)
                known[key] = page.number
            if page.next is None:
                break
            following = await self._page_after(page.next)
            if following is None:
                return False
            page = following
        self.course.restart(first.offset, first.number, known, page.number)
        return True

    async def _compare(self, first: Members) -> bool:
        """Tell clients the difference between all members and those that they were told of."""
        known: dict[bytes, int] = {}
        page = first
        while True:
            held = self.course.held
            if held is None:
                return False
            for key, row in page.rows.items():
                if held.get(key) != row.offset:
                    self._tell(key, row.value, row.offset)
                known[key] = page.number
            if page.next is None:
                break
            following = await self._page_after(page.next)
            if following is None:
                return False
            page = following
        for key in [key for key in held if key not in known]:
            self._tell(key, None, first.offset)
        self.course.leaps += 1
        self.course.restart(first.offset, first.number, known, page.number)
        return True

    async def _page_after(self, after: int | None) -> Members | None:
        view = self.followed.view
        found = await self._matches.snapshot(
            view.name, self.partition, view.lineage, self.followed.query, page=after, most=self._page
        )
        if isinstance(found, NotReady) or found.generation != self.course.generation:
            return None
        return found

    def _tell(self, key: bytes, value: bytes | None, offset: int) -> None:
        self.followed.tell(self.partition, key, value, offset)
        self._metrics.repaired.inc()

    def _reset(self, reset: matches.NotResumable) -> None:
        """Have every client read everything anew: there are too many members to compare."""
        told: Reset = refused(reset)
        self.course.forget()
        for follower in tuple(self.followed.followers):
            if follower.begun:
                follower.again(None, told)

"""A store of one feed client in memory, whose answers and messages come when the test says so.

Each call waits twice: until the store does it, in one moment, and until the answer has arrived. So a test can put
anything between the two, and between an event and its message.
"""

# ruff: noqa: ARG002

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

from tailrace.contracts.catalog import CatalogFeed
from tailrace.store.connection.outages import Unavailable
from tailrace.store.layout.feed_keys import FeedPlace
from tailrace.store.layout.row import StoredRow
from tailrace.store.read.feed_histories import PAGE, Page, Registration

MISSING = object()
T = TypeVar("T")


@dataclass(eq=False)
class Call:
    """A call that the store has not answered yet."""

    work: Callable[[], Any]
    future: asyncio.Future[Any]
    result: Any = MISSING

    def take_up(self) -> None:
        """The store does it."""
        if self.result is MISSING and not self.future.done():
            self.result = self.work()

    def answer(self) -> None:
        """The answer arrives."""
        self.take_up()
        if not self.future.done():
            self.future.set_result(self.result)

    def fail(self) -> None:
        """The connection breaks, before or after the store has done it."""
        if not self.future.done():
            self.future.set_exception(Unavailable("broken", "broken", "wait", ""))


@dataclass
class FeedStoreModel:
    """The store. `written` are all events that the client ever had; `under_way` are messages."""

    feed: CatalogFeed
    offset: int = -1
    start: int = -1
    registered: bool = False
    # Whether the last attempt to end the registration was answered.
    left: bool = False
    written: list[int] = field(default_factory=list)
    kept: list[StoredRow] = field(default_factory=list)
    under_way: list[bytes] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)

    @property
    def always(self) -> bool:
        """Whether events are kept for clients that do not listen."""
        return self.feed.retain == "always"

    @property
    def last(self) -> int:
        """The offset of the last event that is kept. If none is, the offset after which the history is complete."""
        return self.kept[-1].offset if self.kept else self.start

    def write(self, *, event: bool) -> None:
        """Write the next record of the changelog: an event of this client, or of another one."""
        self.offset += 1
        if not event:
            return
        self.written.append(self.offset)
        if not self.registered and not self.always:
            return
        row = StoredRow(1, self.offset, self.offset, 0, b'{"n":%d}' % self.offset)
        if self.registered:
            self.under_way.append(b"%d %b" % (self.last, row.pack()))
        self.kept.append(row)
        self.trim(self.feed.length)

    def trim(self, length: int) -> None:
        """Drop the oldest events."""
        while len(self.kept) > length:
            self.start = max(self.start, self.kept.pop(0).offset)

    def lapse(self) -> None:
        """The registration expires."""
        self.registered = False
        if not self.always:
            self.kept.clear()

    def publish_again(self) -> None:
        """Publish what is kept once more, as a restore does."""
        before = self.start
        for row in self.kept:
            self.under_way.append(b"%d %b" % (before, row.pack()))
            before = row.offset

    async def listen(self, place: FeedPlace, client: bytes) -> Registration:
        """See `FeedHistories`."""
        return await self._called(self._listen)

    async def leave(self, place: FeedPlace, client: bytes) -> Registration:
        """See `FeedHistories`; without a hold time."""

        def work() -> Registration:
            self.lapse()
            return Registration(0)

        self.left = False
        found = await self._called(work)
        self.left = True
        return found

    async def events(self, place: FeedPlace, client: bytes, after: int, count: int = PAGE) -> Page | None:
        """See `FeedHistories`."""
        return await self._called(lambda: self._page(after, count))

    def _listen(self) -> Registration:
        if not self.registered and not self.always:
            self.start = self.offset
        self.registered = True
        return Registration(0, self.offset, -1, self.start, 1, self.last)

    def _page(self, after: int, count: int) -> Page | None:
        if not self.registered and not self.always:
            return None
        found = [row for row in self.kept if row.offset > after][:count]
        reached = found[-1].offset if len(found) == count else max(after, self.offset)
        return Page(found, self.start <= after, reached, self.start)

    async def _called(self, work: Callable[[], T]) -> T:
        call = Call(work, asyncio.get_running_loop().create_future())
        self.calls.append(call)
        try:
            return cast(T, await call.future)
        finally:
            self.calls.remove(call)

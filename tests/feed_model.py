"""A plain model of one partition of a feed: what the store must hold after any sequence of steps."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from tailrace.contracts.catalog import CatalogFeed
from tailrace.contracts.event import FeedEvent
from tailrace.store.write.feeds import Taken


@dataclass
class Kept:
    """What is kept for one client: all events after `base`, except those up to `dropped`."""

    base: int
    events: list[FeedEvent] = field(default_factory=list)
    dropped: int | None = None

    @property
    def last(self) -> int:
        """The offset of the last event, kept or dropped; -1 before the first."""
        return max([self.dropped if self.dropped is not None else -1, *(e.offset for e in self.events)])

    def drop(self, count: int) -> None:
        """Drop so many of the oldest events."""
        if count > 0:
            self.dropped = self.events[count - 1].offset
            del self.events[:count]

    def is_complete_after(self, offset: int) -> bool:
        """Whether nothing after an offset was missed or dropped."""
        return offset >= self.base and (self.dropped is None or offset >= self.dropped)


@dataclass
class FeedModel:
    """One partition. `old` is the offset up to which everything is too old; `remembered` as in the store."""

    feed: CatalogFeed
    remembered: int
    offset: int = -1
    since: int = -1
    floor: int = -1
    old: int = -1
    marks: dict[bytes, int] = field(default_factory=dict)
    taken: list[bytes] = field(default_factory=list)
    kept: dict[bytes, Kept] = field(default_factory=dict)
    # Client → the gateways that it listens through; none if it has left and its events are still kept.
    listening: dict[bytes, set[str]] = field(default_factory=dict)

    @property
    def always(self) -> bool:
        """Whether events are kept for clients that do not listen."""
        return self.feed.retain == "always"

    def begin(self, start: int, since: int) -> None:
        """Lose everything except which clients listen."""
        self.offset, self.since, self.floor, self.old = start - 1, since, since, -1
        self.marks, self.taken = {}, []
        self.kept = {} if self.always else {client: Kept(since) for client in self.listening}

    def apply(
        self, events: list[FeedEvent], reached: int, tended: Collection[bytes]
    ) -> tuple[Taken, list[tuple[bytes, int, int]]]:
        """What is taken, and which events are published: client, offset of its event before, offset."""
        new, kept, published, touched = 0, 0, [], set()
        for e in events:
            if e.version <= self.marks.get(e.source, -1) or (not self.feed.ordered and e.identity in self.taken):
                continue
            new += 1
            if self.feed.ordered:
                self.marks[e.source] = e.version
            else:
                self.taken.append(e.identity)
            if e.offset <= self.since or not (self.always or e.client in self.listening):
                continue
            kept += 1
            touched.add(e.client)
            held = self.kept.setdefault(e.client, Kept(self.floor))
            before = held.last if held.events else max(held.base, held.last, self.since)
            held.events.append(e)
            if e.client in self.listening:
                published.append((e.client, before, e.offset))
        for client in touched:
            if client in tended:
                self._drop_old(client)
            self.kept[client].drop(len(self.kept[client].events) - self.feed.length)
        self.taken = self.taken[-self.remembered :]
        self.offset = reached
        return Taken(new, kept), published

    def listen(self, client: bytes, gateway: str) -> None:
        """A client registers, or refreshes its registration."""
        if client not in self.listening and not self.always:
            self.kept[client] = Kept(max(self.offset, self.since))
        self.listening.setdefault(client, set()).add(gateway)
        self._drop_old(client)

    def leave(self, client: bytes, gateway: str) -> None:
        """A client leaves a gateway."""
        if client in self.listening:
            self.listening[client].discard(gateway)
            if not self.listening[client] and self.feed.hold == 0:
                self.lapse(client)
        self._drop_old(client)

    def lapse(self, client: bytes) -> None:
        """A registration expires."""
        self.listening.pop(client, None)
        if not self.always:
            self.kept.pop(client, None)

    def sweep(self) -> None:
        """Drop histories that are too old as a whole."""
        for client, kept in list(self.kept.items()):
            if self.always and kept.last <= self.old:
                self.floor = max(self.floor, kept.last)
                del self.kept[client]

    def of(self, client: bytes) -> Kept | None:
        """What can be read for a client; None if it must register first."""
        if self.always:
            return self.kept.get(client, Kept(max(self.floor, self.since)))
        return self.kept.get(client)

    def _drop_old(self, client: bytes) -> None:
        if (kept := self.kept.get(client)) is not None:
            kept.drop(sum(e.offset <= self.old for e in kept.events))

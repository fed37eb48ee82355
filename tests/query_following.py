"""A client that follows queries as a gateway does, without a gateway."""

from __future__ import annotations

import asyncio

from tailrace.store.connection.servers import AsyncServers
from tailrace.store.layout.message import GONE, READY, ROW, Message, QueryEvent
from tailrace.store.read.matches import Matches, Members, NotReady, NotResumable


class Reading:
    """The gateway's reader of queries over one view, for tests that do not run in an event loop."""

    def __init__(self, url: str, prefix: str, view: str, lineage: str) -> None:
        self._runner = asyncio.Runner()
        self._servers = AsyncServers(url)
        self._matches = Matches(self._servers, prefix)
        self._view, self._lineage = view, lineage

    def snapshot(self, partition: int, query: str) -> Members | NotReady:
        return self._runner.run(self._matches.snapshot(self._view, partition, self._lineage, query))

    def suffix(self, partition: int, query: str, generation: int, after: int) -> Members | NotReady | NotResumable:
        return self._runner.run(self._matches.suffix(self._view, partition, self._lineage, query, generation, after))

    def channel(self, partition: int, query: str) -> bytes:
        return self._matches.channel(self._view, partition, self._lineage, query)

    def close(self) -> None:
        self._runner.run(self._servers.close())
        self._runner.close()


class Follower:
    """A client's copy of one query in a partition, kept as a gateway does: by messages, and by a read after a gap."""

    def __init__(self, reading: Reading, partition: int, query: str) -> None:
        self._reading = reading
        self._place = (partition, query)
        self.query = query
        self.copy: dict[bytes, bytes] = {}
        self.position: tuple[int, int] | None = None
        self.number = -1
        self.complete = False
        self.resets = 0

    def receive(self, message: Message) -> None:
        event = message.event
        if message.number <= self.number and event.kind != READY:
            return
        if not self.complete or message.number != self.number + 1 or self.is_other(event):
            self.read()
            return
        self.number = message.number
        if event.kind == ROW:
            assert event.value is not None
            self.copy[event.key] = event.value
        elif event.kind == GONE:
            self.copy.pop(event.key, None)
        if message.settled:
            before = -1 if self.position is None else self.position[1]
            self.position = (event.generation, max(before, event.offset))
        assert event.kind in (ROW, GONE, READY)

    def is_other(self, event: QueryEvent) -> bool:
        """Whether a message is from a store that does not know this client's position."""
        if self.position is None:
            return False
        generation, offset = self.position
        return event.generation != generation or (event.kind == READY and offset > event.version)

    def read(self) -> None:
        """Go on from the position, or from the start."""
        self.complete = False
        if self.position is None:
            found: Members | NotReady | NotResumable = self._reading.snapshot(*self._place)
            self.copy.clear()
        else:
            found = self._reading.suffix(*self._place, *self.position)
            if isinstance(found, NotResumable):
                self.position = None
                self.resets += 1
                return self.read()
        if isinstance(found, Members):
            for key in found.left:
                self.copy.pop(key, None)
            self.copy.update({key: held.value for key, held in found.rows.items() if held.value is not None})
            self.position, self.number, self.complete = (found.generation, found.offset), found.number, True
        return None

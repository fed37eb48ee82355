"""Feeds as the gateway sees them: who listens, and the events that the store keeps for them.

How a client gets every event after its position, without a gap:

1. Subscribe to the client's channel, and note the offsets of what comes.
2. `listen`: from now on the store keeps and publishes the client's events. The answer says after which offset
   the history is complete.
3. `events` in pages from the client's position, until a page is not full and reaches what was noted in 1.
4. Then live. Each message says after which offset its client had no other event (`heard`). Drop an event that is
   not after the last one sent: events are published again when Redis is restored. If the message before it was
   lost, drop it too, and read `events` after the last one sent.
5. `listen` again every `REFRESH` seconds: the answer names the last event, so that a lost one is missed.
6. `leave` when the last connection of the client to this gateway has ended.

If the history does not cover a client's position in 2, 3, 4 or 5, the client must be told that it has missed
events. The registrations of a gateway that dies expire, and so does everything that was kept for them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

from tailrace.store.connection.scripts import AsyncScript, script_text
from tailrace.store.connection.servers import AsyncServers
from tailrace.store.layout.feed_keys import LEASE, FeedPlace, feed_keys
from tailrace.store.layout.row import StoredRow, unpack

PAGE = 500


@dataclass(frozen=True, slots=True)
class Registration:
    """A client is registered until `expires`, in ms since 1970.

    The store has reached `offset` of the changelog; None if it holds no position of the lineage yet: then ask
    again. `target` is the offset that a restore must reach. The history is complete after the offset `start`.
    `last` is the offset of its last event, or `start` if it has none.
    """

    expires: int
    offset: int | None = None
    target: int | None = None
    start: int | None = None
    generation: int | None = None
    last: int | None = None

    @property
    def whole(self) -> bool:
        """False while the partition is still being restored from the changelog."""
        return self.offset is not None and self.target is not None and self.offset >= self.target

    def covers(self, after: int) -> bool:
        """Whether a client that has seen everything up to an offset can get all the rest.

        An offset beyond the end of the changelog is not covered: it comes from another, longer log.
        """
        if self.offset is None or self.target is None or self.start is None:
            return False
        return self.start <= after <= max(self.offset, self.target)


@dataclass(frozen=True, slots=True)
class Page:
    """Events after an offset, in order; `complete` says that none is missing between that offset and the last event.

    The history is complete after the offset `start`. With these events the client has seen everything up to
    `reached`: the last of them or, if there are no more, the offset that the store has reached.
    """

    events: list[StoredRow]
    complete: bool
    reached: int
    start: int


@dataclass(frozen=True, slots=True)
class Heard:
    """A published event. Its client had no other event after the offset `before`."""

    before: int
    event: StoredRow


def heard(message: bytes) -> Heard:
    """Read a message on a client's channel."""
    before, _, event = message.partition(b" ")
    return Heard(int(before), unpack(event))


class FeedHistories:
    """Registrations and histories. Every method raises Unavailable when it fails.

    `gateway` is a name without spaces that no other gateway has. A cancelled method has made its registration
    or not; both are safe, because registrations expire.
    """

    def __init__(self, servers: AsyncServers, prefix: str, gateway: str, *, lease: float = LEASE) -> None:
        if not gateway or gateway.split() != [gateway]:
            raise ValueError(f"expected a name of the gateway without spaces, got {gateway!r}")
        self._prefix = prefix
        self._gateway = gateway
        self._lease = lease
        apart = servers.apart()
        self._listen = AsyncScript(apart, script_text("history", "listen"))
        self._events = AsyncScript(apart, script_text("history", "events"))
        # The name of a partition's histories comes with the first answer.
        self._begun: dict[tuple[str, int], str] = {}

    async def listen(self, place: FeedPlace, client: bytes) -> Registration:
        """Register a client, or refresh its registration."""
        return await self._registered(place, client, "listen")

    async def leave(self, place: FeedPlace, client: bytes) -> Registration:
        """End the registration of a client at this gateway. Its events are kept for the hold time."""
        return await self._registered(place, client, "leave")

    async def events(self, place: FeedPlace, client: bytes, after: int, count: int = PAGE) -> Page | None:
        """The next events of a client after an offset; None if it must register first, or again."""
        keys = feed_keys(self._prefix, place.feed.name, place.partition)
        while True:
            begun = self._known(place)
            names = [keys.position, keys.listening, keys.starts, keys.recent, keys.history(begun, client)]
            first = max(after + 1, 0)
            args: list[Any] = [place.lineage, begun, client, place.feed.retain, first, count]
            found = cast(list[Any], await self._events(keys=names, args=args))
            if found[0] == b"begun":
                self._learn(place, found[1])
                continue
            if found[0] != b"events":
                return None
            events = [unpack(data) for data in found[3:]]
            reached = events[-1].offset if len(events) == count else max(after, int(found[1]))
            start = int(found[2])
            return Page(events, start <= after, reached, start)

    def channel(self, place: FeedPlace, client: bytes) -> bytes:
        """The channel of a client's events."""
        return feed_keys(self._prefix, place.feed.name, place.partition).channel(place.lineage, client)

    async def _registered(self, place: FeedPlace, client: bytes, how: str) -> Registration:
        keys, feed = feed_keys(self._prefix, place.feed.name, place.partition), place.feed
        while True:
            begun = self._known(place)
            names = [keys.position, keys.listening, keys.leases, keys.starts, keys.times, keys.recent]
            names.append(keys.history(begun, client))
            times = [round(seconds * 1000) for seconds in (self._lease, feed.hold)]
            args: list[Any] = [place.lineage, begun, client, self._gateway, *times]
            args += [feed.retain, round(feed.age * 1000), how]
            found = cast(list[bytes], await self._listen(keys=names, args=args))
            if found[0] == b"begun":
                self._learn(place, found[1])
                continue
            return Registration(*map(int, found[1:]))

    def _known(self, place: FeedPlace) -> str:
        return self._begun.get((place.feed.name, place.partition), "none")

    def _learn(self, place: FeedPlace, begun: bytes) -> None:
        self._begun[place.feed.name, place.partition] = begun.decode()

"""One key that clients of this gateway follow: each change is encoded once per surface and written to all of them.

The steps of a change: 1 `Standing` says whether it is news, 2 at the end of the loop's tick `flush` encodes the tick's
changes, once for each surface that has a live follower, 3 and writes them to every live follower's transport, or hands
them to the subscriptions that gather the changes of several keys.
Every live follower that is not slow has been written every change up to the last flush; that is why ranks are
compared once per key and not once per follower. A slow one is left out, and gets the newest row when it has caught up.
"""

from __future__ import annotations

from collections.abc import Callable

from tailrace.gateway.catalog import KnownView
from tailrace.gateway.connection.wire import Framing
from tailrace.gateway.connection.writers import Writers
from tailrace.gateway.frames.key_messages import SocketFrames
from tailrace.gateway.frames.sse import Frames
from tailrace.gateway.live.keys.follower import Follower, Gatherer
from tailrace.gateway.live.keys.progress import Course
from tailrace.gateway.live.keys.state import Standing
from tailrace.gateway.live.positions import After, Fresh, Reset
from tailrace.gateway.metrics import Metrics
from tailrace.store.layout.row import Row
from tailrace.store.read.reader import Held


class Followed:
    """A key of one build of a view, how it stands, and its followers; `mark` asks for a flush in this tick."""

    def __init__(
        self,
        view: KnownView,
        key: bytes,
        channel: bytes,
        course: Course,
        mark: Callable[[Followed], None],
        metrics: Metrics,
    ) -> None:
        self.view = view
        self.key = key
        self.channel = channel
        self.course = course
        self.partition = view.partition(key)
        self.standing = Standing()
        self.followers: set[Follower] = set()
        self._events = Frames(view, key)
        self._sockets: SocketFrames | None = None
        self._mark = mark
        self._metrics = metrics
        self._writers: dict[Framing, Writers] = {}
        self._gathering: dict[Follower, Gatherer] = {}
        self._waiting: list[Row] = []
        self._count = 0
        self._flushed = 0

    def serves(self, held: Held) -> bool:
        """Whether a read is of the build that is followed here: the store is handed over at a moment of its own."""
        return held.generation is None or held.generation == self.view.generation

    def offer(self, row: Row) -> bool:
        """Take in a published row; True where it was news. One of another build is not."""
        if row.generation != self.view.generation:
            return False
        self.course.hear(row.offset)
        news = self.standing.offer(row)
        if news:
            self._announce()
        return news

    def learn(self, held: Held) -> bool:
        """Take in what a read found; True where it was news to live followers: pub/sub had not said so."""
        if not self.serves(held):
            return False
        if not held.whole:
            # The store is being restored: what was heard before may be passed over.
            self.course.doubt()
        news = self.standing.learn(held)
        if news:
            self._announce()
        return news

    def missing(self, entry: Fresh | After | Reset, held: Held) -> Row | None:
        """What a client that comes in lacks: the row or its absence; `held` is the whole read it comes in with."""
        standing = self.standing
        if not isinstance(entry, After):
            return standing.row if standing.present else None
        if standing.row is not None:
            return standing.row if standing.row.offset > entry.offset else None
        if held.target is not None and entry.offset < held.target:
            # A client from before the restore may hold a row whose tombstone was compacted away since.
            return self.absence(max(standing.offset, held.offset if held.offset is not None else -1))
        return None

    def newest(self) -> Row:
        """What the key holds now, or its absence."""
        return self.standing.row or self.absence(self.standing.offset)

    def absence(self, offset: int) -> Row:
        """That the key holds nothing at an offset."""
        return Row(self.view.generation, 0, offset, 0, None)

    def encoded(self, row: Row, follower: Follower) -> bytes:
        """A row, or its absence, as a follower is sent it."""
        frame = self._encoder(follower.wire.framing, bare=follower.gatherer is not None)(row)
        self._metrics.sent("row" if row.value is not None else "gone", 1, len(frame), follower.wire.framing.surface)
        return frame

    def enter(self, follower: Follower) -> None:
        """Make a follower live: from here on it is sent every change that is not flushed yet."""
        follower.live = True
        follower.seen = self._flushed
        if follower.gatherer is not None or not follower.wire.paused:
            self._include(follower)

    def silence(self, follower: Follower) -> None:
        """Write a follower nothing more."""
        self._exclude(follower)
        follower.live = False

    def pause(self, follower: Follower) -> None:
        """Leave a follower out until it has caught up."""
        follower.seen = self._flushed
        self._exclude(follower)

    def resume(self, follower: Follower) -> None:
        """Write a follower that has caught up the newest row, where it has missed any, and feed it again."""
        self.flush()
        missed = self._count - follower.seen
        follower.seen = self._count
        self._include(follower)
        if missed > 0:
            self._metrics.conflated(missed - 1)
            follower.wire.send(self.encoded(self.newest(), follower))

    def flush(self) -> None:
        """Write what has changed since the last flush to every follower that reads."""
        if not self._waiting:
            return
        rows, self._waiting = self._waiting, []
        self._flushed = self._count
        bodies: dict[str, tuple[list[bytes], bytes]] = {}
        for framing, writers in self._writers.items():
            if writers:
                surface = framing.surface
                if surface not in bodies:
                    bodies[surface] = self._bodies(rows, self._encoder(framing, bare=False))
                frames, body = bodies[surface]
                self._count_sent(rows, frames, surface, writers.write(framing.wrap(body)))
        if self._gathering:
            self._hand_over(rows)

    def _hand_over(self, rows: list[Row]) -> None:
        bodies: dict[bool, tuple[list[bytes], bytes]] = {}
        taken = {False: 0, True: 0}
        for follower, gatherer in tuple(self._gathering.items()):
            socket = follower.wire.socket
            if socket not in bodies:
                bodies[socket] = self._bodies(rows, self._encoder(follower.wire.framing, bare=True))
            taken[socket] += gatherer.take(follower, bodies[socket][1], len(rows))
        for socket, (frames, _) in bodies.items():
            self._count_sent(rows, frames, "ws" if socket else "sse", taken[socket])

    def _encoder(self, framing: Framing, *, bare: bool) -> Callable[[Row], bytes]:
        if framing is Framing.SOCKET:
            if self._sockets is None:
                self._sockets = SocketFrames(self.view, self.key)
            return self._sockets.row
        return self._events.bare if bare else self._events.row

    def _bodies(self, rows: list[Row], encode: Callable[[Row], bytes]) -> tuple[list[bytes], bytes]:
        frames = [encode(row) for row in rows]
        return frames, b"".join(frames)

    def _count_sent(self, rows: list[Row], frames: list[bytes], surface: str, receivers: int) -> None:
        gone = [len(frame) for row, frame in zip(rows, frames, strict=True) if row.value is None]
        if len(gone) < len(rows):
            size = sum(map(len, frames)) - sum(gone)
            self._metrics.sent("row", (len(rows) - len(gone)) * receivers, size * receivers, surface)
        if gone:
            self._metrics.sent("gone", len(gone) * receivers, sum(gone) * receivers, surface)

    def _announce(self) -> None:
        if not self._waiting:
            self._mark(self)
        self._count += 1
        self._waiting.append(self.newest())

    def _include(self, follower: Follower) -> None:
        if follower.gatherer is not None:
            self._gathering[follower] = follower.gatherer
        else:
            self._writers.setdefault(follower.wire.framing, Writers()).include(follower)

    def _exclude(self, follower: Follower) -> None:
        self._gathering.pop(follower, None)
        if (writers := self._writers.get(follower.wire.framing)) is not None:
            writers.exclude(follower)

"""One key that clients of this gateway follow: each change is encoded once and written to all of them.

The steps of a change: 1 `Standing` says whether it is news, 2 it is encoded, 3 at the end of the loop's tick `flush`
makes one chunk of the tick's changes, 4 and writes it to every live follower's transport.
Every live follower that is not slow has been written every change up to the last flush; that is why ranks are
compared once per key and not once per follower. A slow one is left out, and gets the newest row when it has caught up.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from tailrace.gateway.follower import Follower
from tailrace.gateway.frames import Frames, chunk
from tailrace.gateway.known import KnownView
from tailrace.gateway.metrics import Metrics
from tailrace.gateway.resume import After, Fresh, Reset
from tailrace.gateway.standing import Standing
from tailrace.gateway.wire import Framing
from tailrace.store.reader import Held
from tailrace.store.row import Row

log = logging.getLogger(__name__)

Write = Callable[[bytes], None]


class Followed:
    """A key of one build of a view, how it stands, and its followers; `mark` asks for a flush in this tick."""

    def __init__(
        self, view: KnownView, key: bytes, channel: bytes, mark: Callable[[Followed], None], metrics: Metrics
    ) -> None:
        self.view = view
        self.key = key
        self.channel = channel
        self.partition = view.partition(key)
        self.frames = Frames(view, key)
        self.standing = Standing()
        self.followers: set[Follower] = set()
        self._mark = mark
        self._metrics = metrics
        self._reading: dict[Follower, Write] = {}
        self._writes: tuple[Write, ...] | None = ()
        self._unchunked: dict[Follower, Write] = {}
        self._waiting: list[bytes] = []
        self._gone = 0
        self._gone_bytes = 0
        self._count = 0
        self._flushed = 0

    def serves(self, held: Held) -> bool:
        """Whether a read is of the build that is followed here: the store is handed over at a moment of its own."""
        return held.generation is None or held.generation == self.view.generation

    def offer(self, row: Row) -> bool:
        """Take in a published row; True where it was news. One of another build is not."""
        if row.generation != self.view.generation:
            return False
        news = self.standing.offer(row)
        if news:
            self._announce()
        return news

    def learn(self, held: Held) -> bool:
        """Take in what a read found; True where it was news to live followers: pub/sub had not said so."""
        if not self.serves(held):
            return False
        news = self.standing.learn(held)
        if news:
            self._announce()
        return news

    def enter(self, follower: Follower, entry: Fresh | After | Reset, held: Held) -> None:
        """Write a follower the snapshot and `ready`, and make it live; `held` is the whole read it comes in with."""
        wire, standing, frames = follower.wire, self.standing, self.frames
        if wire.closed.done():
            return
        self.flush()
        offset = max(standing.offset, held.offset if held.offset is not None else -1)
        snapshot: list[bytes] = []

        def add(kind: str, frame: bytes) -> None:
            snapshot.append(frame)
            self._metrics.sent(kind, 1, len(frame))

        if isinstance(entry, Reset):
            add("reset", frames.reset(entry.reason, entry.message))
            self._metrics.reset(entry.reason)
        if not isinstance(entry, After):
            if standing.present:
                add("row", self._encoded())
        elif standing.row is not None:
            if standing.row.offset > entry.offset:
                add("row" if standing.present else "gone", self._encoded())
        elif held.target is not None and entry.offset < held.target:
            # A client from before the restore may hold a row whose tombstone was compacted away since.
            add("gone", frames.gone(self.view.generation, offset))
        add("ready", frames.ready(offset))
        follower.live = True
        follower.seen = self._count
        if not wire.paused:
            self._include(follower)
        wire.send(b"".join(snapshot))

    def leave(self, follower: Follower) -> None:
        """Forget a follower."""
        self.followers.discard(follower)
        self.silence(follower)

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
            frame = self._encoded()
            self._metrics.sent("row" if self.standing.present else "gone", 1, len(frame))
            follower.wire.send(frame)

    def flush(self) -> None:
        """Write what has changed since the last flush to every follower that reads."""
        if not self._waiting:
            return
        body = b"".join(self._waiting)
        rows, gone, gone_bytes = len(self._waiting) - self._gone, self._gone, self._gone_bytes
        self._waiting, self._gone, self._gone_bytes = [], 0, 0
        self._flushed = self._count
        if self._writes is None:
            self._writes = tuple(self._reading.values())
        writes = self._writes
        # A write may find the client slow and change who is written to: this loop goes over the tuple.
        _write_all(writes, chunk(body))
        receivers = len(writes)
        if self._unchunked:
            receivers += len(self._unchunked)
            _write_all(tuple(self._unchunked.values()), body)
        if rows:
            self._metrics.sent("row", rows * receivers, (len(body) - gone_bytes) * receivers)
        if gone:
            self._metrics.sent("gone", gone * receivers, gone_bytes * receivers)

    def _announce(self) -> None:
        if not self._waiting:
            self._mark(self)
        self._count += 1
        frame = self._encoded()
        self._waiting.append(frame)
        if not self.standing.present:
            self._gone += 1
            self._gone_bytes += len(frame)

    def _encoded(self) -> bytes:
        row = self.standing.row
        if row is None:
            return self.frames.gone(self.view.generation, self.standing.offset)
        return self.frames.row(row)

    def _include(self, follower: Follower) -> None:
        wire = follower.wire
        if wire.framing is Framing.CHUNKED:
            self._reading[follower] = wire.write
            self._writes = None
        else:
            self._unchunked[follower] = wire.write

    def _exclude(self, follower: Follower) -> None:
        if self._reading.pop(follower, None) is not None:
            self._writes = None
        self._unchunked.pop(follower, None)


def _write_all(writes: tuple[Write, ...], data: bytes) -> None:
    for write in writes:
        try:
            write(data)
        except Exception:
            # A transport that refuses is on its way to `connection_lost`; the others must not pay for it.
            log.exception("write=refused bytes=%d", len(data))

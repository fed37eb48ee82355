"""The frames of several keys on one wire: those of a tick are one write.

Over Server-Sent Events only the last frame of a write has an id, a `Vector` over partitions. It moves only

- at `ready`: up to what the reads of the snapshot have seen of all keys of a partition, and
- at the end of a tick: up to what was heard, when all of it is in this write or an earlier one, and nothing was missed.

What a read repairs, what comes while the link is in doubt, what is written while the client lags and while keys are
being added moves nothing: it comes once more, at worst, to a client that resumes.
"""

from __future__ import annotations

from dataclasses import replace

from tailrace.contracts.position import Position
from tailrace.gateway.catalog import KnownView
from tailrace.gateway.connection.wire import Wire
from tailrace.gateway.frames.sse import with_id
from tailrace.gateway.live.keys.follower import Follower
from tailrace.gateway.live.keys.registry import Hub
from tailrace.gateway.live.keys.vector import Vector
from tailrace.gateway.metrics import Metrics


class Gathering:
    """Takes the frames of keys and writes them; of a client that lags, it keeps which keys have changed.

    `change` is the number of the last change of the keys themselves, where they are a stream's.
    """

    __slots__ = ("_hub", "_metrics", "_missed", "_pending", "_slow", "_told", "_wire", "change", "vector")

    def __init__(self, wire: Wire, hub: Hub, metrics: Metrics, view: KnownView) -> None:
        self._wire = wire
        self._hub = hub
        self._metrics = metrics
        self._pending: list[bytes] = []
        self._missed: dict[Follower, int] = {}
        self._slow = wire.paused
        self._told: Position | None = None
        self.change = 0
        self.vector = Vector(view, hub.sure)

    def begin(self, view: KnownView) -> None:
        """Forget everything: a snapshot of this build of the view follows."""
        self._pending.clear()
        self._missed.clear()
        self._told = None
        self.vector = Vector(view, self._hub.sure)

    def ready(self) -> Position:
        """Everything that was heard is in the snapshot: the position that it reaches."""
        self.vector.advance()
        self._told = self._position()
        return self._told

    def take(self, follower: Follower, frames: bytes, count: int) -> bool:
        """Gather a key's changes, or note that the client has missed them; True where they are to be written."""
        if self._slow:
            self._missed[follower] = self._missed.get(follower, 0) + count
            return False
        self.add(frames)
        return True

    def add(self, frames: bytes) -> None:
        """Write some frames at the end of this tick."""
        if not self._pending:
            self._hub.gather(self)
        self._pending.append(frames)

    def write(self) -> None:
        """Write what was gathered in this tick, with the position that it reaches."""
        pending, self._pending = self._pending, []
        if not pending or self._wire.closed.done():
            return
        body = b"".join(pending)
        if not self._wire.socket and not self._missed:
            self.vector.advance()
            if (position := self._position()) != self._told:
                self._told = position
                body = with_id(body, str(position))
        self._wire.send(body)

    def pause(self) -> None:
        """The client reads too slowly: of each key only the newest row waits for it."""
        self._slow = True

    def resume(self) -> None:
        """The client has caught up: it gets the newest row of every key that has changed."""
        # What waits for the flush is part of the newest row: it counts as missed, too.
        for follower in tuple(self._missed):
            follower.followed.flush()
        self._slow = False
        missed, self._missed = self._missed, {}
        for follower, changes in missed.items():
            self._metrics.conflated(changes - 1)
            self.add(follower.followed.encoded(follower.followed.newest(), follower))

    def forget(self, follower: Follower) -> None:
        """A key is followed no longer."""
        self._missed.pop(follower, None)

    def clear(self) -> None:
        """Write nothing more."""
        self._pending.clear()
        self._missed.clear()

    def _position(self) -> Position:
        # While keys are being added their partitions claim nothing, and what is said of removed ones is written first:
        # so the number of the change is true as soon as it is known.
        position = self.vector.position
        return replace(position, change=self.change) if self.change else position

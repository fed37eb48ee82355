"""How a client comes in: a snapshot, then updates, without a gap.

The steps: 1 the key's channel is joined, and Redis has confirmed it: from here on changes are heard; 2 the row and its
partition's position are read, again and again until the partition is whole and of the build that the catalog names;
3 the client's position is judged;
4 `Followed.enter` writes the snapshot and `ready` and makes the follower live, all in one tick.
A change that is published between 1 and 4 is in the read, or waits in `Standing`.
Cancelling a join leaves nothing behind but what `Hub.detach` removes.
"""

from __future__ import annotations

import asyncio
import logging

from tailrace.gateway.follower import Follower
from tailrace.gateway.frames import RETRY, progress
from tailrace.gateway.hub import Hub
from tailrace.gateway.known import Known
from tailrace.gateway.metrics import Metrics
from tailrace.gateway.reads import Reads
from tailrace.gateway.resume import After, Ahead, Fresh, Later, Reset, entry, rebuilt, too_far_ahead
from tailrace.gateway.timing import Timing
from tailrace.gateway.wire import Wire
from tailrace.store.channels import Channels
from tailrace.store.reader import Held, Unavailable

log = logging.getLogger(__name__)


class Joining:
    """Starts followers, and starts them again when their view was rebuilt."""

    def __init__(
        self, hub: Hub, channels: Channels, reads: Reads, known: Known, metrics: Metrics, timing: Timing
    ) -> None:
        self._hub = hub
        self._channels = channels
        self._reads = reads
        self._known = known
        self._metrics = metrics
        self._timing = timing

    async def stream(self, wire: Wire, view: str, key: bytes, position: str | None) -> None:
        """Feed a connection until it ends."""
        self._hub.open(wire)
        wire.send(RETRY)
        try:
            self._start(wire, view, key, position, None)
            if self._hub.draining:
                wire.finish()
            await wire.closed
        finally:
            if isinstance(wire.stream, Follower):
                self._hub.detach(wire.stream)
            wire.stream = None
            self._hub.close(wire)

    def rebuild(self, views: set[str]) -> None:
        """Start the followers of rebuilt views again, with a `reset`; those of removed views end.

        Who has not come in yet was told nothing of the build before, and is judged by its own position.
        """
        for followed in self._hub.followed():
            if followed.view.name not in views:
                continue
            view = self._known.views.get(followed.view.name)
            reset = rebuilt(view) if view is not None else None
            again = [
                (one.wire, None, reset) if one.live else (one.wire, one.position, one.reset)
                for one in followed.followers
            ]
            for follower in tuple(followed.followers):
                self._hub.detach(follower)
            for wire, position, told in again:
                self._start(wire, followed.view.name, followed.key, position, told)

    def _start(self, wire: Wire, name: str, key: bytes, position: str | None, reset: Reset | None) -> None:
        view = self._known.views.get(name)
        if view is None:
            wire.finish()
            return
        follower = self._hub.attach(view, key, wire)
        follower.position, follower.reset = position, reset
        follower.joining = asyncio.create_task(self._join(follower))

    async def _join(self, follower: Follower) -> None:
        followed = follower.followed
        try:
            await self._channels.joined(followed.channel)
            held, come = await self._judged(follower)
            await follower.wire.writable()
            followed.enter(follower, follower.reset or come, held)
        except Exception:
            # The client connects again, with the position it has.
            log.exception("join=failed view=%s key=%r", followed.view.name, followed.key[:200])
            follower.wire.finish()

    async def _judged(self, follower: Follower) -> tuple[Held, Fresh | After | Reset]:
        followed, view = follower.followed, follower.followed.view
        clock = asyncio.get_running_loop().time
        impatient: float | None = None
        while True:
            try:
                held = await self._reads.held(view, followed.key)
            except Unavailable:
                await asyncio.sleep(self._timing.poll)
                continue
            if followed.learn(held):
                self._metrics.repaired.inc()
            target = held.target
            if held.whole and held.offset is not None and followed.serves(held):
                # A key that holds something has forgotten nothing.
                forgotten = held.pruned if held.row is None else -1
                come = entry(follower.position, view, followed.partition, held.offset, forgotten)
                if not isinstance(come, Ahead | Later):
                    return held, come
                impatient = impatient or clock() + self._timing.patience
                if clock() >= impatient:
                    return held, too_far_ahead(come, view, held.offset)
                target = come.offset if isinstance(come, Ahead) else target
            else:
                impatient = None
            if not follower.wire.paused:
                frame = progress(held.offset, target)
                follower.wire.send(frame)
                self._metrics.sent("progress", 1, len(frame))
            await asyncio.sleep(self._timing.poll)

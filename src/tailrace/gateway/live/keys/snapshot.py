"""How a client comes in: a snapshot, then updates, without a gap.

The steps: 1 the keys' channels are joined, and Redis has confirmed it: from here on changes are heard; 2 the rows and
their partitions' positions are read, those of a partition together, again and again until every partition is whole and
of the build that the catalog names; 3 the client's positions are judged;
4 `KeySubscription` writes the snapshot and `ready` and makes every follower live, all in one tick.
A change that is published between 1 and 4 is in the read, or waits in `Standing`.
Cancelling a join leaves nothing behind but what `Hub.detach` removes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from tailrace.gateway.catalog import Known
from tailrace.gateway.frames.notices import progress
from tailrace.gateway.live.keys.follower import Follower
from tailrace.gateway.live.keys.reads import Reads
from tailrace.gateway.live.keys.registry import Hub
from tailrace.gateway.live.positions import After, Ahead, Fresh, Later, Reset, entries, too_far_ahead
from tailrace.gateway.live.subscription import Subscription
from tailrace.gateway.metrics import Metrics
from tailrace.gateway.timing import Timing
from tailrace.store.read.channels import Channels
from tailrace.store.read.reader import Held, Unavailable


class Joining:
    """What subscriptions of keys come in by, and start again by when their view was rebuilt."""

    def __init__(
        self, hub: Hub, channels: Channels, reads: Reads, known: Known, metrics: Metrics, timing: Timing
    ) -> None:
        self.hub = hub
        self._channels = channels
        self._reads = reads
        self.known = known
        self.metrics = metrics
        self._timing = timing

    def rebuild(self, views: set[str]) -> None:
        """Start the subscriptions of rebuilt views again, with a `reset`; those of removed views end."""
        again = {
            follower.subscription: None
            for followed in self.hub.followed()
            if followed.view.name in views
            for follower in followed.followers
        }
        # All leave before the first comes back: a key that anyone still follows is of the build before.
        for subscription in again:
            subscription.rebuild()
        for subscription in again:
            subscription.start()

    async def judged(
        self, subscription: Subscription, followers: Sequence[Follower], asked: Mapping[bytes, str | None]
    ) -> tuple[Mapping[bytes, Held], dict[bytes, Fresh | After] | Reset]:
        """Steps 1 to 3: what each key holds, and how the client comes in."""
        for follower in followers:
            await self._channels.joined(follower.followed.channel)
        if not followers:
            return {}, {}
        view = followers[0].followed.view
        keys = [follower.followed.key for follower in followers]
        clock = asyncio.get_running_loop().time
        impatient: float | None = None
        while True:
            try:
                found = await self._reads.all(view, keys)
            except Unavailable:
                await asyncio.sleep(self._timing.poll)
                continue
            held = dict(zip(keys, found, strict=True))
            waits = self._learn(followers, found)
            if waits is None:
                come = entries(asked, view, held)
                if not isinstance(come, Ahead | Later):
                    return held, come
                stored = min(one.offset for one in found if one.offset is not None)
                impatient = impatient or clock() + self._timing.patience
                if clock() >= impatient:
                    return held, too_far_ahead(come, view, stored)
                waits = (stored, come.offset if isinstance(come, Ahead) else found[0].target)
            else:
                impatient = None
            if not subscription.wire.paused:
                frame = progress(subscription, *waits)
                subscription.wire.send(frame)
                self.metrics.sent("progress", 1, len(frame), subscription.wire.framing.surface)
            await asyncio.sleep(self._timing.poll)

    def _learn(self, followers: Sequence[Follower], found: Sequence[Held]) -> tuple[int | None, int | None] | None:
        """Take in what was read; returns how far a partition is that has to be waited for."""
        waits = None
        for follower, held in zip(followers, found, strict=True):
            if follower.followed.learn(held):
                self.metrics.repaired.inc()
            if not held.whole or held.offset is None or not follower.followed.serves(held):
                waits = waits or (held.offset, held.target)
        return waits

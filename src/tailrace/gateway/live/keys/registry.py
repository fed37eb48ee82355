"""All keys that are followed here: a key's channel is joined with its first follower and left with its last."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from weakref import WeakValueDictionary

from tailrace.gateway.catalog import ServedCatalog, ServedView
from tailrace.gateway.live.channels import ChannelRegistry
from tailrace.gateway.live.keys.progress import PartitionProgress
from tailrace.gateway.live.keys.reads import Reads
from tailrace.gateway.live.keys.watched import Follower, Following, KeyGatherer, WatchedKey
from tailrace.gateway.live.tick import Tick
from tailrace.gateway.metrics import Metrics
from tailrace.gateway.timing import Timing


class KeyRegistry:
    """Followed keys, and what subscriptions of keys need.

    `channel` names the channel of (view, partition, lineage, key).
    """

    def __init__(
        self,
        channels: ChannelRegistry,
        channel: Callable[[str, int, str, bytes], bytes],
        tick: Tick,
        reads: Reads,
        known: ServedCatalog,
        metrics: Metrics,
        timing: Timing,
    ) -> None:
        self.channels = channels
        self.tick = tick
        self.reads = reads
        self.known = known
        self.metrics = metrics
        self.timing = timing
        self._channel = channel
        self._followed: dict[bytes, WatchedKey] = {}
        self._progress: WeakValueDictionary[tuple[ServedView, int], PartitionProgress] = WeakValueDictionary()

    def attach(
        self, view: ServedView, key: bytes, subscription: Following, gatherer: KeyGatherer | None = None
    ) -> Follower:
        """Follow a key. The follower is written nothing until its subscription makes it live."""
        partition = view.partition(key)
        channel = self._channel(view.name, partition, view.lineage, key)
        followed = self._followed.get(channel)
        if followed is None:
            progress = self._progress.get((view, partition))
            if progress is None:
                progress = self._progress[view, partition] = PartitionProgress()
            followed = WatchedKey(view, key, channel, progress, self.tick, self.metrics)
            self._followed[channel] = followed
            self.channels.join(channel, followed)
        follower = Follower(subscription, followed, gatherer)
        followed.followers.add(follower)
        self.metrics.followers.inc()
        self.metrics.channels.set(len(self._followed))
        return follower

    def detach(self, follower: Follower) -> None:
        followed = follower.followed
        if follower not in followed.followers:
            return
        followed.followers.discard(follower)
        followed.silence(follower)
        self.metrics.followers.dec()
        if not followed.followers:
            del self._followed[followed.channel]
            self.channels.leave(followed.channel, followed)
        self.metrics.channels.set(len(self._followed))

    def sure(self, progress: PartitionProgress) -> bool:
        """Whether nothing of a partition was missed."""
        return self.channels.up and progress.sure

    def doubt(self) -> None:
        """Messages of any key may have been lost."""
        for progress in tuple(self._progress.values()):
            progress.doubt()

    def followed(self) -> Iterator[WatchedKey]:
        return iter(tuple(self._followed.values()))

    def rebuild(self, views: set[str]) -> None:
        """Start the subscriptions of rebuilt views again, with a `reset`. Those of removed views end."""
        again = {
            follower.subscription: None
            for followed in self.followed()
            if followed.view.name in views
            for follower in followed.followers
        }
        # All leave before the first comes back: a key that still has a follower is of the build before.
        for subscription in again:
            subscription.rebuild()
        for subscription in again:
            subscription.start()

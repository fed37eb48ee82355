"""One key, as one subscription follows it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from tailrace.gateway.connection.wire import Wire

if TYPE_CHECKING:
    from tailrace.gateway.live.keys.watched import Followed


class Gatherer(Protocol):
    """A subscription of several keys: it gathers the frames of a tick and writes them itself."""

    def take(self, follower: Follower, frames: bytes, count: int) -> bool:
        """Take the frames of a key's changes since the last flush, and how many they are; False where it must not."""

    def write(self) -> None:
        """Write what was gathered; every key that has changed in this tick has been flushed."""


class Following(Protocol):
    """A subscription of keys, which can leave and come back."""

    wire: Wire

    def rebuild(self) -> None:
        """Leave, to be started again: the view was rebuilt or removed."""

    def start(self) -> None:
        """Begin to join."""


class Follower:
    """A subscription and a key that it is fed from. It is live from the snapshot on.

    Where `gatherer` is None, changes are written straight to the wire. `seen` counts the key's changes that were
    written before its client became slow.
    """

    __slots__ = ("followed", "gatherer", "live", "seen", "subscription", "wire")

    def __init__(self, subscription: Following, followed: Followed, gatherer: Gatherer | None = None) -> None:
        self.subscription = subscription
        self.wire = subscription.wire
        self.followed = followed
        self.gatherer = gatherer
        self.live = False
        self.seen = 0

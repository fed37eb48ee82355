"""One client that follows one key."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tailrace.gateway.resume import Reset
from tailrace.gateway.wire import Wire

if TYPE_CHECKING:
    from tailrace.gateway.followed import Followed


class Follower:
    """A wire and the key it is fed from. It is live from `ready` on.

    `position` is what its client came with, `reset` what it is to be told when it comes in.
    `seen` counts the key's changes that were written to the wire before its client became slow.
    """

    __slots__ = ("followed", "joining", "live", "position", "reset", "seen", "wire")

    def __init__(self, wire: Wire, followed: Followed) -> None:
        self.wire = wire
        self.followed = followed
        self.joining: asyncio.Task[None] | None = None
        self.position: str | None = None
        self.reset: Reset | None = None
        self.live = False
        self.seen = 0
        wire.stream = self

    def pause(self) -> None:
        """The client reads too slowly: only the newest row waits for it."""
        if self.live:
            self.followed.pause(self)

    def resume(self) -> None:
        """The client has caught up."""
        if self.live:
            self.followed.resume(self)

    def stop(self) -> None:
        """The client is gone; `Hub.detach` follows."""
        self.followed.silence(self)

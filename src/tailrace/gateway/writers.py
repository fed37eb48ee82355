"""The transports of one framing that the changes of a key go to."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tailrace.gateway.follower import Follower

log = logging.getLogger(__name__)

Write = Callable[[bytes], None]


class Writers:
    """Followers that are written to straight; the tuple of their writes is made anew only after one came or left."""

    __slots__ = ("_followers", "_writes")

    def __init__(self) -> None:
        self._followers: dict[Follower, None] = {}
        self._writes: tuple[Write, ...] | None = ()

    def __bool__(self) -> bool:
        return bool(self._followers)

    def include(self, follower: Follower) -> None:
        """Write to a follower from now on."""
        self._followers[follower] = None
        self._writes = None

    def exclude(self, follower: Follower) -> bool:
        """Write to a follower no longer; True where it was written to."""
        if follower not in self._followers:
            return False
        del self._followers[follower]
        self._writes = None
        return True

    def write(self, data: bytes) -> int:
        """Write the same bytes to everyone, and return how many that are.

        A WebSocket that follows the key under several ids is one of them.
        """
        if self._writes is None:
            self._writes = tuple({follower.wire: follower.wire.write for follower in self._followers}.values())
        writes = self._writes
        # A write may find the client slow and change who is written to: this loop goes over the tuple.
        for write in writes:
            try:
                write(data)
            except Exception:
                # A transport that refuses is on its way to `connection_lost`; the others must not pay for it.
                log.exception("write=refused bytes=%d", len(data))
        return len(writes)

"""The connections of one framing that the changes of a key go to."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from tailrace.gateway.connection.direct_transport import Lane

if TYPE_CHECKING:
    from tailrace.gateway.live.keys.follower import Follower

log = logging.getLogger(__name__)

Write = Callable[[bytes], None]


class Writers:
    """Followers that are written to straight.

    Whose lane is clear is written to by its descriptor, in one loop that looks at nothing else: with a thousand
    clients, what is looked at of each has long left the processor's caches. Who is written to how is found anew only
    after a follower came or left, or a lane has changed.
    """

    __slots__ = ("_changes", "_clear", "_followers", "_others")

    def __init__(self) -> None:
        self._followers: dict[Follower, None] = {}
        self._clear: dict[int, Lane] = {}
        self._others: tuple[Write, ...] = ()
        self._changes = -1

    def __bool__(self) -> bool:
        return bool(self._followers)

    def include(self, follower: Follower) -> None:
        """Write to a follower from now on."""
        self._followers[follower] = None
        self._changes = -1

    def exclude(self, follower: Follower) -> bool:
        """Write to a follower no longer; True where it was written to."""
        if follower not in self._followers:
            return False
        del self._followers[follower]
        self._changes = -1
        return True

    def write(self, data: bytes) -> int:
        """Write the same bytes to everyone, and return how many that are.

        A WebSocket that follows the key under several ids is one of them.
        """
        if self._changes != Lane.changes:
            self._sort()
        # A write may find the client slow and change who is written to: these two are never changed, only replaced.
        clear, others = self._clear, self._others
        size, system_write = len(data), os.write
        for descriptor in clear:
            try:
                sent = system_write(descriptor, data)
            except OSError:
                # No room, or a broken connection: the transport finds out which, and tells.
                sent = 0
            if sent != size:
                _pass(clear[descriptor].hold, data[sent:])
        for write in others:
            _pass(write, data)
        return len(clear) + len(others)

    def _sort(self) -> None:
        clear: dict[int, Lane] = {}
        others = []
        for wire in {follower.wire: None for follower in self._followers}:
            lane = wire.lane
            if lane is not None and lane.clear:
                clear[lane.descriptor] = lane
            else:
                others.append(wire.write)
        self._clear, self._others = clear, tuple(others)
        self._changes = Lane.changes


def _pass(write: Write, data: bytes) -> None:
    try:
        write(data)
    except Exception:
        # A transport that refuses is on its way to `connection_lost`; the others must not pay for it.
        log.exception("write=refused bytes=%d", len(data))

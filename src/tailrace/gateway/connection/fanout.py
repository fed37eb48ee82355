"""Fan-out: frames are encoded once for each surface, and written to every connection that follows the same thing."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from tailrace.gateway.connection.direct_transport import DirectTransport
from tailrace.gateway.connection.wire import Framing, Wire
from tailrace.gateway.frames.frame import Frame
from tailrace.gateway.frames.surface import Surface
from tailrace.gateway.metrics import Metrics

log = logging.getLogger(__name__)


class Receiver(Protocol):
    """Whatever frames are written to: a subscription, or its part in one key."""

    wire: Wire


class Fanout:
    """All receivers of every frame of one thing that clients follow.

    A receiver that reads too slowly is excluded, and included again when it has caught up.
    """

    __slots__ = ("_metrics", "_writers")

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._writers: dict[Framing, Writers] = {}

    def __bool__(self) -> bool:
        return any(self._writers.values())

    def __iter__(self) -> Iterator[Receiver]:
        return (receiver for writers in self._writers.values() for receiver in writers)

    def __contains__(self, receiver: Receiver) -> bool:
        writers = self._writers.get(receiver.wire.framing)
        return writers is not None and receiver in writers

    def include(self, receiver: Receiver) -> None:
        """Write to a receiver from now on."""
        framing = receiver.wire.framing
        if framing not in self._writers:
            self._writers[framing] = Writers()
        self._writers[framing].include(receiver)

    def exclude(self, receiver: Receiver) -> bool:
        """Write to a receiver no longer; True if it was written to."""
        writers = self._writers.get(receiver.wire.framing)
        return writers is not None and writers.exclude(receiver)

    def write(self, frames: Sequence[Frame], reached: bytes | None = None) -> None:
        """Write frames to all receivers at once. `reached` is as for `Surface.together`."""
        bodies: dict[Surface, bytes] = {}
        for framing, writers in tuple(self._writers.items()):
            if writers:
                surface = framing.surface
                if surface not in bodies:
                    bodies[surface] = surface.together(frames, reached)
                written = writers.write(framing.wrap(bodies[surface]))
                # The position that frames have together is not part of any of them.
                size = len(bodies[surface]) if reached is None else sum(len(surface.bare(frame)) for frame in frames)
                self.count(frames, surface, size, written, bare=reached is not None)

    def count(
        self, frames: Sequence[Frame], surface: Surface, size: int, receivers: int = 1, *, bare: bool = True
    ) -> None:
        """Count frames that were written to so many receivers, `size` bytes to each."""
        kinds = [frame.kind for frame in frames]
        for kind in set(kinds):
            number = kinds.count(kind)
            if number < len(kinds):
                encode = surface.bare if bare else surface.encode
                size = sum(len(encode(frame)) for frame in frames if frame.kind == kind)
            self._metrics.sent(kind, number * receivers, size * receivers, surface.name)


class Writers:
    """Receivers of one framing, written to directly.

    If the direct transport of a connection is clear, bytes go straight to its descriptor, in a loop that
    looks at nothing else: with a thousand clients, anything else has long left the processor's caches. Which
    connections to write to, and how, is computed again only after a receiver came or left, or a transport has
    changed.
    """

    __slots__ = ("_changes", "_clear", "_others", "_receivers")

    def __init__(self) -> None:
        self._receivers: dict[Receiver, None] = {}
        self._clear: dict[int, DirectTransport] = {}
        self._others: tuple[Callable[[bytes], None], ...] = ()
        self._changes = -1

    def __bool__(self) -> bool:
        return bool(self._receivers)

    def __iter__(self) -> Iterator[Receiver]:
        return iter(tuple(self._receivers))

    def __contains__(self, receiver: Receiver) -> bool:
        return receiver in self._receivers

    def include(self, receiver: Receiver) -> None:
        """Write to a receiver from now on."""
        self._receivers[receiver] = None
        self._changes = -1

    def exclude(self, receiver: Receiver) -> bool:
        """Write to a receiver no longer; True if it was written to."""
        if receiver not in self._receivers:
            return False
        del self._receivers[receiver]
        self._changes = -1
        return True

    def write(self, data: bytes) -> int:
        """Write the same bytes to every connection, and return how many there are.

        A WebSocket that follows the same thing under several ids is one connection.
        """
        if self._changes != DirectTransport.changes:
            self._sort()
        # A write may find a client slow and exclude it. So these two are replaced, and never changed.
        clear, others = self._clear, self._others
        size, system_write = len(data), os.write
        for descriptor in clear:
            try:
                sent = system_write(descriptor, data)
            except OSError:
                # No room, or a broken connection: the transport finds out which, and tells its protocol.
                sent = 0
            if sent != size:
                _pass(clear[descriptor].hold, data[sent:])
        for write in others:
            _pass(write, data)
        return len(clear) + len(others)

    def _sort(self) -> None:
        clear: dict[int, DirectTransport] = {}
        others = []
        for wire in {receiver.wire: None for receiver in self._receivers}:
            direct = wire.direct
            if direct is not None and direct.clear:
                clear[direct.descriptor] = direct
            else:
                others.append(wire.write)
        self._clear, self._others = clear, tuple(others)
        self._changes = DirectTransport.changes


def _pass(write: Callable[[bytes], None], data: bytes) -> None:
    try:
        write(data)
    except Exception:
        # A transport that refuses is about to call `connection_lost`; the others must not pay for it.
        log.exception("write=refused bytes=%d", len(data))

"""Channels: every message of the pub/sub link goes to the listeners that have joined its channel."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Protocol

from tailrace.gateway.metrics import Metrics

log = logging.getLogger(__name__)


class PubSubLink(Protocol):
    """Where messages come from: the pub/sub link of the store."""

    @property
    def up(self) -> bool:
        """Whether every message of every wanted channel comes through."""

    def join(self, channel: bytes) -> None: ...

    def leave(self, channel: bytes) -> None: ...

    async def joined(self, channel: bytes) -> None:
        """Wait until its messages come."""


class Listener(Protocol):
    """What takes the messages of a channel."""

    def receive(self, data: bytes) -> None:
        """Take a message. Raises any exception if it can't be read."""

    def missed(self) -> None:
        """A message could not be read, and is lost."""


class Bell:
    """A listener that rings at any message."""

    def __init__(self, ring: Callable[[], None]) -> None:
        self._ring = ring

    def receive(self, _: bytes) -> None:
        self._ring()

    def missed(self) -> None:
        self._ring()


class ChannelRegistry:
    """Listeners by channel: a channel is joined with its first listener and left with its last."""

    def __init__(self, link: PubSubLink, metrics: Metrics) -> None:
        self._link = link
        self._metrics = metrics
        self._listeners: dict[bytes, tuple[Listener, ...]] = {}

    @property
    def up(self) -> bool:
        """Whether every message of every channel comes through."""
        return self._link.up

    def join(self, channel: bytes, listener: Listener) -> None:
        """Pass the messages of a channel on to a listener."""
        before = self._listeners.get(channel, ())
        self._listeners[channel] = (*before, listener)
        if not before:
            self._link.join(channel)

    def leave(self, channel: bytes, listener: Listener) -> None:
        """Pass a listener nothing more; safe to call again."""
        before = self._listeners.get(channel, ())
        left = tuple(one for one in before if one is not listener)
        if left:
            self._listeners[channel] = left
        elif before:
            del self._listeners[channel]
            self._link.leave(channel)

    async def joined(self, channel: bytes) -> None:
        """Wait until the messages of a channel come."""
        await self._link.joined(channel)

    def deliver(self, channel: bytes, data: bytes) -> None:
        """Pass a message on. If it can't be read, log and count it, and have its listener read what it has missed.

        One message must not cost the link, and all others with it.
        """
        for listener in self._listeners.get(channel, ()):
            try:
                listener.receive(data)
            except Exception:
                log.exception("message=dropped channel=%r bytes=%d", channel[:200], len(data))
                self._metrics.set_aside("message")
                listener.missed()

"""What a program holds of one thing that it follows."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from types import MappingProxyType
from typing import Any, Literal, Protocol

from tailrace.client.changes import Changes
from tailrace.client.events import EventFrames
from tailrace.client.frames import Change, Ready, Row
from tailrace.client.local_copy import Copy, Frame, Transport
from tailrace.client.targets import Target, kind_of
from tailrace.errors import TailraceError

log = logging.getLogger(__name__)

Status = Literal["connecting", "live", "waiting", "failed", "closed"]

# How many events of a feed may wait for the reader; then the client asks the gateway for no more.
_WAITING = 1000


class Refused(TailraceError):
    """The gateway has refused, and would refuse again. `details` has its answer; the text says what to do."""

    def __init__(self, message: str, details: Mapping[str, Any] | None = None) -> None:
        super().__init__(message)
        self.details = dict(details or {})


class Door(Protocol):
    """What a subscription asks of its client."""

    def leave(self, subscription: Subscription) -> None:
        """Stop following."""

    def hold(self, subscription: Subscription) -> None:
        """Receive nothing until `serve`."""

    def serve(self, subscription: Subscription) -> None:
        """Receive, from where it was."""


class Link:
    """For the client only: how a subscription is connected."""

    def __init__(self) -> None:
        self.name = ""  # on the current socket
        self.attempt = 0  # since the last `ready`
        self.held = False
        self.stream: asyncio.Task[None] | None = None


class Subscription:
    """Rows by key, and changes to iterate over.

    `on_change` is called with every change, `on_status` with the status and the reason; both must return soon.
    Iterating begins with the rows that are held now. A slow reader gets the newest row of each key. Of a feed it gets
    every event, and the client asks the gateway for no more while a thousand wait. Leaving the loop ends nothing;
    `close` does.
    """

    def __init__(
        self,
        target: Target,
        door: Door,
        *,
        position: str | None = None,
        loads: Callable[[str], Any] = json.loads,
        on_change: Callable[[Change], None] | None = None,
        on_status: Callable[[Status, object], None] | None = None,
    ) -> None:
        self.target = target
        self.status: Status = "connecting"
        self.error: Refused | None = None
        self.frames = EventFrames(target, loads)
        self.apart = False  # whether it has a connection of its own
        self.link = Link()
        self.on_change = on_change
        self.on_status = on_status
        self._door = door
        self._copy = Copy(kind_of(target), position)
        self._readers: list[Changes] = []
        self._events = Changes() if kind_of(target) == "feed" else None
        self._news = asyncio.Event()

    @property
    def rows(self) -> Mapping[str, Any]:
        """The rows that are held now, by the text of the key. It changes as frames come."""
        return MappingProxyType(self._copy.rows)

    @property
    def ended(self) -> bool:
        return self.status in ("failed", "closed")

    async def ready(self) -> None:
        """Wait until everything up to now is held. Raises Refused if the subscription ends before."""
        while not self._copy.ready:
            if self.ended:
                raise self.error or Refused("the subscription was closed before it was ready")
            await self._news.wait()

    async def __aiter__(self) -> AsyncIterator[Change]:
        changes = self._events
        if changes is None:
            changes = Changes()
            for key, row in self.rows.items():
                changes.push(Row(key, row))
            if self._copy.ready:
                changes.push(Ready())
        self._readers.append(changes)
        try:
            while True:
                change = changes.shift()
                if change is not None:
                    if self.link.held and len(changes) <= _WAITING // 2 and not self.ended:
                        self._door.serve(self)
                    yield change
                elif self.status == "failed" and self.error is not None:
                    raise self.error
                elif self.ended:
                    return
                else:
                    await self._news.wait()
        finally:
            self._readers = [one for one in self._readers if one is not changes]

    def close(self) -> None:
        """Stop following."""
        if not self.ended:
            self.say("closed")
            self._door.leave(self)

    def begin(self, transport: Transport) -> dict[str, Any]:
        """For the client: a connection begins. Returns the positions that it resumes from."""
        self.frames.begin()
        return self._copy.begin(transport)

    def take(self, frame: Frame) -> None:
        """For the client: a frame has come."""
        if self.ended:
            return
        for change in self._copy.take(frame):
            self._tell(change)

    def fail(self, error: Refused) -> None:
        """For the client: the gateway has refused for good."""
        if not self.ended:
            self.error = error
            self.say("failed", error)

    def say(self, status: Status, detail: object = None) -> None:
        """For the client: how the connection is."""
        if self.ended or self.status == status == "live":
            return
        self.status = status
        if self.on_status is not None:
            call(self.on_status, status, detail)
        self._wake()

    def _tell(self, change: Change) -> None:
        if isinstance(change, Ready):
            self.link.attempt = 0
            self.say("live")
        if self._events is not None:
            # If a callback takes the events and nobody iterates, none wait.
            if self._readers or self.on_change is None:
                self._events.push(change)
            else:
                self._events = Changes()
            if len(self._events) >= _WAITING and not self.link.held:
                self._door.hold(self)
        for changes in self._readers:
            if changes is not self._events:
                changes.push(change)
        self._wake()
        if self.on_change is not None:
            call(self.on_change, change)

    def _wake(self) -> None:
        # Wakes those that wait now; later ones wait for the next event.
        self._news.set()
        self._news = asyncio.Event()


def call(callback: Callable[..., None], *values: object) -> None:
    """Call a callback. If it fails, that must not end the connection."""
    try:
        callback(*values)
    except Exception:
        log.exception("callback=failed")

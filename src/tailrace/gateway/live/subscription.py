"""What one connection follows: some keys, a query, a feed or a stream. This is what all of them have in common."""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Generic, ParamSpec, Protocol, TypeVar, cast

from tailrace.gateway.connection.close_reasons import Ending, ending_of
from tailrace.gateway.connection.wire import Wire
from tailrace.gateway.live.requests import FollowKeys, FollowQuery
from tailrace.gateway.metrics import Metrics
from tailrace.gateway.problems import Problem
from tailrace.gateway.timing import Timing
from tailrace.store.connection.outages import Unavailable

log = logging.getLogger(__name__)

T = TypeVar("T")
P = ParamSpec("P")


@dataclass(frozen=True, slots=True)
class Behind(Generic[T]):
    """The store has to come further first. `instead` counts if it does not in time; None means wait on.

    `progress` is how far the store is and how far it must come. The client is told meanwhile.
    """

    progress: tuple[int | None, int | None] | None
    instead: T | None = None


class Owner(Protocol):
    """What a subscription belongs to: the session of a WebSocket or, over Server-Sent Events, itself."""

    def ended(self, subscription: Subscription, problem: Problem, ending: Ending) -> None:
        """A subscription can't go on."""

    def check_room(self) -> None:
        """Raise a Problem if the connection follows more keys than one connection may."""


class Subscription(ABC):
    """A connection with Server-Sent Events has one subscription; a WebSocket has many.

    `id` is the client's name for it on a WebSocket, and None over Server-Sent Events. `outer` is the stream's
    subscription that it is a part of, if there is one. The methods run in the loop's thread and do not wait.
    """

    __slots__ = ("id", "metrics", "outer", "timing", "wire")

    # The name of its query in frames, if it has one.
    query: str | None = None

    def __init__(self, wire: Wire, id: str | None, metrics: Metrics, timing: Timing) -> None:
        self.wire = wire
        self.id = id
        self.metrics = metrics
        self.timing = timing
        self.outer: Subscription | None = None

    @property
    def size(self) -> int:
        return 0

    @property
    def asked(self) -> FollowKeys | FollowQuery | None:
        """What it follows now, if that differs from what its client has asked for."""
        return None

    @property
    def owner(self) -> Owner:
        return cast(Owner, self.wire.stream) if self.wire.stream is not None else self.outer or self

    @abstractmethod
    def start(self) -> None:
        """Begin to come in: a snapshot, `ready`, then updates are written to the wire."""

    @abstractmethod
    def pause(self) -> None:
        """The client reads too slowly: write nothing until `resume`."""

    @abstractmethod
    def resume(self) -> None:
        """The client has caught up: write what it has missed."""

    @abstractmethod
    def stop(self) -> None:
        """Write nothing more: the client is gone, or has unsubscribed. Safe to call again."""

    @abstractmethod
    def close(self) -> None:
        """Leave, and leave nothing behind. Safe to call again."""

    def end(self, problem: Problem, ending: Ending | None = None) -> None:
        """End the subscription with a problem. A WebSocket goes on without it; Server-Sent Events end.

        If it is a part of a stream's subscription, that ends.
        """
        self.owner.ended(self.outer or self, problem, ending or ending_of(problem))

    def ended(self, subscription: Subscription, problem: Problem, ending: Ending) -> None:  # noqa: ARG002
        """The only subscription of its connection can't go on."""
        self.wire.finish(ending)

    def check_room(self) -> None:  # noqa: B027
        """One subscription is never too many."""

    def send(self, kind: str, frames: bytes, count: int = 1) -> None:
        """Write frames of one kind that are for this client alone."""
        if count:
            self.wire.send(frames)
            self.metrics.sent(kind, count, len(frames), self.wire.surface.name)

    async def guarded(self, step: Callable[P, Awaitable[None]], *args: P.args, **kwargs: P.kwargs) -> None:
        """Run a step. If it fails, the subscription ends, and the client may come back with its last position."""
        try:
            await step(*args, **kwargs)
        except Problem as problem:
            self.end(problem)
        except Exception:
            log.exception("subscription=failed id=%s what=%s", self.id, self)
            self.end(Problem(500, "internal error", remedy="Subscribe again, with the last position."))

    async def restored(self, look: Callable[[], Awaitable[T | Behind[T]]]) -> T:
        """Look until the store has come far enough, and return what was found. The client is told how far it is."""
        clock = asyncio.get_running_loop().time
        deadline: float | None = None
        while True:
            try:
                found = await look()
            except Unavailable:
                await asyncio.sleep(self.timing.poll)
                continue
            if not isinstance(found, Behind):
                return found
            if found.instead is None:
                deadline = None
            else:
                deadline = deadline or clock() + self.timing.patience
                if clock() >= deadline:
                    return found.instead
            if found.progress is not None and not self.wire.paused:
                self.send("progress", self.wire.surface.progress(self.id, *found.progress))
            await asyncio.sleep(self.timing.poll)

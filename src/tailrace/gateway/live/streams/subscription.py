"""A connection to a stream that the gateways keep: nothing until the stream has begun, then what it follows.

The stream is read again whenever its channel says that it was changed, and now and then, because pub/sub may lose
messages. The inner subscription, which feeds the connection, is told which keys were added or removed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from tailrace.contracts.commands import Stream
from tailrace.gateway.connection.close_reasons import GONE
from tailrace.gateway.connection.wire import Wire
from tailrace.gateway.live.keys.subscription import KeySubscription
from tailrace.gateway.live.queries.subscription import QuerySubscription
from tailrace.gateway.live.requests import FollowKeys, FollowQuery, FollowStream
from tailrace.gateway.live.streams.connected import ConnectedStreams
from tailrace.gateway.live.subscription import Subscription
from tailrace.gateway.metrics import Metrics
from tailrace.gateway.problems import Problem
from tailrace.gateway.timing import Timing

# What a stream follows, and what makes that for a wire. The maker raises a Problem if the client may not or can't.
Inner = KeySubscription | QuerySubscription
Make = Callable[[Stream, Wire, FollowStream], Awaitable[Inner]]
# Raises a Problem if the client may not follow keys that were added to its stream.
Allow = Callable[["StreamSubscription", Sequence[bytes]], None]


class StreamSubscription(Subscription):
    """`query` is the name of the stream's query in frames; None for a stream of keys."""

    def __init__(
        self,
        streams: ConnectedStreams,
        wire: Wire,
        follow: FollowStream,
        stream: Stream,
        query: str | None,
        make: Make,
        allow: Allow,
        metrics: Metrics,
        timing: Timing,
    ) -> None:
        super().__init__(wire, follow.id, metrics, timing)
        self.query = query
        self.stream = stream
        self._streams = streams
        self._asked = follow
        self._make = make
        self._allow = allow
        self._inner: Inner | None = None
        self._task: asyncio.Task[None] | None = None
        self._news: Stream | None = None
        self._closed = False

    @property
    def asked(self) -> FollowKeys | FollowQuery:
        """What the stream follows now."""
        return follows(self.stream, self._asked)

    @property
    def size(self) -> int:
        return len(self.stream.keys or ())

    def start(self) -> None:
        """Hold the stream, and follow what is in it once it has begun."""
        if not self._closed:
            self._streams.hold(self)
            self.take(self.stream)

    def take(self, stream: Stream | None) -> None:
        """Take the stream as it is now; None if it has ended."""
        if self._closed:
            return
        if stream is None:
            self.end(Problem(404, "unknown stream", got=self.stream.id, remedy="The stream has ended."), GONE)
            return
        self._news = stream
        if self._task is None:
            self._task = asyncio.create_task(self._follow())

    def pause(self) -> None:
        if self._inner is not None:
            self._inner.pause()

    def resume(self) -> None:
        if self._inner is not None:
            self._inner.resume()

    def stop(self) -> None:
        if self._inner is not None:
            self._inner.stop()

    def close(self) -> None:
        self._closed = True
        self._streams.release(self)
        if self._task is not None and self._task is not asyncio.current_task():
            self._task.cancel()
        if self._inner is not None:
            self._inner.close()

    async def _follow(self) -> None:
        try:
            while self._news is not None and not self._closed:
                stream, self._news = self._news, None
                await self.guarded(self._become, stream)
        finally:
            self._task = None

    async def _become(self, stream: Stream) -> None:
        before, self.stream = self.stream, stream
        self.owner.check_room()
        if self._inner is None:
            if not stream.begun:
                return
            if stream.keys is not None:
                # It may have grown since the client asked for it.
                self._allow(self, [])
            inner = await self._make(stream, self.wire, self._asked)
            if self._closed:
                return
            inner.outer = self
            self._inner = inner
            if isinstance(inner, KeySubscription):
                inner.renumber(stream.changes.number)
            inner.start()
        elif isinstance(self._inner, KeySubscription) and (before.keys, before.changes) != (
            stream.keys,
            stream.changes,
        ):
            keys = stream.keys or ()
            held = {key.decode() for key in self._inner.keys}
            self._allow(self, [key.encode() for key in keys if key not in held])
            self._inner.remove([key.encode() for key in held.difference(keys)])
            self._inner.add([key.encode() for key in keys])
            self._inner.renumber(stream.changes.number)


def follows(stream: Stream, follow: FollowStream) -> FollowKeys | FollowQuery:
    """What the client of a stream follows."""
    if stream.keys is None:
        return FollowQuery(follow.id, stream.view, stream.where, follow.position)
    return FollowKeys(follow.id, stream.view, stream.keys, follow.position, follow.positions)

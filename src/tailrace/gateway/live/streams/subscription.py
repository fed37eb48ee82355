"""A connection to a stream that the gateways keep: nothing comes before the stream has begun, then what it follows.

What the stream is, is read again whenever its channel says that it was changed, and now and then, because pub/sub may
lose that. Keys that were added or removed since are told to the subscription that is fed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from tailrace.contracts.commands import Stream
from tailrace.gateway.connection.close_reasons import FAULT, GONE, end, ending_of
from tailrace.gateway.connection.wire import Wire
from tailrace.gateway.live.keys.subscription import KeySubscription
from tailrace.gateway.live.queries.subscription import QuerySubscription
from tailrace.gateway.live.requests import FollowKeys, FollowQuery, FollowStream
from tailrace.gateway.problems import Problem

if TYPE_CHECKING:
    from tailrace.gateway.live.streams.connected import HeldStreams

log = logging.getLogger(__name__)

# Makes what a stream follows, for a wire; raises a Problem where its client may not, or can't.
Inner = KeySubscription | QuerySubscription
Make = Callable[[Stream, Wire, FollowStream], Awaitable[Inner]]


class StreamSubscription:
    """`query` is what frames name the stream's query by; None where it is about keys."""

    def __init__(
        self,
        streams: HeldStreams,
        wire: Wire,
        follow: FollowStream,
        stream: Stream,
        query: str | None,
        make: Make,
    ) -> None:
        self.wire = wire
        self.id = follow.id
        self.query = query
        self.stream = stream
        self._streams = streams
        self._asked = follow
        self._make = make
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
        """How many keys the stream follows now."""
        return len(self.stream.keys or ())

    def start(self) -> None:
        """Hold the stream, and follow it once it has begun."""
        if not self._closed:
            self._streams.hold(self)
            self.take(self.stream)

    def take(self, stream: Stream | None) -> None:
        """Take what the stream is now; None where it has ended."""
        if self._closed:
            return
        if stream is None:
            end(self, Problem(404, "unknown stream", got=self.stream.id, remedy="The stream has ended."), GONE)
            return
        self._news = stream
        if self._task is None:
            self._task = asyncio.create_task(self._follow())

    def pause(self) -> None:
        """The client reads too slowly."""
        if self._inner is not None:
            self._inner.pause()

    def resume(self) -> None:
        """The client has caught up."""
        if self._inner is not None:
            self._inner.resume()

    def stop(self) -> None:
        """The client is gone."""
        if self._inner is not None:
            self._inner.stop()

    def close(self) -> None:
        """Leave, and leave nothing behind."""
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
                await self._become(stream)
        except Problem as problem:
            end(self, problem, ending_of(problem))
        except Exception:
            log.exception("stream=failed id=%s", self.stream.id)
            end(self, Problem(500, "internal error", remedy="Connect again, with the last position."), FAULT)
        finally:
            self._task = None

    async def _become(self, stream: Stream) -> None:
        before, self.stream = self.stream, stream
        if self.wire.session is not None:
            self.wire.session.check_room()
        if self._inner is None:
            if not stream.begun:
                return
            if stream.keys is not None:
                # It may have grown since the client asked for it.
                self._streams.allow(self, [])
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
            self._streams.allow(self, [key.encode() for key in keys if key not in held])
            self._inner.remove([key.encode() for key in held.difference(keys)])
            self._inner.add([key.encode() for key in keys])
            self._inner.renumber(stream.changes.number)


def follows(stream: Stream, follow: FollowStream) -> FollowKeys | FollowQuery:
    """What a client follows that follows a stream."""
    if stream.keys is None:
        return FollowQuery(follow.id, stream.view, stream.where, follow.position)
    return FollowKeys(follow.id, stream.view, stream.keys, follow.position, follow.positions)

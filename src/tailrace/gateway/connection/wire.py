"""The write side of one connection, lent to a borrower once the response head is out."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING, Protocol

from tailrace.access.identity import Identity
from tailrace.gateway.connection.arrivals import Unread
from tailrace.gateway.connection.close_reasons import SLOW
from tailrace.gateway.frames.surface import SSE, WS, Surface, chunk

if TYPE_CHECKING:
    from tailrace.gateway.connection.close_reasons import Ending
    from tailrace.gateway.connection.direct_transport import DirectTransport


class Framing(Enum):
    """How frames go out: as Server-Sent Events in chunks or, to HTTP/1.0, as they are; or as WebSocket messages."""

    CHUNKED = "chunked"
    PLAIN = "plain"
    SOCKET = "socket"

    @property
    def surface(self) -> Surface:
        return WS if self is Framing.SOCKET else SSE

    def wrap(self, frames: bytes) -> bytes:
        """The bytes that go out for encoded frames."""
        return chunk(frames) if self is Framing.CHUNKED else frames


class Borrower(Protocol):
    """What writes to a wire. It is told when its client reads too slowly, and when it has caught up."""

    def pause(self) -> None:
        """Write nothing until `resume`."""

    def resume(self) -> None:
        """Write what the client has missed."""

    def stop(self) -> None:
        """Write nothing more: the client is gone."""


class Wire:
    """Writes straight to a connection.

    `write` takes bytes as `framing` wraps them. `direct` is the transport that it writes to, if the
    connection has one. `closed` is done when the stream must end: with True if the client is still there and
    is owed the end of the response, and `ending` says why. `pending` says how many bytes wait for the client.
    `stream` is the borrower: a subscription, or the session of a WebSocket. `identity` says who the client
    is, if the gateway asks.
    """

    __slots__ = (
        "_unread",
        "_writable",
        "abort",
        "closed",
        "direct",
        "ending",
        "framing",
        "identity",
        "lost",
        "paused",
        "pending",
        "stream",
        "write",
    )

    def __init__(
        self,
        write: Callable[[bytes], None],
        abort: Callable[[], None],
        framing: Framing,
        *,
        paused: bool = False,
        pending: Callable[[], int] | None = None,
        direct: DirectTransport | None = None,
    ) -> None:
        self.write = write
        self.abort = abort
        self.framing = framing
        self.paused = paused
        self.pending = pending
        self.direct = direct
        self.stream: Borrower | None = None
        self.identity: Identity | None = None
        self.ending: Ending | None = None
        self.lost = False
        self._unread: Unread | None = None
        self.closed: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        # It exists only while the client is slow: an event takes most of a kilobyte.
        self._writable = asyncio.Event() if paused else None

    @property
    def surface(self) -> Surface:
        return self.framing.surface

    def send(self, frames: bytes) -> None:
        """Write some frames, unless the stream has ended."""
        if not self.closed.done():
            self.write(self.framing.wrap(frames))

    async def writable(self) -> None:
        """Wait until the client has read enough for more to be written, or the stream has ended."""
        if self._writable is not None:
            await self._writable.wait()

    def stuck(self, now: float) -> float:
        """For how many seconds the client has read nothing of what waits for it, as far as earlier calls know."""
        if not self.paused or self.pending is None:
            return 0.0
        self._unread = self._unread or Unread()
        return self._unread.stuck(self.pending(), now)

    def pause_writing(self) -> None:
        """The client reads too slowly: the transport holds as much as it should."""
        self.paused = True
        if self._writable is None and not self.closed.done():
            self._writable = asyncio.Event()
        if self.stream is not None:
            self.stream.pause()

    def resume_writing(self) -> None:
        """The transport has room again."""
        self.paused = False
        self._unread = None
        self._release()
        if self.stream is not None and not self.closed.done():
            self.stream.resume()

    def finish(self, ending: Ending | None = None) -> None:
        """End the stream; the client is owed the end of the response, and the reason if there is one."""
        if not self.closed.done():
            self.ending = ending
            self.closed.set_result(True)
        self._release()

    def lose(self, error: Exception | None = None) -> None:
        """The client is gone: a closed transport refuses every write. `error` is what the connection broke with.

        A TimeoutError means that the system has ended the connection, because its client takes nothing.
        """
        self.lost = True
        if not self.closed.done():
            if isinstance(error, TimeoutError):
                self.ending = SLOW
            self.closed.set_result(False)
        self._release()
        if self.stream is not None:
            self.stream.stop()

    def _release(self) -> None:
        if self._writable is not None:
            self._writable.set()
            self._writable = None

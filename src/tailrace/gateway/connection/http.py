"""uvicorn's HTTP/1.1 protocol, which can lend the write side of a connection to a stream.

Requests, middleware and response heads go through ASGI as usual. After the head a stream writes straight to the
transport, because ASGI's `send` costs a coroutine per client and frame. Read this beside uvicorn's
`httptools_impl.py`.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, cast

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from tailrace.gateway.connection.direct_transport import DirectTransport, made_direct
from tailrace.gateway.connection.doorway import Doorway
from tailrace.gateway.connection.wire import Framing, Wire
from tailrace.gateway.security_headers import EVERYWHERE

# The extension of the ASGI scope that lends the wire: see `lend`.
EXTENSION = "tailrace.wire"
# The extension that takes a function, and calls it when the client has read its answer or has left.
FLUSHED = "tailrace.flushed"
# The member of the scope's state that says that the connection is for health alone.
RESERVED = "reserved"

# The parser's own limit for a URL, path and query together; it bounds the length of a key, percent-encoded.
MAX_URL = 65535
MAX_HEADERS = 65536


# How many requests may wait on a connection for the answers to those before them.
MAX_WAITING = 100
# How many bytes the transport holds for a client that does not read before its writer has to pause.
WRITE_BUFFER = 65536
# As every answer of the application has them.
_PROTECTING = b"".join(b"%b: %b\r\n" % one for one in EVERYWHERE)


class LendingProtocol(HttpToolsProtocol):
    """One connection. At most one stream at a time holds its wire."""

    direct: DirectTransport
    wire: Wire | None = None
    _running: RequestResponseCycle | None = None
    _header_bytes = 0
    # Whether a part of a head has come, and whether the whole request has.
    _began = False
    _whole = True
    _reserved = False
    _refusal = (400, "bad request", "an HTTP/1.1 request", "Check the client: its bytes can't be read as HTTP.")

    def __init__(self, *args: Any, doorway: Doorway, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._doorway = doorway
        self._flushing: list[Callable[[], None]] = []

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Bound what the transport holds for a client that does not read."""
        self.direct = made_direct(transport)
        super().connection_made(self.direct)
        transport.set_write_buffer_limits(WRITE_BUFFER)
        self._reserved = not self._doorway.enter(self)

    def overdue(self) -> None:
        """The request has not come in time, or the connection has been idle for too long."""
        if self.unread():
            # The client may still read its last answer: the doorway watches whether it does.
            self._doorway.hold(self)
            self._doorway.expect(self, self._doorway.timing.idle)
        elif self._began and not self.transport.is_closing():
            self._doorway.late()
            self._refusal = (
                408,
                "request too slow",
                f"the whole head of a request within {self._doorway.timing.request:g} s",
                "Send the request again, at once; the gateway's --request-deadline sets the limit.",
            )
            self.send_400_response("a part of it")
        else:
            self.transport.close()

    def abort(self) -> None:
        self.transport.abort()

    def unread(self) -> int:
        """How many bytes wait for the client to read them."""
        return self.direct.get_write_buffer_size()

    def on_message_begin(self) -> None:
        """Begin to count a request's header bytes, and the time that they take."""
        super().on_message_begin()
        self._header_bytes = 0
        self._began, self._whole = True, False
        if self._idle():
            self._doorway.expect(self, self._doorway.timing.request)

    def _idle(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def on_url(self, url: bytes) -> None:
        """Refuse a URL that no key can need."""
        super().on_url(url)
        if len(self.url) > MAX_URL:
            expected = f"a URL of at most {MAX_URL} bytes, percent-encoded"
            self._refusal = (414, "URL too long", expected, "Check the path: no row can have a key of this length.")
            raise ValueError(expected)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Refuse headers without end."""
        super().on_header(name, value)
        self._header_bytes += len(name) + len(value)
        if self._header_bytes > MAX_HEADERS:
            expected = f"at most {MAX_HEADERS} bytes of headers"
            self._refusal = (431, "headers too long", expected, "Send fewer or shorter headers.")
            raise ValueError(expected)

    def on_headers_complete(self) -> None:
        """Let the request's scope lend the wire."""
        super().on_headers_complete()
        self._began = False
        if len(self.pipeline) > MAX_WAITING:
            self.pipeline.clear()
            expected = f"at most {MAX_WAITING} requests that wait for the answers to those before them"
            self._refusal = (429, "too many requests", expected, "Read answers before you ask for more.")
            raise ValueError(expected)
        cycle = self.cycle
        if cycle is not None and cycle.scope is self.scope:
            # The body is still owed. The guard, which reads it, answers if it is late.
            self._doorway.expect(self, 2 * self._doorway.timing.request)

            def lender(start: Callable[[], Awaitable[None]]) -> Awaitable[Wire]:
                return self._lend(cycle, start)

            scope = cast(dict[str, Any], self.scope)
            scope["extensions"] = {EXTENSION: lender, FLUSHED: self._when_flushed}
            if self._reserved:
                scope["state"][RESERVED] = True
                cycle.keep_alive = False

    def on_message_complete(self) -> None:
        """The request has come. If it is answered already, the connection owes the next one."""
        super().on_message_complete()
        self._whole = True
        if self.cycle is not None and self.cycle.response_complete:
            self._doorway.expect(self, self._doorway.timing.idle)
        else:
            self._doorway.served(self)

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._running = cycle
        super()._start_asgi_task(cycle, app)

    def handle_websocket_upgrade(self) -> None:
        """Hand the connection over to a WebSocket, unless it can't be one."""
        self._doorway.served(self)
        if not self._idle() or self.unread():
            # Nothing would look after the answers that are still to be read.
            self._doorway.refused(400)
            self.transport.abort()
        elif self._reserved:
            self._refusal = (503, "no room", "fewer connections to this gateway", "Connect again later.")
            self.send_400_response("as many already", b"retry-after: 5\r\n")
        elif self.scope["method"] != "GET":
            self._refusal = (405, "method not allowed", "GET", "Open a WebSocket with GET.")
            self.send_400_response(self.scope["method"], b"allow: GET\r\n")
        else:
            # From here on the WebSocket protocol counts and watches the connection.
            self._doorway.leave(self)
            super().handle_websocket_upgrade()

    def _unsupported_upgrade_warning(self) -> None:
        """Whoever asks for another protocol is answered in this one. uvicorn would log two lines for each."""

    def _when_flushed(self, done: Callable[[], None]) -> None:
        if self.flow.write_paused:
            self._flushing.append(done)
        else:
            done()

    def _flushed(self) -> None:
        self._doorway.read(self)
        flushing, self._flushing = self._flushing, []
        for done in flushing:
            done()

    async def _lend(self, cycle: RequestResponseCycle, start: Callable[[], Awaitable[None]]) -> Wire:
        # uvicorn would send chunks to HTTP/1.0 clients, too; for them the end of the connection is the end of the body.
        chunked = cycle.scope["http_version"] != "1.0"
        if not chunked:
            cycle.chunked_encoding = False
        await start()
        framing = Framing.CHUNKED if chunked else Framing.PLAIN
        direct = self.direct
        wire = Wire(
            direct.write,
            direct.abort,
            framing,
            paused=self.flow.write_paused,
            pending=direct.get_write_buffer_size,
            direct=direct,
        )
        self.wire = wire
        if cycle.disconnected or self.transport.is_closing():
            self.connection_gone()
        return wire

    def connection_gone(self, error: Exception | None = None) -> None:
        """Take the wire back: nobody is there to read."""
        if self._running is not None:
            # If requests wait behind it, uvicorn tells only the last of them.
            self._running.disconnected = True
            self._running.message_event.set()
        if self.wire is not None:
            self.wire.lose(error)
        self.wire = self._running = None

    def on_response_complete(self) -> None:
        """Take the wire back: the stream has ended, and the next response may begin."""
        self.wire = self._running = None
        super().on_response_complete()
        if self.pipeline:
            # More is read when these are answered.
            self.flow.pause_reading()
        if self.flow.write_paused:
            self._doorway.hold(self)
        if self._idle():
            timing = self._doorway.timing
            self._doorway.expect(self, timing.idle if self._whole else timing.request)

    def connection_lost(self, exc: Exception | None) -> None:
        self.direct.shut()
        super().connection_lost(exc)
        self.connection_gone(exc)
        self._flushed()
        self._doorway.leave(self)

    def pause_writing(self) -> None:
        super().pause_writing()
        if self.wire is not None:
            self.wire.pause_writing()
        else:
            self._doorway.hold(self)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self.wire is not None:
            self.wire.resume_writing()
        self._flushed()

    def send_400_response(self, msg: str, headers: bytes = b"") -> None:
        """Answer a request that can't be served, in JSON like all errors."""
        status, error, expected, remedy = self._refusal
        self._doorway.refused(status)
        self.transport.write(plain_answer(status, error, expected, msg, remedy, headers))
        self.transport.close()
        # A client that does not read it is cut off.
        self._doorway.hold(self)


def plain_answer(status: int, error: str, expected: str, got: str, remedy: str, headers: bytes = b"") -> bytes:
    """The answer to a request that the application never sees; it is the last on its connection."""
    body = json.dumps({"error": error, "expected": expected, "got": got, "remedy": remedy}).encode()
    return b"%bcontent-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n%b%b\r\n%b" % (
        STATUS_LINE[status],
        len(body),
        _PROTECTING,
        headers,
        body,
    )


async def lend(scope: MutableMapping[str, Any], start: Callable[[], Awaitable[None]]) -> Wire:
    """Send the response head with `start`, and take over the write side of the request's connection."""
    lender = scope.get("extensions", {}).get(EXTENSION)
    if lender is None:
        raise RuntimeError("expected a server that uses LendingProtocol: streams write to its transport")
    return cast(Wire, await lender(start))

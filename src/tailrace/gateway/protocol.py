"""uvicorn's HTTP/1.1 protocol, which can lend the write side of a connection to a stream.

Requests, middleware and response heads go through ASGI as everywhere. After the head a stream writes straight to the
transport: ASGI's `send` costs a coroutine per client and frame. Read beside uvicorn's `httptools_impl.py`.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, cast

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from tailrace.gateway.lane import Lane, laned
from tailrace.gateway.wire import Framing, Wire

# Where the ASGI scope holds the function that lends the wire: see `lend`.
EXTENSION = "tailrace.wire"

# The parser's own limit for a URL, path and query together; it bounds the length of a key, percent-encoded.
MAX_URL = 65535
MAX_HEADERS = 65536


# How much the gateway holds for a client that does not read, beyond what it watches.
WRITE_BUFFER = 65536


class LendingProtocol(HttpToolsProtocol):
    """One connection. At most one stream at a time holds its wire."""

    lane: Lane
    wire: Wire | None = None
    _lent: RequestResponseCycle | None = None
    _header_bytes = 0
    _refusal = (400, "bad request", "an HTTP/1.1 request", "Check the client: its bytes can't be read as HTTP.")

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Bound what the transport holds for a client that does not read."""
        self.lane = laned(transport)
        super().connection_made(self.lane)
        transport.set_write_buffer_limits(WRITE_BUFFER)

    def on_message_begin(self) -> None:
        """Start to count a request's header bytes."""
        super().on_message_begin()
        self._header_bytes = 0

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
        """Put the way to the wire into the request's scope."""
        super().on_headers_complete()
        cycle = self.cycle
        if cycle is not None and cycle.scope is self.scope:

            def lender(start: Callable[[], Awaitable[None]]) -> Awaitable[Wire]:
                return self._lend(cycle, start)

            cast(dict[str, Any], self.scope)["extensions"] = {EXTENSION: lender}

    async def _lend(self, cycle: RequestResponseCycle, start: Callable[[], Awaitable[None]]) -> Wire:
        # uvicorn would send chunks to HTTP/1.0 clients, too; for them the end of the connection is the end of the body.
        chunked = cycle.scope["http_version"] != "1.0"
        if not chunked:
            cycle.chunked_encoding = False
        await start()
        framing = Framing.CHUNKED if chunked else Framing.PLAIN
        lane = self.lane
        wire = Wire(
            lane.write,
            lane.abort,
            framing,
            paused=self.flow.write_paused,
            pending=lane.get_write_buffer_size,
            lane=lane,
        )
        self.wire, self._lent = wire, cycle
        if cycle.disconnected or self.transport.is_closing():
            self.connection_gone()
        return wire

    def connection_gone(self, error: Exception | None = None) -> None:
        """Take the wire back: nobody is there to read."""
        if self._lent is not None:
            # With requests waiting behind the stream, uvicorn marks the last of them only.
            self._lent.disconnected = True
        if self.wire is not None:
            self.wire.lose(error)
        self.wire = self._lent = None

    def on_response_complete(self) -> None:
        """Take the wire back: the stream has ended, and the next response may begin."""
        self.wire = self._lent = None
        super().on_response_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell the stream, too."""
        self.lane.shut()
        super().connection_lost(exc)
        self.connection_gone(exc)

    def pause_writing(self) -> None:
        """Tell the stream, too."""
        super().pause_writing()
        if self.wire is not None:
            self.wire.pause_writing()

    def resume_writing(self) -> None:
        """Tell the stream, too."""
        super().resume_writing()
        if self.wire is not None:
            self.wire.resume_writing()

    def send_400_response(self, msg: str) -> None:
        """Answer what is not a request that can be served, in JSON as all errors."""
        status, error, expected, remedy = self._refusal
        body = json.dumps({"error": error, "expected": expected, "got": msg, "remedy": remedy}).encode()
        self.transport.write(
            b"%bcontent-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n%b"
            % (STATUS_LINE[status], len(body), body)
        )
        self.transport.close()


async def lend(scope: MutableMapping[str, Any], start: Callable[[], Awaitable[None]]) -> Wire:
    """Send the response head with `start`, and take over the write side of the request's connection."""
    lender = scope.get("extensions", {}).get(EXTENSION)
    if lender is None:
        raise RuntimeError("expected a server that uses LendingProtocol: streams write to its transport")
    return cast(Wire, await lender(start))

"""uvicorn's WebSocket protocol, which lends the write side of a connection to a session.

The handshake, pings, the closing handshake and what the client sends go through uvicorn and ASGI. After the
accept, encoded messages are written straight to the transport. Read this beside uvicorn's
`websockets_sansio_impl.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, cast

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import Frame, Opcode
from websockets.http11 import Request

from tailrace.access.limits import BURST
from tailrace.access.rates import Bucket
from tailrace.gateway.connection.close_reasons import SILENT, TOO_MANY
from tailrace.gateway.connection.direct_transport import DirectTransport, made_direct
from tailrace.gateway.connection.http import EXTENSION, WRITE_BUFFER, plain_answer
from tailrace.gateway.connection.wire import Framing, Wire
from tailrace.gateway.metrics import Metrics

# The default limit of a client's message, in bytes: ten thousand keys, each with its position, fit in.
MAX_MESSAGE = 1 << 20
# How long a client may take to answer the closing handshake, in seconds.
_CLOSING = 5.0
# How many bytes are parsed before their frames are counted: some hundred frames, however many a client sends at once.
_PIECE = 2048
# How many bytes are passed over if a client sends on after it was told that its connection ends.
_PASSED_OVER = 4 * MAX_MESSAGE


class SocketProtocol(WebSocketsSansIOProtocol):
    """One connection, whose wire is held by one session."""

    direct: DirectTransport
    wire: Wire | None = None
    _passed_over = 0

    def __init__(self, *args: Any, messages: int, metrics: Metrics, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._pace = Bucket(messages, messages * BURST, self.loop.time())
        self._messages = messages
        self._metrics = metrics

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Bound what the transport holds for a client that does not read."""
        self.direct = made_direct(transport)
        super().connection_made(self.direct)
        self.transport.set_write_buffer_limits(WRITE_BUFFER)

    def data_received(self, data: bytes) -> None:
        """Take what the client sends, piece by piece, so that a flood of frames ends at its limit."""
        if not self.handshake_initiated:
            super().data_received(data)
            if not self.handshake_initiated:
                self._refuse_handshake()
            return
        if self.close_sent:
            self._passed_over += len(data)
            if self._passed_over > _PASSED_OVER:
                self.transport.abort()
                return
        if len(data) <= _PIECE:
            super().data_received(data)
            return
        for start in range(0, len(data), _PIECE):
            super().data_received(data[start : start + _PIECE])

    def handle_events(self) -> None:
        """Count every frame as a message, whatever it holds: each is work."""
        events = self.conn.events_received()
        now = self.loop.time()
        for event in events:
            if isinstance(event, Frame) and event.opcode is not Opcode.CLOSE and self._pace.take(now) > 0:
                self._refuse_frames()
                return
            self._handle(event)

    def _handle(self, event: Any) -> None:
        if isinstance(event, Request):
            self.handle_connect(event)
            return
        opcode = event.opcode
        if opcode is Opcode.TEXT:
            self.handle_text(event)
        elif opcode is Opcode.BINARY:
            self.handle_bytes(event)
        elif opcode is Opcode.CONT:
            self.handle_cont(event)
        elif opcode is Opcode.PING:
            self.handle_ping()
        elif opcode is Opcode.PONG:
            self.handle_pong(event)
        elif opcode is Opcode.CLOSE:
            self.handle_close(event)

    def _refuse_handshake(self) -> None:
        """Answer a request that can't open a WebSocket: nothing else would."""
        expected = "a request that opens a WebSocket: short headers, and no body"
        remedy = "Check the client; a header may have 8,192 bytes, and a request 128 of them."
        self.transport.write(plain_answer(400, "bad request", expected, "another request", remedy))
        self.transport.close()

    def _refuse_frames(self) -> None:
        """Tell the client that it sends too much, and pass over what it still sends."""
        if self.close_sent:
            return
        self._metrics.limited("messages")
        if self.wire is not None:
            self.wire.finish(TOO_MANY)
        self.conn.fail(TOO_MANY.code, f"at most {self._messages} messages or frames per second: connect again later")
        self.handle_parser_exception()

    def handle_connect(self, event: Request) -> None:
        """Let the connection's scope lend the wire; the application has not begun yet."""
        super().handle_connect(event)
        if not self.handshake_complete:
            cast(dict[str, Any], self.scope)["extensions"][EXTENSION] = self._lend

    async def _lend(self, accept: Callable[[], Awaitable[None]]) -> Wire:
        await accept()
        # No longer needed: they would hold some kilobytes of headers for as long as the client stays.
        for name in ("request", "response"):
            self.__dict__.pop(name, None)
        direct = self.direct
        wire = Wire(
            direct.write,
            direct.abort,
            Framing.SOCKET,
            paused=not self.writable.is_set(),
            pending=direct.get_write_buffer_size,
            direct=direct,
        )
        self.wire = wire
        wire.closed.add_done_callback(self._wake)
        if self.disconnected or self.close_sent or direct.is_closing():
            wire.lose()
        return wire

    def _wake(self, _: asyncio.Future[bool]) -> None:
        # Tell the session, which waits for the client's next message, that none will come.
        self.queue.put_nowait({"type": "websocket.disconnect", "code": 1005})

    def _lose(self, error: Exception | None = None) -> None:
        wire, self.wire = self.wire, None
        if wire is not None:
            wire.lose(error)

    def handle_close(self, event: Frame) -> None:
        """The client closes. After the answer nothing may be written."""
        self._lose()
        super().handle_close(event)

    def handle_parser_exception(self) -> None:
        """Tell the client that it has broken the protocol, and pass over what it still sends.

        Closing the connection with bytes unread would reset it, and the close frame would be lost.
        """
        if self.close_sent:
            return
        self._lose()
        closing = self.conn.close_sent
        self.queue.put_nowait({"type": "websocket.disconnect", "code": closing.code if closing is not None else 1006})
        self.transport.write(b"".join(self.conn.data_to_send()))
        self.close_sent = True
        self.close_timer = self.loop.call_later(_CLOSING, self.transport.abort)
        if self.read_paused:
            self.read_paused = False
            self.transport.resume_reading()

    def send_receive_event_to_app(self) -> None:
        """Pass a message on. Text that is not UTF-8 is a fault of the client, and no reason for a traceback."""
        if self.curr_msg_data_type == "text" and not self.close_sent:
            try:
                b"".join(self.frames).decode()
            except UnicodeDecodeError:
                self.frames = []
                self.conn.fail(1007, "a text message has to be UTF-8")
                self.handle_parser_exception()
                return
        super().send_receive_event_to_app()

    def keepalive_timeout(self) -> None:
        """The client has not answered a ping, so it is not there to read a farewell."""
        self.pong_timer = None
        if self.wire is not None:
            self.wire.finish(SILENT)
        self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self.direct.shut()
        super().connection_lost(exc)
        self._lose(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        if self.wire is not None:
            self.wire.pause_writing()

    def resume_writing(self) -> None:
        super().resume_writing()
        if self.wire is not None:
            self.wire.resume_writing()

    async def send(self, message: Any) -> None:
        """Cut off a client that does not answer the closing handshake. A plain close would wait for it to read."""
        await super().send(message)
        if self.close_timer is not None:
            self.close_timer.cancel()
            self.close_timer = self.loop.call_later(_CLOSING, self.transport.abort)

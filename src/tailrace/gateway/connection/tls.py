"""TLS on a connection: bytes are encrypted here, and go on through its direct transport.

Between the system and a protocol of uvicorn stands a `TlsProtocol`. OpenSSL works on memory alone (`ssl.MemoryBIO`):
what arrives is decrypted and handed on in the same call, and what is written is encrypted and goes to the system in
the same call. Nothing waits here. So what waits for a client that does not read waits where it waits without TLS,
and is counted there.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import MutableSet
from contextlib import suppress
from typing import Any, cast

from tailrace.gateway.connection.certificate import ServerCertificate
from tailrace.gateway.connection.direct_transport import Data, DirectTransport, made_direct
from tailrace.gateway.connection.doorway import Doorway
from tailrace.gateway.connection.http import plain_answer

log = logging.getLogger(__name__)

_READ = 65536


class TlsTransport(DirectTransport):
    """What a protocol under TLS writes to. It is never `clear`: nobody else may write to the descriptor."""

    __slots__ = ("_tls",)

    def __init__(self, under: DirectTransport, tls: TlsProtocol) -> None:
        super().__init__(under)
        self.descriptor, self.clear = -1, False
        self._tls = tls

    def write(self, data: Data) -> None:
        """Encrypt and write all data, now or when the client has room."""
        if not self._transport.is_closing():
            self._transport.write(self._tls.encrypted(data))

    def hold(self, data: Data) -> None:
        self.write(data)

    def close(self) -> None:
        """Say goodbye, and close when everything is written. The client's own goodbye is not waited for."""
        if not self._transport.is_closing():
            self._transport.write(self._tls.goodbye())
        self._transport.close()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        if name == "sslcontext":
            return self._tls.context
        return super().get_extra_info(name, default)

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self._tls.inner

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._tls.inner = cast(asyncio.Protocol, protocol)

    def can_write_eof(self) -> bool:
        return False

    def write_eof(self) -> None:
        raise NotImplementedError("TLS has no half-closed connections")


class TlsProtocol(asyncio.Protocol):
    """A connection that owes a handshake, and then decrypts for `inner`.

    Until the handshake is done it is one of `connections` and a guest of the doorway, with the deadline of a request;
    `inner` hears of the connection afterwards.
    """

    def __init__(
        self,
        certificate: ServerCertificate,
        inner: asyncio.Protocol,
        doorway: Doorway,
        connections: MutableSet[Any],
    ) -> None:
        self.context = certificate.context
        self.inner = inner
        self._doorway = doorway
        self._connections = connections
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = self.context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._shaken = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait for the client's part of the handshake."""
        self._transport = made_direct(transport)
        self._connections.add(self)
        self._doorway.enter(self)

    def data_received(self, data: bytes) -> None:
        """Go on with the handshake, or hand on what the client has sent."""
        if self._transport.is_closing():
            return
        self._incoming.write(data)
        try:
            if not self._shaken:
                self._shake()
            if self._shaken:
                self._receive()
        except ssl.SSLWantReadError:
            self._flush()
        except ssl.SSLError as error:
            self._break(error)

    def eof_received(self) -> None:
        """The client sends nothing more: TLS has no half-closed connections."""
        if self._shaken:
            self.inner.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport.shut()
        if self._shaken:
            self.inner.connection_lost(exc)
        else:
            self._leave()

    def pause_writing(self) -> None:
        if self._shaken:
            self.inner.pause_writing()

    def resume_writing(self) -> None:
        if self._shaken:
            self.inner.resume_writing()

    # The doorway's guest, until the handshake is done.

    def overdue(self) -> None:
        """The handshake has not come in time."""
        self._doorway.late()
        self._transport.abort()

    def abort(self) -> None:
        self._transport.abort()

    def unread(self) -> int:
        """Nothing: a client that owes a handshake may always be ended."""
        return 0

    def shutdown(self) -> None:
        """The server stops."""
        self._transport.abort()

    # For the transport.

    def encrypted(self, data: Data) -> bytes:
        """The bytes that say `data` to the client."""
        write, size = self._tls.write, len(data)
        # OpenSSL takes a record at a time.
        taken = write(data)
        while taken < size:
            taken += write(memoryview(data)[taken:])
        return self._outgoing.read()

    def goodbye(self) -> bytes:
        """The bytes that say that nothing more comes."""
        # OpenSSL would like to wait for the client's goodbye.
        with suppress(ssl.SSLError):
            self._tls.unwrap()
        return self._outgoing.read()

    def _shake(self) -> None:
        self._tls.do_handshake()
        self._flush()
        self._shaken = True
        self._leave()
        self.inner.connection_made(TlsTransport(self._transport, self))

    def _receive(self) -> None:
        parts, ended = [], False
        try:
            while part := self._tls.read(_READ):
                parts.append(part)
            ended = True
        except ssl.SSLWantReadError:
            pass
        finally:
            # What OpenSSL says by itself, such as to a client that wants new keys.
            self._flush()
            if parts and not self._transport.is_closing():
                self.inner.data_received(b"".join(parts))
        if ended and not self._transport.is_closing():
            self.inner.eof_received()
            self._transport.write(self.goodbye())
            self._transport.close()

    def _break(self, error: ssl.SSLError) -> None:
        """The client does not keep to the protocol: tell it, and end the connection."""
        log.debug("tls=broken handshake=%s reason=%s", not self._shaken, error.reason)
        if not self._shaken:
            self._doorway.refused(400)
        self._flush()
        if error.reason == "HTTP_REQUEST":
            expected, remedy = "HTTPS: this gateway has a certificate", "Ask for https:// or wss:// at the same port."
            self._transport.write(plain_answer(400, "bad request", expected, "HTTP without TLS", remedy))
        self._transport.close()

    def _flush(self) -> None:
        if self._outgoing.pending:
            self._transport.write(self._outgoing.read())

    def _leave(self) -> None:
        self._connections.discard(self)
        self._doorway.leave(self)

"""The write side of a connection: the system takes what fits at once, the transport keeps what does not.

uvloop's `write` looks at its buffers for every client and frame, which costs more than the loop around it.
While nothing waits in the transport, bytes go straight to the descriptor. What the system does not take goes
to the transport, and so does everything after it until the transport is empty again: nothing overtakes. All
bytes of a connection go through its direct transport, uvicorn's too. The transport behind it says if a client
is slow or lost.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable
from typing import Any, ClassVar, cast

Data = bytes | bytearray | memoryview


class DirectTransport(asyncio.Transport):
    """A transport whose writes go to `descriptor` if it is `clear`.

    `changes` rises whenever any transport becomes clear or is clear no longer, so that code that remembers
    which are clear looks again. A transport that is shut is never clear: its descriptor may soon be another
    connection's.
    """

    __slots__ = ("_transport", "clear", "descriptor")

    changes: ClassVar[int] = 0

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        found = transport.get_extra_info("socket")
        # TLS encrypts in the transport.
        plain = found is not None and transport.get_extra_info("sslcontext") is None
        self.descriptor: int = found.fileno() if plain else -1
        self.clear = plain and not transport.get_write_buffer_size()

    def write(self, data: Data) -> None:
        """Write all data, now or when the client has room."""
        if self.clear:
            try:
                sent = os.write(self.descriptor, data)
            except OSError:
                # No room, or a broken connection: the transport finds out which, and tells its protocol.
                sent = 0
            if sent == len(data):
                return
            data = memoryview(data)[sent:]
        self.hold(data)

    def hold(self, data: Data) -> None:
        """Give the transport what the system has not taken. A transport that closes gets nothing more."""
        if self._transport.is_closing():
            return
        self._transport.write(data)
        self._look()

    def writelines(self, list_of_data: Iterable[Data]) -> None:
        self.write(b"".join(list_of_data))

    def shut(self) -> None:
        """Never write to the descriptor again."""
        self.descriptor = -1
        self._look()

    def close(self) -> None:
        """Close when everything is written."""
        self.shut()
        self._transport.close()

    def abort(self) -> None:
        self.shut()
        self._transport.abort()

    def _look(self) -> None:
        clear = self.descriptor >= 0 and not self._transport.get_write_buffer_size()
        if clear is not self.clear:
            self.clear = clear
            DirectTransport.changes += 1

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._transport.get_extra_info(name, default)

    def get_write_buffer_size(self) -> int:
        return self._transport.get_write_buffer_size()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._transport.set_write_buffer_limits(high, low)

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self._transport.get_protocol()

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._transport.set_protocol(protocol)

    def is_reading(self) -> bool:
        return self._transport.is_reading()

    def pause_reading(self) -> None:
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        self._transport.resume_reading()

    def can_write_eof(self) -> bool:
        return self._transport.can_write_eof()

    def write_eof(self) -> None:
        """Say that nothing more comes, when everything is written."""
        self.shut()
        self._transport.write_eof()


def made_direct(transport: asyncio.BaseTransport) -> DirectTransport:
    """The direct transport of a connection, which may have one from before its upgrade to a WebSocket."""
    return transport if isinstance(transport, DirectTransport) else DirectTransport(cast(asyncio.Transport, transport))

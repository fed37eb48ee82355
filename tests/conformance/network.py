"""The network between a client and a gateway, which can be broken: a TCP proxy at an address that stays."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress


class Network:
    """Passes connections on to `target`, a port of this machine. It runs in a thread of its own until closed."""

    def __init__(self, target: int) -> None:
        self.target = target
        self.sockets_refused = 0
        self.connections = 0
        self._silent = False
        self._refuses_sockets = False
        self._pairs: set[tuple[asyncio.StreamWriter, asyncio.StreamWriter]] = set()
        self._begun = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._main()), daemon=True)
        self._thread.start()
        assert self._begun.wait(30)
        self.url = f"http://127.0.0.1:{self.port}"

    def black_hole(self) -> None:
        """Swallow every byte, of old and of new connections, and say nothing."""
        self._silent = True

    def mend(self) -> None:
        """Pass everything on again, for new connections; those that have lost bytes stay silent."""
        self._silent = self._refuses_sockets = False

    def refuse_sockets(self) -> None:
        """Answer a WebSocket's handshake as proxies do that know nothing of it."""
        self._refuses_sockets = True

    def cut(self) -> None:
        """Reset every connection."""
        self._loop.call_soon_threadsafe(self._cut)

    def close(self) -> None:
        """Stop, and leave nothing behind."""
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(30)

    async def _main(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port: int = server.sockets[0].getsockname()[1]
        self._begun.set()
        await self._stop.wait()
        server.close()
        self._cut()

    def _cut(self) -> None:
        for pair in self._pairs:
            for writer in pair:
                writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            head = b"" if self._silent else await reader.readuntil(b"\r\n\r\n")
            if self._silent:
                await reader.read()  # until the client gives up
                return
            if self._refuses_sockets and b"\r\nupgrade: websocket" in head.lower():
                self.sockets_refused += 1
                writer.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
                return
            back, forth = await asyncio.open_connection("127.0.0.1", self.target)
            forth.write(head)
            pair = (writer, forth)
            self._pairs.add(pair)
            try:
                await asyncio.gather(self._pump(reader, forth), self._pump(back, writer))
            finally:
                self._pairs.discard(pair)
                forth.transport.abort()
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            with suppress(OSError):
                writer.close()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        swallowed = False
        try:
            while data := await reader.read(65536):
                swallowed = swallowed or self._silent
                if not swallowed:
                    writer.write(data)
        except OSError:
            writer.transport.abort()
        finally:
            if not swallowed:
                writer.close()

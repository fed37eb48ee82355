"""A relay in front of a port: its connections can be cut, and led to another port."""

from __future__ import annotations

import asyncio
import socket
import threading
from contextlib import suppress

from tailrace.dev.ports import LOOPBACK, free_port


class Relay:
    """Leads connections to `to`, a port of this machine, byte by byte. `accepted` counts them."""

    def __init__(self, to: int) -> None:
        self.port = free_port()
        self.to = to
        self.accepted = 0
        self._open: set[asyncio.Task[None]] = set()
        self._listening = socket.create_server((LOOPBACK, self.port), backlog=100)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def lead(self, to: int) -> None:
        """Lead to another port from now on, and end what is open."""
        self.to = to
        self.cut()

    def cut(self) -> None:
        """End all connections, as a broker does that stops."""
        asyncio.run_coroutine_threadsafe(self._cut(), self._loop).result(10)

    def stop(self) -> None:
        self.cut()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._listening.close()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(asyncio.start_server(self._serve, sock=self._listening))
        self._loop.run_forever()
        server.close()
        self._loop.close()

    async def _cut(self) -> None:
        tasks = list(self._open)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        task = asyncio.ensure_future(self._pass_on(reader, writer))
        self._open.add(task)
        task.add_done_callback(self._open.discard)

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there, back = await asyncio.open_connection(LOOPBACK, self.to)
            try:
                halves = [asyncio.ensure_future(_copy(reader, back)), asyncio.ensure_future(_copy(there, writer))]
                try:
                    await asyncio.wait(halves, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    for half in halves:
                        half.cancel()
            finally:
                back.transport.abort()
        except OSError:
            # Nobody listens there now.
            return
        finally:
            writer.transport.abort()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()

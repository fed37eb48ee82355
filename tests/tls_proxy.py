"""TLS in front of a server that has none."""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
from contextlib import suppress
from pathlib import Path

from tailrace.dev.certificates import Authority
from tailrace.dev.ports import LOOPBACK, free_port

# Every TLS connection begins with this byte, and no Redis command does.
_HANDSHAKE = b"\x16"


class TlsProxy:
    """To a client, a Redis with TLS that asks for its certificate.

    With `plain`, clients that begin without TLS are let through: Sentinels and replicas use the same address.
    """

    def __init__(self, directory: Path, port: int, *, plain: bool = False) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.port = free_port()
        self._to = port
        self._plain = plain
        self.ca, self.certificate, self.key = certificates(directory)
        self._context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(self.ca))
        self._context.verify_mode = ssl.CERT_REQUIRED
        self._context.load_cert_chain(self.certificate, self.key)
        self._listening = socket.create_server((LOOPBACK, self.port), backlog=100)
        self._listening.setblocking(False)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """The URL for a client with a certificate."""
        return f"rediss://{LOOPBACK}:{self.port}/0?{self.options}"

    @property
    def options(self) -> str:
        """The part of a URL that is about certificates."""
        return f"ssl_ca_certs={self.ca}&ssl_certfile={self.certificate}&ssl_keyfile={self.key}"

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._listening.close()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        accepting = self._loop.create_task(self._accept())
        self._loop.run_forever()
        for task in {accepting, *asyncio.all_tasks(self._loop)}:
            task.cancel()
        self._loop.run_until_complete(asyncio.sleep(0.05))
        self._loop.close()

    async def _accept(self) -> None:
        serving: set[asyncio.Task[None]] = set()
        while True:
            link, _ = await self._loop.sock_accept(self._listening)
            task = self._loop.create_task(self._serve(link))
            serving.add(task)
            task.add_done_callback(serving.discard)

    async def _serve(self, link: socket.socket) -> None:
        with suppress(OSError, asyncio.CancelledError):
            reader = asyncio.StreamReader()
            protocol = asyncio.StreamReaderProtocol(reader)
            try:
                tls = not self._plain or await self._first_byte(link) == _HANDSHAKE
                context = self._context if tls else None
                transport, _ = await self._loop.connect_accepted_socket(lambda: protocol, link, ssl=context)
            except BaseException:
                link.close()
                raise
            writer = asyncio.StreamWriter(transport, protocol, reader, self._loop)
            try:
                await self._pass_on(reader, writer)
            finally:
                # What was passed on has been sent. An orderly close would wait for the other side.
                transport.abort()

    async def _first_byte(self, link: socket.socket) -> bytes:
        """The first byte that a client sends, without taking it."""
        readable = asyncio.Event()
        self._loop.add_reader(link, readable.set)
        try:
            await readable.wait()
        finally:
            self._loop.remove_reader(link)
        return link.recv(1, socket.MSG_PEEK)

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection(LOOPBACK, self._to)
        try:
            tasks = [asyncio.create_task(_copy(reader, back)), asyncio.create_task(_copy(there, writer))]
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in tasks:
                task.cancel()
        finally:
            back.transport.abort()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.transport.set_write_buffer_limits(0)
    with suppress(OSError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()


def certificates(directory: Path) -> tuple[Path, Path, Path]:
    """The files of an authority, a certificate of it for the loopback address, and the key; made once."""
    authority, certificate, key = directory / "ca.pem", directory / "certificate.pem", directory / "key.pem"
    if not key.exists():
        Authority.kept(directory).issue("tests").write(certificate, key)
    return authority, certificate, key

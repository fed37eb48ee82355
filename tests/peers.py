"""Many clients on plain connections, each with another task, for a while."""

from __future__ import annotations

import asyncio
import base64
import os
import random
import struct
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence

UPGRADE = (
    "Upgrade: websocket",
    "Connection: Upgrade",
    f"Sec-WebSocket-Key: {base64.b64encode(os.urandom(16)).decode()}",
    "Sec-WebSocket-Version: 13",
)

Kind = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Peers(ABC):
    """Clients of one gateway, a number of them at once. A seed gives the same clients again.

    `done` counts what they did, by name, and `failed` what did not end as they expected.
    """

    # How many seconds a connection is left open at most.
    left_open = 8.0

    def __init__(self, port: int, seed: int, at_once: int) -> None:
        self._port = port
        self._chance = random.Random(seed)
        self._at_once = at_once
        self.done: Counter[str] = Counter()
        self.failed: Counter[str] = Counter()

    @property
    @abstractmethod
    def kinds(self) -> Sequence[Kind]:
        """What a client may do with its connection."""

    async def run(self, seconds: float) -> None:
        """Let clients come and go for so many seconds."""
        end = time.monotonic() + seconds
        running: set[asyncio.Task[None]] = set()
        while time.monotonic() < end:
            while len(running) >= self._at_once:
                _, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            running.add(asyncio.ensure_future(self._one(self._chance.choice(self.kinds))))
            await asyncio.sleep(0.005)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    async def _one(self, kind: Kind) -> None:
        name = getattr(kind, "__name__", "")
        self.done[name] += 1
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", self._port, limit=2**24)
        except OSError as error:
            self.failed[f"{name}: {error!r}"] += 1
            await asyncio.sleep(0.1)
            return
        try:
            await asyncio.wait_for(kind(reader, writer), self.left_open)
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError) as error:
            self.failed[f"{name}: {error!r}"[:200]] += 1
        finally:
            writer.transport.abort()


def send(writer: asyncio.StreamWriter, method: str, path: str, body: bytes = b"", *headers: str) -> None:
    """Send a request."""
    lines = [f"{method} {path} HTTP/1.1", "Host: x", *headers]
    if body:
        lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
    writer.write("\r\n".join([*lines, "", ""]).encode() + body)


async def answer(reader: asyncio.StreamReader) -> bytes:
    """The body of the next answer."""
    head = await reader.readuntil(b"\r\n\r\n")
    length = next((line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")), b"x:0")
    return await reader.readexactly(int(length.partition(b":")[2]))


def frame(writer: asyncio.StreamWriter, head: int, payload: bytes) -> None:
    """Send a frame of a WebSocket."""
    size = len(payload)
    length = bytes([0x80 | size]) if size < 126 else b"\xfe" + struct.pack("!H", size)
    if size > 65_535:
        length = b"\xff" + struct.pack("!Q", size)
    writer.write(bytes([head]) + length + b"\0\0\0\0" + payload)


async def message(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
    """The next message of a WebSocket; pings are answered."""
    while True:
        head, size = await reader.readexactly(2)
        if size >= 126:
            size = int.from_bytes(await reader.readexactly(2 if size == 126 else 8))
        payload = await reader.readexactly(size)
        if head == 0x81:
            return payload
        if head == 0x88:
            raise ConnectionError(f"the gateway has hung up: {payload!r}")
        frame(writer, 0x8A, payload)

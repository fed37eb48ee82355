"""Honest clients of every kind that come and go: each expects what it was promised, and leaves at some moment.

    python tests/churning.py PORT VIEW FEED SEED SECONDS CLIENTS

Prints, by kind, how many there were, and how many did not get what they expected.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import sys
from collections.abc import Awaitable, Callable, Sequence

from access_tokens import token
from peers import UPGRADE, Kind, Peers, answer, frame, message, send


class Churning(Peers):
    """Clients of one view and one feed. Each is a user of its own."""

    # A client that leaves later did not get what it expected.
    left_open = 30.0

    def __init__(self, port: int, view: str, feed: str, seed: int, clients: int) -> None:
        super().__init__(port, seed, clients)
        self._view = view
        self._feed = feed
        tokens = [token(sub=f"churn-{number}", lasts=86_400) for number in range(clients)]
        self._tokens = itertools.cycle(tokens)

    @property
    def kinds(self) -> Sequence[Kind]:
        """Every way to read."""
        return self.key, self.query, self.feed, self.socket, self.stream, self.lookup, self.wait, self.listing

    async def key(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Follow a key over Server-Sent Events."""
        self._get(writer, f"/views/{self._view}/{self._movie()}/events")
        await reader.readuntil(b"event: ready")
        await self._stay(lambda: reader.read(65_536))

    async def query(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._get(writer, f"/views/{self._view}/events?where=rating%20%3E%20{self._chance.randrange(10)}")
        await reader.readuntil(b"event: ready")
        await self._stay(lambda: reader.read(65_536))

    async def feed(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Follow the feed of a client."""
        self._get(writer, f"/feeds/{self._feed}/{self._movie()}/events")
        await reader.readuntil(b"event: ready")
        await self._stay(lambda: reader.read(65_536))

    async def socket(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Follow keys and a query over one WebSocket, and leave one of them."""
        self._get(writer, "/ws", *UPGRADE)
        await reader.readuntil(b"\r\n\r\n")
        keys = [str(self._movie()) for _ in range(5)]
        follows: list[dict[str, object]] = [{"keys": keys}, {"where": "rating > 3"}, {}]
        for number, what in enumerate(follows):
            asked = {"type": "subscribe", "id": str(number), "view": self._view, **what}
            frame(writer, 0x81, json.dumps(asked).encode())
        for _ in follows:
            await self._told(reader, writer, b'{"type":"ready"')
        frame(writer, 0x81, b'{"type":"unsubscribe","id":"1"}')
        await self._told(reader, writer, b'{"type":"unsubscribed"')
        await self._stay(lambda: message(reader, writer))

    async def stream(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Open a stream, ask for its snapshot, add a key, and end it."""
        known = self._known()
        asked = json.dumps({"view": self._view, "keys": [str(self._movie())], "ttl": 30}).encode()
        send(writer, "POST", "/streams", asked, known)
        path = f"/streams/{json.loads(await answer(reader))['id']}"
        send(writer, "POST", f"{path}/begin", b"", known)
        await answer(reader)
        send(writer, "PATCH", path, json.dumps({"add": [str(self._movie())]}).encode(), known)
        await answer(reader)
        if self._chance.random() < 0.7:
            send(writer, "DELETE", path, b"", known)
            await reader.readuntil(b"\r\n\r\n")

    async def lookup(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _ in range(20):
            self._get(writer, f"/views/{self._view}/{self._movie()}")
            json.loads(await answer(reader))

    async def wait(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Wait for a key that never comes."""
        self._get(writer, f"/views/{self._view}/999999", "Prefer: wait=2")
        json.loads(await answer(reader))

    async def listing(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """List every row, page by page."""
        known, page = self._known(), ""
        while page is not None:
            send(writer, "GET", f"/views/{self._view}?limit=7{page and f'&page={page}'}", b"", known)
            page = json.loads(await answer(reader))["next"]

    def _movie(self) -> int:
        return self._chance.randrange(20)

    def _known(self) -> str:
        return f"Authorization: Bearer {next(self._tokens)}"

    def _get(self, writer: asyncio.StreamWriter, path: str, *headers: str) -> None:
        send(writer, "GET", path, b"", self._known(), *headers)

    @staticmethod
    async def _told(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, begin: bytes) -> None:
        """Read until a message begins with `begin`."""
        while not (await message(reader, writer)).startswith(begin):
            pass

    async def _stay(self, read: Callable[[], Awaitable[bytes]]) -> None:
        """Read on for a while."""
        loop = asyncio.get_running_loop()
        until = loop.time() + min(10, self._chance.expovariate(1 / 2))
        while (left := until - loop.time()) > 0:
            try:
                async with asyncio.timeout(left):
                    if not await read():
                        raise ConnectionError("the gateway has hung up")
            except TimeoutError:
                return


if __name__ == "__main__":
    port, view, feed, seed, seconds, clients = sys.argv[1:]
    churning = Churning(int(port), view, feed, int(seed), int(clients))
    asyncio.run(churning.run(float(seconds)))
    print(json.dumps({"done": churning.done, "failed": churning.failed}))

"""Hostile clients of a gateway on this machine: a bounded number of random requests that no honest client makes.

    python tests/hostile.py PORT VIEW SEED SECONDS TOKEN

Each attack leaves its connections open for a while, so that many are open at once. Nothing is asserted here:
the caller checks the gateway, its honest clients and the rows, meanwhile and afterwards. Prints how many
attacks there were, by name.
"""

from __future__ import annotations

import asyncio
import base64
import json
import sys
from collections.abc import Sequence
from contextlib import suppress

from peers import UPGRADE, Kind, Peers, answer, frame, send

# How many connections there are at once.
_CONNECTIONS = 60
_VALUES = ("'x'", "'y'", "''", "null", "1e400", "-0.0", "'\\u0000'", "'%'", "99999999999999999999", "true")
_COLUMNS = ("k", "n", "nothing", "movie_id", "rating", "ratings", "`k`", "_key")
_GLUE = (" and ", " or ", " and not ", " AND (", "; drop ", ") or (")


class Hostile(Peers):
    """Attacks on one gateway. A seed gives the same attacks again."""

    def __init__(self, port: int, view: str, seed: int, token: str) -> None:
        super().__init__(port, seed, _CONNECTIONS)
        self._view = view
        self._token = token
        self._streams: list[str] = []

    @property
    def kinds(self) -> Sequence[Kind]:
        """The attacks."""
        return (
            self.half_open,
            self.garbage,
            self.endless_headers,
            self.never_read,
            self.streams,
            self.pages,
            self.lookups,
            self.pings,
            self.frames,
            self.wrong_upgrade,
            self.waits,
        )

    async def half_open(self, _: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """A request that is never complete."""
        for byte in b"GET /views/%b HTTP/1.1\r\nHost: x\r\nX-Slow: " % self._view.encode():
            writer.write(bytes([byte]))
            if self._chance.random() < 0.1:
                await asyncio.sleep(self._chance.random())
        await asyncio.sleep(self.left_open)

    async def garbage(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Bytes that are no request."""
        writer.write(self._chance.randbytes(self._chance.randrange(1, 3000)) + b"\r\n\r\n")
        await reader.read(1000)

    async def endless_headers(self, _: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Headers without an end."""
        writer.write(b"GET / HTTP/1.1\r\n")
        for number in range(2000):
            writer.write(b"X-%d: %b\r\n" % (number, b"y" * 200))
            await writer.drain()

    async def never_read(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """A large answer that is not read."""
        path = self._chance.choice([f"/views/{self._view}", f"/views/{self._view}/events", "/openapi.json"])
        self._send(writer, "GET", path)
        reader._transport.pause_reading()  # type: ignore[attr-defined]
        await asyncio.sleep(self.left_open)

    async def streams(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Streams of predicates that fit nothing, are large, or are ended in another order."""
        match self._chance.randrange(4):
            case 0 if self._streams:
                name = self._streams.pop(self._chance.randrange(len(self._streams)))
                self._send(writer, "DELETE", f"/streams/{name}")
            case 1 if self._streams:
                name = self._chance.choice(self._streams)
                self._send(writer, "POST", f"/streams/{name}/begin", b"{}")
            case 2:
                keys = [f"{self._chance.randrange(10**9)}" * 20 for _ in range(self._chance.randrange(2000))]
                self._send(writer, "POST", "/streams", json.dumps({"view": self._view, "keys": keys}).encode())
            case _:
                body = {"view": self._view, "where": self._predicate(), "ttl": 60}
                self._send(writer, "POST", "/streams", json.dumps(body).encode())
        opened = await answer(reader)
        with suppress(ValueError, TypeError, KeyError):
            self._streams.append(json.loads(opened)["id"])

    async def pages(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Listings with pages and positions that no gateway has given out."""
        forged = base64.urlsafe_b64encode(self._chance.randbytes(40)).decode()
        query = self._chance.choice([f"page={forged}", f"after={forged}", "after=00000000.1.0-0", "limit=1e9"])
        self._send(writer, "GET", f"/views/{self._view}?{query}")
        await reader.read(10_000)

    async def lookups(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Many lookups at once, of keys of every kind."""
        for _ in range(200):
            key = self._chance.choice(["%00", "%ff%fe", "..%2f..", "1", "[" * 50, "0" * 5000])
            self._send(writer, "GET", f"/views/{self._view}/{key}")
        await reader.read(200_000)

    async def pings(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """A WebSocket that does nothing but ping."""
        await self._open(reader, writer)
        for _ in range(20_000):
            writer.write(b"\x89\x80" + b"abcd")
            await writer.drain()

    async def frames(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Frames that are not messages, and many subscriptions."""
        await self._open(reader, writer)
        for number in range(300):
            choice = self._chance.randrange(5)
            if choice == 0:
                frame(writer, 0x80, b"")
            elif choice == 1:
                frame(writer, 0x81, self._chance.randbytes(30))
            elif choice == 2:
                keys = ["k" * 1000 + str(number) for number in range(50)]
                found = {"type": "subscribe", "id": str(number), "view": self._view, "keys": keys}
                frame(writer, 0x81, json.dumps(found).encode())
            elif choice == 3:
                found = {"type": "subscribe", "id": str(number), "view": self._view, "where": self._predicate()}
                frame(writer, 0x81, json.dumps(found).encode())
            else:
                frame(writer, 0x01, b"[" * 1000)
            await writer.drain()
        await reader.read(100_000)

    async def wrong_upgrade(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """An upgrade with a method that can't upgrade."""
        self._send(writer, "POST", "/ws", b"", "Upgrade: websocket", "Connection: Upgrade")
        await reader.read(1000)

    async def waits(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Requests that wait for a position that never comes."""
        at_least = self._chance.choice(["nothing:0:9", "ratings:0:999999999", "ratings:-1:x", ""])
        self._send(writer, "GET", f"/views/{self._view}/1?at_least={at_least}", b"", "Prefer: wait=30")
        await reader.read(1000)

    def _send(self, writer: asyncio.StreamWriter, method: str, path: str, body: bytes = b"", *more: str) -> None:
        known = (f"Authorization: Bearer {self._token}",) if self._token and self._chance.random() < 0.7 else ()
        send(writer, method, path, body, *known, *more)

    async def _open(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._send(writer, "GET", "/ws", b"", *UPGRADE)
        await reader.readuntil(b"\r\n\r\n")

    def _predicate(self) -> str:
        parts = [
            f"{self._chance.choice(_COLUMNS)} {self._chance.choice(('=', '<', '!=', 'in', 'like'))} "
            f"{self._chance.choice(_VALUES)}"
            for _ in range(self._chance.randrange(1, 6))
        ]
        return self._chance.choice(_GLUE).join(parts)


if __name__ == "__main__":
    port, view, seed, seconds, token = sys.argv[1:]
    hostile = Hostile(int(port), view, int(seed), token)
    asyncio.run(hostile.run(float(seconds)))
    print(json.dumps(hostile.done))

"""Clients of several keys, with the link and the store that they depend on: in one process, one step at a time."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from gateway_model import Parts, messages
from tailrace.contracts.catalog import Column
from tailrace.contracts.position import Position
from tailrace.gateway.catalog import ServedView
from tailrace.gateway.connection.wire import Framing, Wire
from tailrace.gateway.live.keys.subscription import KeySubscription
from tailrace.gateway.live.keys.sweep import Passage
from tailrace.gateway.live.keys.watched import WatchedKey

VIEW = ServedView("names", "0123abcd", 1, 2, (Column("name", "string"),))
KEYS = [b"a", b"b", b"c", b"d", b"e", b"f"]


class Client:
    """A client of several keys. It holds a copy of their rows and the last id, and resumes by it."""

    def __init__(self, parts: Parts, keys: list[bytes], *, socket: bool = False) -> None:
        self.parts = parts
        self.keys = list(keys)
        self.socket = socket
        self.copy: dict[bytes, int] = {}
        self.id: str | None = None
        self.ready = self.resets = self.frames = 0
        self.full = False
        self.connect()

    def connect(self) -> None:
        """Come, or come back with the last position."""
        framing = Framing.SOCKET if self.socket else Framing.CHUNKED
        self.wire = Wire(self._receive, lambda: None, framing)
        self.subscription = KeySubscription(
            self.parts.keys, self.wire, VIEW, self.keys, id="a", position=self.id, growing=True
        )
        self.wire.stream = self.subscription
        self.full = False
        self.subscription.start()

    def leave(self) -> None:
        """Lose the connection."""
        self.wire.lose()
        self.subscription.close()

    def _receive(self, data: bytes) -> None:
        if self.socket:
            for message in messages(data):
                self._apply(message["type"], message.get("key", "").encode(), message.get("row"), None)
        else:
            _, _, body = data.partition(b"\r\n")
            for block in body[:-4].decode().split("\n\n"):
                fields = dict(line.split(": ", 1) for line in block.split("\n"))
                content = json.loads(fields["data"])
                self._apply(fields["event"], content.get("name", "").encode(), content, fields.get("id"))
        if self.full and not self.wire.paused:
            self.wire.pause_writing()

    def _apply(self, event: str, key: bytes, row: Any, id: str | None) -> None:
        self.frames += 1
        if event == "row":
            key = row["name"].encode()
            assert row["version"] >= self.copy.get(key, -1) or self.resets, "no version goes back"
            self.copy[key] = row["version"]
        elif event == "gone":
            self.copy.pop(key, None)
        elif event == "reset":
            self.resets += 1
            self.copy.clear()
        elif event == "ready":
            self.ready += 1
        self.id = id or self.id

    def check(self) -> None:
        """Assert that what the position claims was sent: a resume sends what is newer, so the rest must be here."""
        if self.id is None:
            return
        position, store = Position.parse(self.id), self.parts.store
        assert position is not None
        for key in self.keys:
            partition = VIEW.partition(key)
            claimed = position.offsets.get(partition)
            if claimed is None or not store.whole(partition) or store.offsets[partition] < claimed:
                continue
            row = store.rows.get(key)
            if row is None or row.offset <= claimed:
                held = None if row is None or row.value is None else row.version
                assert self.copy.get(key) == held, f"{self.id} claims {key!r} at {row}, the client has {self.copy}"


class World:
    """Parts, clients and a sweep, moved by a script of steps."""

    def __init__(self) -> None:
        self.parts = Parts(VIEW)
        self.store = self.parts.store
        self.clients: list[Client] = []
        self.version = 0
        self._passage: Passage | None = None
        self._batches: list[list[WatchedKey]] = []

    async def write(self, key: int, gone: bool) -> None:
        self.version += 1
        self.store.write(KEYS[key], self.version, gone=gone)

    async def replay(self, key: int) -> None:
        """Let the pipeline write an older version again, at a newer offset."""
        self.store.write(KEYS[key], max(1, self.version - 2), gone=False)

    async def change(self, key: int) -> None:
        """Let a change come as far as the link."""
        await self.write(key, False)
        self.store.materialize(VIEW.partition(KEYS[key]), 1000)

    async def flow(self) -> None:
        """Let what is under way arrive and be written."""
        await self.hear(1000)
        await self.tick()

    async def materialize(self, partition: int, count: int) -> None:
        self.store.materialize(partition, count)

    async def hear(self, count: int) -> None:
        for _ in range(min(count, len(self.store.flying))):
            self.parts.channels.deliver(*self.store.flying.popleft())

    async def tick(self) -> None:
        for _ in range(3):
            await asyncio.sleep(0)

    async def joined(self) -> None:
        """Wait until every client that has connected is ready."""
        for _ in range(100):
            await asyncio.sleep(0)
        assert all(client.id for client in self.clients)

    async def connect(self, first: int, count: int, socket: bool) -> None:
        if len(self.clients) < 4:
            self.clients.append(Client(self.parts, KEYS[first : first + count] or KEYS, socket=socket))

    async def reconnect(self, number: int) -> None:
        for client in self.clients[number : number + 1]:
            client.leave()
            # A client drops rows that it no longer follows.
            kept = [] if client.socket else client.keys
            client.copy = {key: version for key, version in client.copy.items() if key in kept}
            client.connect()

    async def add(self, number: int, key: int) -> None:
        for client in self.clients[number : number + 1]:
            if KEYS[key] not in client.keys and client.ready:
                client.keys.append(KEYS[key])
                client.subscription.add([KEYS[key]])
                # Until the rows are there, a resumed stream must be told which keys its client was never sent.
                client.id = _without(client.id, VIEW.partition(KEYS[key]))

    async def remove(self, number: int, key: int) -> None:
        for client in self.clients[number : number + 1]:
            if KEYS[key] in client.keys and len(client.keys) > 1:
                client.keys.remove(KEYS[key])
                client.subscription.remove([KEYS[key]])

    async def slow(self, number: int) -> None:
        for client in self.clients[number : number + 1]:
            client.full = True

    async def read(self, number: int) -> None:
        for client in self.clients[number : number + 1]:
            client.full = False
            if client.wire.paused:
                client.wire.resume_writing()

    async def cut(self) -> None:
        self.store.cut()

    async def confirm(self, count: int) -> None:
        self.store.confirm(count)

    async def recover(self) -> None:
        if not self.store.up:
            self.store.recover()
            self.parts.keys.doubt()

    async def lose(self) -> None:
        self.store.lose()

    async def sweep(self, batches: int) -> None:
        """Continue a pass, or begin one."""
        for _ in range(batches):
            if not self._batches:
                self._passage = Passage(self.parts.keys.followed(), size=2)
                self._batches = list(self._passage.batches)
            if self._batches and self._passage is not None:
                batch = self._batches.pop()
                found = await self.store.held("", batch[0].partition, "", [one.key for one in batch])
                for one, held in zip(batch, found, strict=True):
                    one.learn(held)
                self._passage.read(batch, found)

    async def settle(self) -> None:
        """Let everything work again, and wait until nothing more happens."""
        await self.recover()
        for partition in range(VIEW.partitions):
            self.store.materialize(partition, 1000)
        await self.hear(1000)
        for number in range(len(self.clients)):
            await self.read(number)
        for _ in range(30):
            await asyncio.sleep(0)
        self._batches = []
        await self.sweep(20)
        await self.tick()


def _without(id: str | None, partition: int) -> str | None:
    position = Position.parse(id or "")
    if position is None:
        return id
    kept = {p: o for p, o in position.offsets.items() if p != partition}
    return str(Position(position.lineage, position.generation, kept))

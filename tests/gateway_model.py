"""A gateway's parts over a model of the store: no sockets, no Redis, every step by hand."""

from __future__ import annotations

import asyncio
import json
import struct
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any

from tailrace.gateway.catalog import ServedCatalog, ServedView
from tailrace.gateway.connection.pace import Pace
from tailrace.gateway.live.channels import ChannelRegistry
from tailrace.gateway.live.keys.reads import Reads
from tailrace.gateway.live.keys.registry import KeyRegistry
from tailrace.gateway.live.tick import Tick
from tailrace.gateway.metrics import Metrics
from tailrace.gateway.timing import Timing
from tailrace.store.layout.row import StoredRow
from tailrace.store.read.reader import KeyRead


def messages(data: bytes) -> Iterator[dict[str, Any]]:
    """The messages in the bytes that a server has written to a WebSocket."""
    while data:
        size, start = data[1], 2
        assert data[0] == 0x81 and size < 128, "a whole text frame, not masked"
        if size == 126:
            (size,), start = struct.unpack("!H", data[2:4]), 4
        elif size == 127:
            (size,), start = struct.unpack("!Q", data[2:10]), 10
        yield json.loads(data[start : start + size].decode())
        data = data[start + size :]


class _Unpaced(Pace):
    """Never waits: a busy machine must not change the order of steps."""

    def wait(self, rows: int, keys: int) -> float:  # noqa: ARG002
        return 0.0


def unpaced(metrics: Metrics) -> Tick:
    """A tick that ends with its turn of the loop, however long a flush took."""
    tick = Tick(metrics)
    tick._pace = _Unpaced()
    return tick


class ModelStore:
    """A changelog, a store that is filled from it, and a pub/sub link that can fail; one lineage, one generation."""

    def __init__(self, view: ServedView) -> None:
        self.view = view
        self.log: list[list[tuple[bytes, StoredRow]]] = [[] for _ in range(view.partitions)]
        self.rows: dict[bytes, StoredRow] = {}
        self.offsets = [-1] * view.partitions
        self.targets = [-1] * view.partitions
        self.up = True
        self.wanted: set[bytes] = set()
        self.subscribed: set[bytes] = set()
        self.flying: deque[tuple[bytes, bytes]] = deque()

    def channel(self, view: str, partition: int, lineage: str, key: bytes) -> bytes:  # noqa: ARG002
        return key

    def join(self, channel: bytes) -> None:
        self.wanted.add(channel)
        if self.up:
            self.subscribed.add(channel)

    def leave(self, channel: bytes) -> None:
        self.wanted.discard(channel)
        self.subscribed.discard(channel)

    async def joined(self, channel: bytes) -> None:
        while channel not in self.subscribed:  # noqa: ASYNC110
            await asyncio.sleep(0)

    async def held(self, view: str, partition: int, lineage: str, keys: Sequence[bytes]) -> list[KeyRead]:  # noqa: ARG002
        offset, target = self.offsets[partition], self.targets[partition]
        found = [KeyRead(self.rows.get(key), offset, offset >= target, target, 1) for key in keys]
        await asyncio.sleep(0)  # the answer takes its time
        return found

    def write(self, key: bytes, version: int, *, gone: bool) -> None:
        log = self.log[self.view.partition(key)]
        value = None if gone else b'{"name":"%b","version":%d}' % (key, version)
        log.append((key, StoredRow(1, version, len(log), 0, value)))

    def materialize(self, partition: int, count: int) -> None:
        """Apply some records of one partition at once, and publish what is news in the order of offsets."""
        first = self.offsets[partition] + 1
        newest: dict[bytes, StoredRow] = {}
        for key, row in self.log[partition][first : first + count]:
            self.offsets[partition] += 1
            if (before := newest.get(key) or self.rows.get(key)) is None or row.rank > before.rank:
                newest.pop(key, None)
                newest[key] = row
        for key, row in newest.items():
            self.rows[key] = row
            if key in self.subscribed:
                self.flying.append((key, row.pack()))

    def lose(self) -> None:
        """Empty Redis. What was published before is still under way."""
        self.rows.clear()
        self.targets = [len(log) - 1 for log in self.log]
        self.offsets = [-1] * self.view.partitions

    def cut(self) -> None:
        """Break the link: what was under way is lost, and so is what is published from now on."""
        self.up = False
        self.flying.clear()
        self.subscribed.clear()

    def confirm(self, count: int) -> None:
        """The next link has some of its channels."""
        if not self.up:
            self.subscribed.update(sorted(self.wanted - self.subscribed)[:count])

    def recover(self) -> None:
        """The next link has all of them."""
        self.subscribed = set(self.wanted)
        self.up = True

    def whole(self, partition: int) -> bool:
        return self.offsets[partition] >= self.targets[partition]


class Parts:
    """The parts of a gateway between the link and the wires."""

    def __init__(self, view: ServedView, **timing: float) -> None:
        self.store = ModelStore(view)
        self.known = ServedCatalog()
        self.known.views = {view.name: view}
        self.metrics = Metrics(self.known)
        settings = Timing(**{"poll": 0.0, "patience": 0.0, **timing})
        self.channels = ChannelRegistry(self.store, self.metrics)
        self.tick = unpaced(self.metrics)
        reads = Reads(self.store)
        self.keys = KeyRegistry(self.channels, self.store.channel, self.tick, reads, self.known, self.metrics, settings)

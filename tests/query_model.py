"""A store of one query in memory that does what the scripts do, and clients that apply every frame they are written.

A test can make everything go wrong between a change and a message, and between a message and a gateway.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, cast

from gateway_model import unpaced
from tailrace.contracts.catalog import Column
from tailrace.contracts.position import Position
from tailrace.gateway.catalog import ServedCatalog, ServedView
from tailrace.gateway.connection.wire import Framing, Wire
from tailrace.gateway.live.channels import ChannelRegistry
from tailrace.gateway.live.commands import CommandWriter
from tailrace.gateway.live.predicates import Predicates
from tailrace.gateway.live.queries.registry import QueryRegistry
from tailrace.gateway.live.queries.subscription import QuerySubscription
from tailrace.gateway.metrics import Metrics
from tailrace.gateway.timing import Timing
from tailrace.store.layout.message import GONE, READY, ROW, Message, QueryEvent
from tailrace.store.layout.row import StoredRow
from tailrace.store.read.matches import Head, Matches, Members, NotReady, NotResumable, Offsets
from tailrace.store.read.reader import Reader

LINEAGE = "4be1a27c"
TIMING = Timing(poll=0.001, patience=5.0, sweep=0.01, late=0.005, lease=60, linger=0.05)


@dataclass
class Part:
    """One partition as the store has it: `held` has the rows that match, `rows` what a scan would find."""

    offset: int = -1
    rows: dict[bytes, StoredRow] = field(default_factory=dict)
    held: dict[bytes, int] = field(default_factory=dict)
    left: dict[bytes, int] = field(default_factory=dict)
    ready: int | None = -1
    until: int = -1
    horizon: int = -1
    number: int = 1000


class ModelStore:
    """Every row matches. `publish` gets each message; `clock` says that the query has now()."""

    def __init__(self, partitions: int, *, clock: bool, page: int) -> None:
        self.parts = [Part() for _ in range(partitions)]
        self.clock = clock
        self.page = page
        self.queue: list[tuple[bytes, Message]] = []
        self.saved: dict[int, Part] = {}
        self.changelog: dict[int, tuple[int, dict[bytes, StoredRow]]] = {}
        self.versions = 0

    def put(self, number: int, key: bytes, present: bool) -> None:
        """Make one change, and evaluate it in the same step if the query is being evaluated."""
        self._restore(number)
        part = self.parts[number]
        part.offset += 1
        before = part.rows.pop(key, None)
        if present:
            self.versions += 1
            value = json.dumps({"k": key.decode(), "v": self.versions}).encode()
            part.rows[key] = StoredRow(1, self.versions, part.offset, 0, value)
        if part.ready is None:
            return
        if present or before is not None:
            self._match(number, key, part.offset, settled=True)

    def tick(self, number: int, key: bytes) -> None:
        """Let a row leave, or come back, by the clock: no offset says so."""
        self._restore(number)
        part = self.parts[number]
        if not self.clock or part.ready is None or key not in part.rows:
            return
        row = part.rows[key]
        if key in part.held:
            del part.held[key]
            self._publish(number, QueryEvent(GONE, key, 1, row.version, row.offset, 0, None), settled=True)
        else:
            part.held[key] = row.offset
            self._publish(number, QueryEvent(ROW, key, 1, row.version, row.offset, 0, row.value), settled=True)

    def save(self, number: int) -> None:
        """Note what a rollback brings back."""
        if number not in self.changelog:
            self.saved[number] = deepcopy(self.parts[number])

    def roll_back(self, number: int) -> None:
        """Make the store what it was when saved; it says so until a materializer restores it."""
        if number in self.saved and number not in self.changelog:
            self.changelog[number] = (self.parts[number].offset, self.parts[number].rows)
            self.parts[number] = deepcopy(self.saved[number])

    def _restore(self, number: int) -> None:
        if number in self.changelog:
            self.interrupt(number)
            self.parts[number].offset, self.parts[number].rows = self.changelog.pop(number)

    def interrupt(self, number: int) -> None:
        """Let another instance open the partition: nothing is evaluated until `settle`."""
        part = self.parts[number]
        if part.ready is not None:
            part.horizon = max(part.horizon, part.ready)
            part.until, part.ready = part.offset, None

    def lose(self, number: int) -> None:
        """Lose the query: it begins from nothing with the next `settle`."""
        self._restore(number)
        part = self.parts[number]
        part.ready, part.until, part.horizon = None, -2, -2
        part.held, part.left, part.number = {}, {}, part.number + 1000

    def settle(self, number: int) -> None:
        """Finish the scan."""
        self._restore(number)
        part = self.parts[number]
        if part.ready is not None:
            return
        fresh = part.until == -2
        for key in sorted(part.rows.keys() | part.held.keys()):
            row = part.rows.get(key)
            if fresh and row is not None:
                part.held[key] = row.offset
            elif not fresh and (row is None or part.held.get(key) != row.offset):
                self._match(number, key, part.offset if row is None else row.offset, settled=False)
        before = part.offset if fresh else part.until
        part.ready, part.until = part.offset, before
        part.horizon = part.offset if part.horizon == -2 else part.horizon
        self._publish(number, QueryEvent(READY, b"", 1, before, part.offset, 0, None), settled=True)

    def members(self) -> dict[str, int]:
        """What a client should hold: versions by key."""
        return {key.decode(): part.rows[key].version for part in self.parts for key in part.held if key in part.rows}

    def _match(self, number: int, key: bytes, offset: int, *, settled: bool) -> None:
        part, row = self.parts[number], self.parts[number].rows.get(key)
        if row is not None:
            part.held[key] = row.offset
            part.left.pop(key, None)
            self._publish(number, QueryEvent(ROW, key, 1, row.version, row.offset, 0, row.value), settled=settled)
        elif part.held.pop(key, None) is not None:
            if not self.clock:
                part.left[key] = offset
            self._publish(number, QueryEvent(GONE, key, 1, 0, offset, 0, None), settled=settled)

    def _publish(self, number: int, event: QueryEvent, *, settled: bool) -> None:
        part = self.parts[number]
        part.number += 1
        self.queue.append((b"%d" % number, Message(part.number, settled, event)))

    # The methods of `tailrace.store.read.matches.Matches`.

    async def snapshot(self, _v: str, number: int, _l: str, _q: str, *, page: int | None, most: int) -> Any:
        await asyncio.sleep(0)
        return self._read(number, -1 if page is None else page, {}, most)

    async def suffix(self, _v: str, number: int, _l: str, _q: str, _g: int, after: int, *, most: int) -> Any:
        await asyncio.sleep(0)
        part = self.parts[number]
        if part.ready is None:
            return NotReady()
        for reason, refused in (
            ("clock", self.clock),
            ("horizon", after < part.horizon),
            ("break", part.until < after < part.ready),
            ("ahead", after > part.offset),
        ):
            if refused:
                return NotResumable(reason)
        return self._read(number, after, {key: at for key, at in part.left.items() if at > after}, most)

    async def offsets(self, _v: str, number: int, _l: str, _q: str, *, page: int | None, most: int) -> Any:
        found = await self.snapshot(_v, number, _l, _q, page=page, most=most)
        if not isinstance(found, Members):
            return found
        held = {key: row.offset for key, row in found.rows.items()}
        return Offsets(found.offset, 1, found.number, held, found.next)

    async def heads(self, asked: Sequence[tuple[str, int, str, str]]) -> list[Head | None]:
        parts = [self.parts[number] for _, number, _, _ in asked]
        return [None if part.ready is None else Head(1, part.number) for part in parts]

    def channel(self, _view: str, number: int, _lineage: str, _query: str) -> bytes:
        return b"%d" % number

    def _read(self, number: int, after: int, left: dict[bytes, int], most: int) -> Members | NotReady:
        part = self.parts[number]
        if part.ready is None:
            return NotReady()
        ordered = sorted((at, key) for key, at in part.held.items() if at > after)
        chosen = ordered[:most]
        following = chosen[-1][0] if len(chosen) == most and most else None
        rows = {key: part.rows[key] for _, key in chosen if key in part.rows}
        return Members(part.offset, 1, part.number, rows, left, following)


class _Link:
    up = True

    def join(self, channel: bytes) -> None: ...

    def leave(self, channel: bytes) -> None: ...

    async def joined(self, channel: bytes) -> None: ...


class _Writer:
    async def put(self, key: str, value: bytes | None) -> None: ...

    async def close(self) -> None: ...


class _Reader:
    async def stored(self, _places: Sequence[Any]) -> list[Any]:
        return []


class ModelGateway:
    """The gateway's side of queries over a model store."""

    def __init__(self, store: ModelStore, *, most_held: int, most_recent: int) -> None:
        self.store = store
        columns = (Column("k", "string"),)
        self.view = ServedView("v", LINEAGE, 1, len(store.parts), columns, columns)
        known = ServedCatalog()
        known.views = {"v": self.view}
        metrics = Metrics(known)
        matches = cast(Matches, store)
        self.queries = QueryRegistry(
            ChannelRegistry(_Link(), metrics),
            matches,
            cast(Reader, _Reader()),
            known,
            Predicates(),
            CommandWriter(_Writer()),
            unpaced(metrics),
            metrics,
            TIMING,
            most_held=most_held,
            most_recent=most_recent,
            page=store.page,
        )

    def client(self, framing: Framing, position: str | None = None, held: dict[str, int] | None = None) -> ModelClient:
        """A client that follows the query, and already holds `held`."""
        client = ModelClient(framing, held or {}, position)
        client.subscription = QuerySubscription(self.queries, client.wire, "a", "q", "v", "true", position)
        client.wire.stream = client.subscription
        client.subscription.start()
        return client

    def deliver(self, count: int = 1_000_000) -> None:
        """Let messages through, oldest first."""
        for channel, message in self.store.queue[:count]:
            part = self.queries._parts.get(channel)
            if part is not None:
                part.deliver(message)
        del self.store.queue[:count]


class ModelClient:
    """Applies every frame, checks that no key goes back, and remembers what it held at each position."""

    subscription: QuerySubscription

    def __init__(self, framing: Framing, held: dict[str, int], position: str | None) -> None:
        self.wire = Wire(self._write, lambda: None, framing)
        self.held = dict(held)
        self.versions = dict(held)
        self.position = position
        self.moments: list[tuple[str, dict[str, int]]] = []
        self.ready = 0
        self.resets = 0
        self.faults: list[str] = []

    def close(self) -> None:
        self.subscription.close()
        self.wire.lose()

    def _write(self, data: bytes) -> None:
        if self.wire.framing is Framing.SOCKET:
            while data:
                payload, data = _message(data)
                found = json.loads(payload)
                self._apply(found["type"], found.get("row") or found, found.get("position"), found.get("key"))
            return
        if self.wire.framing is Framing.CHUNKED:
            data = data.partition(b"\r\n")[2].removesuffix(b"\r\n")
        for block in data.decode().split("\n\n")[:-1]:
            fields = dict(line.split(": ", 1) for line in block.split("\n"))
            if "event" in fields:
                found = json.loads(fields["data"])
                self._apply(fields["event"], found, fields.get("id"), found.get("k"))
            else:
                self.position = fields["id"]
                self.moments.append((self.position, dict(self.held)))

    def _apply(self, kind: str, found: dict[str, Any], position: str | None, key: str | None) -> None:
        if self.wire.paused and kind != "subscribed":
            self.faults.append(f"{kind} written to a client that does not read")
        if kind == "reset":
            self.held.clear()
            self.versions.clear()
            self.resets += 1
        elif kind == "row":
            assert key is not None
            if found["v"] < self.versions.get(key, 0):
                self.faults.append(f"{key} goes back")
            self.held[key] = self.versions[key] = found["v"]
        elif kind == "gone":
            assert key is not None
            self.held.pop(key, None)
        elif kind == "ready":
            self.ready += 1
        if position is not None:
            self.position = (
                self._merged(position) if self.wire.framing is Framing.SOCKET and kind != "ready" else position
            )
            self.moments.append((self.position, dict(self.held)))

    def _merged(self, text: str) -> str:
        before, new = Position.parse(self.position or ""), Position.parse(text)
        assert new is not None
        if before is None or (before.lineage, before.generation) != (new.lineage, new.generation):
            return text
        offsets = dict(before.offsets)
        for number, offset in new.offsets.items():
            offsets[number] = max(offset, offsets.get(number, -1))
        return str(Position(new.lineage, new.generation, offsets))


def _message(data: bytes) -> tuple[bytes, bytes]:
    size, start = data[1], 2
    if size == 126:
        size, start = int.from_bytes(data[2:4]), 4
    elif size == 127:
        size, start = int.from_bytes(data[2:10]), 10
    return data[start : start + size], data[start + size :]

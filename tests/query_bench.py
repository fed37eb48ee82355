"""One partition with queries on a real Redis, evaluated without a broker."""

from __future__ import annotations

import json
import time
from typing import Any

import redis

from querying import iso
from store_bench import LINEAGE, PLACE
from tailrace.contracts.catalog import CatalogView, Column
from tailrace.contracts.commands import Stream
from tailrace.contracts.record import Change
from tailrace.materializer.queries.live_queries import LiveQueries
from tailrace.materializer.queries.partition_queries import PartitionQueries
from tailrace.materializer.views.batch import ViewBatch
from tailrace.materializer.views.partition import ViewPartition
from tailrace.queries import parse
from tailrace.store.layout.keys import QueryNames
from tailrace.store.layout.message import Message, unpack_message
from tailrace.store.layout.packed import pack
from tailrace.store.write.hand_overs import HandOvers, OldKeys, Served
from tailrace.store.write.match_writer import BelievedPartition, MatchWriter
from tailrace.store.write.writer import Applied, PositionMoved, Rejected, StoreWriter

COLUMNS = (Column("n", "bigint"), Column("s", "string"), Column("t", "timestamp"))
START = 1_790_000_000_000
# Far in the future, because Redis goes by its own clock.
NEVER = 4_000_000_000_000


def row(n: int | None, s: str = "a", at: int | None = None) -> bytes:
    """A row's JSON; `at` is a time in ms after the start."""
    return json.dumps({"n": n, "s": s, "t": None if at is None else iso(START + at)}).encode()


def digest(text: str) -> str:
    """The name of a query."""
    return parse(text, COLUMNS).digest


class QueryBench:
    """One partition that serves generation 1, and one instance that evaluates its queries."""

    def __init__(self, url: str, prefix: str, *, most_left: int = 1000, entries: int = 20_000) -> None:
        self.writer = StoreWriter(url, prefix)
        self.store = MatchWriter(self.writer, most_left=most_left)
        self.client = redis.Redis.from_url(url)
        self.names = QueryNames(prefix, "v", 0)
        self.now = START
        self._entries = entries
        self.live = LiveQueries()
        self.live.set_views({"v": COLUMNS})
        self.entry = CatalogView("v", "v", "id", 1, 1, (), COLUMNS, {})
        begun = self.writer.begin(*PLACE, -1, generation=1)
        self.held = ViewPartition(self.entry, 0, LINEAGE, begun.offset, -1, 1)
        self.queries = self.evaluating()
        self._listener = self.client.pubsub(ignore_subscribe_messages=True)  # type: ignore[no-untyped-call]
        self._listener.psubscribe(self.names.index + b":*")
        self._heard(b"begun")

    def evaluating(self) -> PartitionQueries:
        """The queries of an instance that opens the partition."""
        return PartitionQueries(self.held, self.live.views["v"], self.store, lambda: self.now, entries=self._entries)

    def open(self, stream: str, text: str, *, expires: int = NEVER) -> None:
        """Open a stream over a query, or refresh it."""
        self.live.put(Stream(stream, "v", None, text, True, expires))
        self.tell()

    def end(self, stream: str) -> None:
        self.live.end(stream)
        # A query must not end and begin again within a millisecond.
        self.now += 1
        self.tell()

    def tell(self) -> None:
        for queries in self.live.take_changed().values():
            for query in queries:
                self.queries.changed(query)

    def put(self, *changes: tuple[bytes, int, bytes | None], generation: int | None = None) -> Applied | PositionMoved:
        """Apply (key, version, value) at the next offsets, as one batch."""
        batch = self.batch(*changes, generation=generation)
        result = self.queries.apply(batch) if self.queries.active else self.blindly(batch)
        assert not isinstance(result, Rejected), result.reason
        if not isinstance(result, PositionMoved):
            self.held.stored = batch.reached
        return result

    def batch(self, *changes: tuple[bytes, int, bytes | None], generation: int | None = None) -> ViewBatch:
        made = [
            Change(key, value, generation or self.held.generation, version, 7, self.held.stored + 1 + n)
            for n, (key, version, value) in enumerate(changes)
        ]
        return ViewBatch(pack(made), self.held.stored + len(made), len(made), [], [])

    def blindly(self, batch: ViewBatch) -> Applied | PositionMoved:
        """Apply a batch as an instance that knows of no query does."""
        return self.writer.apply(*PLACE, self.held.stored, batch.reached, batch.changes)

    def reopen(self) -> None:
        """Let another instance take the partition over."""
        self.store.unsettle(BelievedPartition(*PLACE, self.held.stored, self.held.generation))
        self.queries = self.evaluating()

    def hand_over(self, generation: int) -> None:
        """Serve the next generation, whose rows were kept back."""
        hand_overs = HandOvers(self.writer)
        found = hand_overs.old_keys(*PLACE, self.held.generation, 0, 1000)
        assert isinstance(found, OldKeys)
        if found.keys:
            hand_overs.forget("v", 0, found.keys)
        assert hand_overs.serve(*PLACE, generation, -1) == Served()
        self.held.generation = generation

    def settle(self) -> None:
        """Do everything that is due."""
        for _ in range(1000):
            assert self.queries.tend() is None
            if self.queries.due_in(1.0) > 0:
                return
        raise AssertionError("the instance does not come to rest")

    def members(self, text: str) -> dict[bytes, int]:
        """The members of a query, with their offsets."""
        found: Any = self.client.zrange(self.names.of(digest(text)).matches, 0, -1, withscores=True)
        return {key: int(score) for key, score in found}

    def messages(self) -> list[tuple[str, Message]]:
        """What was published since the last call: query and message."""
        return self._heard(b"end")

    def query_keys(self) -> set[bytes]:
        """Every Redis key of queries, by the end of its name."""
        stem = self.names.index.removesuffix(b"queries")
        names = {name.removeprefix(stem) for name in self.client.scan_iter(self._pattern(), count=1000)}
        return {name for name in names if name.startswith((b"quer", b"matches", b"left"))}

    def dump(self) -> dict[bytes, tuple[int, bytes]]:
        """Every Redis key of the partition, with how long it lives."""
        found: dict[bytes, tuple[int, bytes]] = {}
        for name in self.client.scan_iter(self._pattern(), count=1000):
            data: Any = self.client.dump(name)
            ttl: Any = self.client.pttl(name)
            found[name] = (max(0, ttl), data)
        return found

    def load(self, dump: dict[bytes, tuple[int, bytes]]) -> None:
        """Let the partition have only these keys."""
        for name in self.client.scan_iter(self._pattern(), count=1000):
            self.client.delete(name)
        for name, (ttl, data) in dump.items():
            self.client.restore(name, ttl, data)

    def _pattern(self) -> bytes:
        return self.names.index.removesuffix(b"queries").replace(b"{", b"[{]") + b"*"

    def close(self) -> None:
        self._listener.close()
        self.client.close()
        self.writer.close()

    def _heard(self, mark: bytes) -> list[tuple[str, Message]]:
        found: list[tuple[str, Message]] = []
        # Everything that was published before the mark comes before it.
        self.client.publish((self.names.index + b":" + mark).decode(), mark)
        deadline = time.monotonic() + 30
        while True:
            assert time.monotonic() < deadline, "the mark comes"
            message: Any = self._listener.get_message(timeout=1)
            if message is None:
                continue
            if message["data"] == mark:
                return found
            found.append((message["channel"].decode().rpartition(":")[2], unpack_message(message["data"])))

"""One partition of the store, on a real Redis, for tests of its scripts."""

from __future__ import annotations

from typing import cast

import redis

from tailrace.contracts.record import Change
from tailrace.store.layout.keys import PartitionKeys, partition_keys
from tailrace.store.layout.row import unpack
from tailrace.store.layout.stored_position import StoredPosition
from tailrace.store.write.expiries import Expiries
from tailrace.store.write.hand_overs import HandOvers
from tailrace.store.write.writer import Applied, PositionMoved, StoreWriter

LINEAGE = "0123abcd"
PLACE = ("v", 0, LINEAGE)


class Bench:
    """One partition that serves generation 1 and has stored `offset`."""

    def __init__(self, url: str, prefix: str) -> None:
        self.writer = StoreWriter(url, prefix)
        self.hand_overs = HandOvers(self.writer)
        self.expiries = Expiries(self.writer)
        self.client = redis.Redis.from_url(url)
        self.keys: PartitionKeys = partition_keys(prefix, "v", 0)
        self.offset = self.writer.begin(*PLACE, -1, generation=1).offset

    def put(
        self, *changes: tuple[bytes, int, int, bytes | None], expires: int | None = None
    ) -> Applied | PositionMoved:
        """Apply (key, generation, version, value) at the next offsets, as one batch."""
        made = [
            Change(key, value, generation, version, 0, self.offset + 1 + n, expires)
            for n, (key, generation, version, value) in enumerate(changes)
        ]
        before, self.offset = self.offset, self.offset + len(changes)
        return self.writer.apply(*PLACE, before, self.offset, made)

    def held(self, name: bytes) -> dict[bytes, tuple[int, int]]:
        found = cast(dict[bytes, bytes], self.client.hgetall(cast(str, name)))
        rows = {key: unpack(data) for key, data in found.items()}
        return {key: (row.generation, row.version) for key, row in rows.items()}

    def stored(self) -> StoredPosition:
        return self.writer.stored([PLACE])[0]

    def names(self) -> set[bytes]:
        """The Redis keys of the partition, other than rows and position."""
        return {name.rpartition(b":")[2] for name in self.keys.all if self.client.exists(name)} - {b"rows", b"position"}

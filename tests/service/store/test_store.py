"""The store's scripts against a plain model of what they promise."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import count
from typing import cast

import pytest
import redis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tailrace.contracts.record import MAX_NUMBER, Change
from tailrace.dev.redis_server import RedisServer
from tailrace.store.layout.keys import partition_keys
from tailrace.store.layout.row import unpack
from tailrace.store.write.writer import Applied, Begun, PositionMoved, StoreWriter

LINEAGE = "0123abcd"


@pytest.fixture
def writer(redis_server: RedisServer, fresh: str) -> StoreWriter:
    return StoreWriter(redis_server.url, f"test:{fresh}")


@pytest.fixture
def client(redis_server: RedisServer) -> redis.Redis:
    return redis.Redis.from_url(redis_server.url)


def change(key: bytes, version: int, offset: int, value: bytes | None = b"{}", generation: int = 1) -> Change:
    return Change(key, value, generation, version, 1_700_000_000_000, offset)


def rows(client: redis.Redis, fresh: str, *, kept: bool = False) -> dict[bytes, tuple[int, int, bytes | None]]:
    keys = partition_keys(f"test:{fresh}", "v", 0)
    found: dict[bytes, tuple[int, int, bytes | None]] = {}
    for name in (keys.next_rows, keys.next_gone) if kept else (keys.rows, keys.gone):
        held = cast(dict[bytes, bytes], client.hgetall(cast(str, name)))
        for key, data in held.items():
            assert key not in found, "a key is both there and gone"
            row = unpack(data)
            found[key] = (row.generation, row.version, row.value)
    return found


Found = dict[bytes, tuple[int, int, bytes | None]]


@dataclass
class Model:
    """What the store must hold, where generation 2 is served."""

    offset: int = -1
    next: int = 2
    rows: Found = field(default_factory=dict)
    kept: Found = field(default_factory=dict)
    old: set[bytes] = field(default_factory=set)

    def apply(self, changes: list[Change], reached: int) -> Applied:
        accepted, unknown = 0, {c.key for c in changes} - self.rows.keys()
        latest = max((c.generation for c in changes), default=0)
        if latest > self.next:
            self.next, self.kept = latest, {}
        old = {c.key for c in changes if c.generation < 2 and c.value is not None} & unknown
        self.old |= old
        for c in changes:
            if c.generation not in (2, self.next):
                continue
            into = self.rows if c.generation == 2 else self.kept
            held = into.get(c.key)
            if held is None or c.rank > (held[0], held[1], held[2] is not None):
                into[c.key] = (c.generation, c.version, c.value)
                accepted += 1
        self.offset = reached
        return Applied(accepted, len(old))


_numbers = count()
numbers = st.one_of(st.integers(0, 5), st.integers(MAX_NUMBER - 3, MAX_NUMBER), st.integers(0, MAX_NUMBER))
batches = st.lists(
    st.dictionaries(
        st.tuples(st.sampled_from([b"a", b"b", b"\x00\xff", "ключ".encode(), b""]), st.integers(1, 4)),
        st.tuples(numbers, st.one_of(st.none(), st.just(b'{"n":1}'))),
        max_size=8,
    ),
    max_size=6,
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(batches=batches)
def test_every_batch_leaves_redis_as_the_model_says(
    redis_server: RedisServer,
    client: redis.Redis,
    fresh: str,
    batches: list[dict[tuple[bytes, int], tuple[int, bytes | None]]],
) -> None:
    fresh = f"{fresh}.{next(_numbers)}"
    writer, model = StoreWriter(redis_server.url, f"test:{fresh}"), Model()
    assert writer.begin("v", 0, LINEAGE, 0, generation=2) == Begun(-1, 2)
    offset = 0
    for batch in batches:
        changes = []
        for (key, generation), (version, value) in batch.items():
            changes.append(change(key, version, offset, value, generation))
            offset += 1
        reached = model.offset + max(1, len(changes))
        result = writer.apply("v", 0, LINEAGE, model.offset, reached, changes)
        assert result == model.apply(changes, reached)
    assert rows(client, fresh) == model.rows
    assert rows(client, fresh, kept=True) == model.kept
    old = partition_keys(f"test:{fresh}", "v", 0).old_rows
    assert set(cast(dict[bytes, bytes], client.hgetall(cast(str, old)))) == model.old
    assert writer.offsets([("v", 0, LINEAGE)]) == [model.offset]


def test_versions_that_doubles_cannot_tell_apart_are_told_apart(writer: StoreWriter) -> None:
    writer.begin("v", 0, LINEAGE, 0, generation=1)
    assert writer.apply("v", 0, LINEAGE, -1, 0, [change(b"k", 2**53, 0)]) == Applied(1)
    assert writer.apply("v", 0, LINEAGE, 0, 1, [change(b"k", 2**53 + 1, 1)]) == Applied(1)
    assert writer.apply("v", 0, LINEAGE, 1, 2, [change(b"k", 2**53, 2)]) == Applied(0)


def test_a_batch_that_starts_at_another_offset_than_stored_changes_nothing(
    writer: StoreWriter, client: redis.Redis, fresh: str
) -> None:
    writer.begin("v", 0, LINEAGE, 0, generation=1)
    writer.apply("v", 0, LINEAGE, -1, 4, [change(b"k", 1, 4)])
    before = rows(client, fresh)
    assert writer.apply("v", 0, LINEAGE, 2, 6, [change(b"k", 9, 6)]) == PositionMoved(4)
    assert writer.apply("v", 0, LINEAGE, 7, 9, [change(b"k", 9, 9)]) == PositionMoved(4)
    assert rows(client, fresh) == before


def test_a_zombie_cannot_write_past_a_gap_into_an_emptied_redis(
    writer: StoreWriter, client: redis.Redis, fresh: str
) -> None:
    writer.begin("v", 0, LINEAGE, 0, generation=1)
    writer.apply("v", 0, LINEAGE, -1, 4, [change(b"k", 1, 4)])
    keys = partition_keys(f"test:{fresh}", "v", 0)
    client.delete(keys.rows, keys.gone, keys.position)
    assert writer.apply("v", 0, LINEAGE, 4, 5, [change(b"k", 2, 5)]) == PositionMoved(None)
    assert rows(client, fresh) == {}


def test_a_partition_of_another_changelog_is_emptied_before_it_is_filled(
    writer: StoreWriter, client: redis.Redis, fresh: str
) -> None:
    writer.begin("v", 0, LINEAGE, 0, generation=1)
    writer.apply("v", 0, LINEAGE, -1, 4, [change(b"old", 1, 4)])
    assert writer.begin("v", 0, "fedc9876", 7, generation=1) == Begun(-1, 1)
    assert rows(client, fresh) == {} and writer.offsets([("v", 0, LINEAGE)]) == [None]


def test_begin_keeps_what_is_there_of_the_same_changelog(writer: StoreWriter, client: redis.Redis, fresh: str) -> None:
    writer.begin("v", 0, LINEAGE, 0, generation=1)
    writer.apply("v", 0, LINEAGE, -1, 4, [change(b"k", 1, 4)])
    assert writer.begin("v", 0, LINEAGE, 99, generation=1) == Begun(4, 1)
    assert rows(client, fresh) != {}


def test_accepted_changes_are_published_on_their_keys_channel_and_no_others(
    writer: StoreWriter, client: redis.Redis, fresh: str
) -> None:
    writer.begin("v", 0, LINEAGE, 0, generation=1)
    keys = partition_keys(f"test:{fresh}", "v", 0)
    listener = client.pubsub(ignore_subscribe_messages=True)  # type: ignore[no-untyped-call]
    listener.psubscribe(keys.channels + b"*")
    assert listener.get_message(timeout=5) is None
    writer.apply("v", 0, LINEAGE, -1, 1, [change(b"a", 2, 0, b'{"n":1}'), change(b"b", 1, 1, None)])
    writer.apply("v", 0, LINEAGE, 1, 2, [change(b"a", 1, 2)])
    writer.apply("v", 0, LINEAGE, 2, 3, [change(b"b", 2, 3)])
    found = []
    while (message := listener.get_message(timeout=1)) is not None:
        row = unpack(message["data"])
        found.append((message["channel"].removeprefix(keys.channel(LINEAGE, b"")), row.version, row.offset, row.value))
    assert found == [(b"a", 2, 0, b'{"n":1}'), (b"b", 1, 1, None), (b"b", 2, 3, b"{}")]


def test_a_batch_of_thousands_is_one_atomic_step(writer: StoreWriter, client: redis.Redis, fresh: str) -> None:
    writer.begin("v", 0, LINEAGE, 0, generation=1)
    changes = [change(b"%d" % n, 1, n, None if n % 3 == 0 else b"{}") for n in range(5000)]
    assert writer.apply("v", 0, LINEAGE, -1, 4999, changes) == Applied(5000)
    assert len(rows(client, fresh)) == 5000

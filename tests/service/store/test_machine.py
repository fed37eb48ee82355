"""The store's scripts in any order, with zombies, replays, and a Redis emptied or rolled back: as the model says."""

from __future__ import annotations

import copy
from itertools import count
from typing import Any, cast

import pytest
import redis
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from hearing import heard_before
from store_model import Build, Model
from tailrace.contracts.record import MAX_NUMBER, Change
from tailrace.dev.redis_server import RedisServer
from tailrace.store.layout.keys import partition_keys
from tailrace.store.layout.row import StoredRow
from tailrace.store.write.expiries import Expiries
from tailrace.store.write.hand_overs import HandOvers, NotYetServed, Served
from tailrace.store.write.tombstones import Pruned, StoredTombstones
from tailrace.store.write.writer import Applied, Begun, PositionMoved, StoreWriter

LINEAGES = ("0123abcd", "fedc9876")
KEYS = [b"a", b"b", b"c", b"\x00\xff", "ключ".encode(), b""]
KEEP = 10
EXPIRIES = [None, None, 5, 15, 2**63 - 1]

_numbers = count()
lineages = st.sampled_from([LINEAGES[0]] * 5 + [LINEAGES[1]])
generations = st.sampled_from([1, 2, 2, 2, 3, 3, 4])
versions = st.one_of(st.integers(0, 5), st.integers(MAX_NUMBER - 3, MAX_NUMBER), st.integers(0, MAX_NUMBER))
values = st.sampled_from([None, b"{}", b'{"n":1}', b"{} ", b"1 2 3 4 ", b" "])
batches = st.dictionaries(
    st.tuples(st.sampled_from(KEYS), generations), st.tuples(versions, values, st.sampled_from(EXPIRIES)), max_size=8
)


class StoreMachine(RuleBasedStateMachine):
    """One partition in Redis, and the model of it."""

    server: RedisServer

    def __init__(self) -> None:
        super().__init__()
        prefix = f"machine:{next(_numbers)}"
        self.writer = StoreWriter(self.server.url, prefix)
        self.hand_overs, self.expiries = HandOvers(self.writer), Expiries(self.writer)
        self.tombstones = StoredTombstones(self.writer)
        self.client = redis.Redis.from_url(self.server.url)
        self.keys = partition_keys(prefix, "v", 0)
        self.listener = self.client.pubsub(ignore_subscribe_messages=True)  # type: ignore[no-untyped-call]
        self.listener.psubscribe(self.keys.channels + b"*")
        self.model = Model()
        self.published: list[tuple[bytes, bytes]] = []
        self.history: list[list[Change]] = [[]]
        self.dumps: list[tuple[dict[bytes, bytes], Model]] = []
        self.clock = self.batch = 0

    def teardown(self) -> None:
        self.client.delete(*self.keys.all)
        self.listener.close()
        self.client.close()
        self.writer.close()

    @initialize(generation=generations)
    def first(self, generation: int) -> None:
        self.begin(LINEAGES[0], 0, generation, anew=False)

    @rule(
        lineage=lineages, ahead=st.integers(-1, 3), generation=generations, anew=st.sampled_from([False] * 5 + [True])
    )
    def begin(self, lineage: str, ahead: int, generation: int, anew: bool) -> None:
        target = self.model.offset + ahead
        found = self.writer.begin("v", 0, lineage, target, generation=generation, anew=anew)
        assert found == Begun(*self.model.begin(lineage, target, generation, anew=anew))

    @rule(made=batches)
    def apply(self, made: dict[tuple[bytes, int], tuple[int, bytes | None, int | None]]) -> None:
        changes = [
            Change(key, value, generation, version, 1_700_000_000_000, self.model.offset + 1 + n, expires)
            for n, ((key, generation), (version, value, expires)) in enumerate(made.items())
        ]
        self._apply(LINEAGES[0], self.model.offset, changes)
        self.history.append(changes)

    @rule(past=st.integers(0, 30))
    def replay(self, past: int) -> None:
        """The pipeline writes a batch again, at newer offsets."""
        again = self.history[past % len(self.history)]
        first = self.model.offset + 1
        changes = [
            Change(c.key, c.value, c.generation, c.version, c.timestamp, first + n, c.expires)
            for n, c in enumerate(again)
        ]
        self._apply(LINEAGES[0], self.model.offset, changes)

    @rule(made=batches, lineage=lineages, off_by=st.sampled_from([-2, -1, 1, 7]))
    def zombie(self, made: dict[Any, Any], lineage: str, off_by: int) -> None:
        """Another instance, or this one after a pause, believes in another offset."""
        changes = [Change(key, value, g, v, 0, 99, x) for (key, g), (v, value, x) in made.items()]
        self._apply(lineage, self.model.offset + off_by, changes)

    @rule(lineage=lineages, generation=generations, late=st.sampled_from([-1, -1, 0, 1]))
    def serve(self, lineage: str, generation: int, late: int) -> None:
        since = self.model.offset + late
        found = self.hand_overs.serve("v", 0, lineage, generation, since)
        expected = self.model.serve(lineage, generation, since)
        named = {"served": Served(), "waiting": NotYetServed()}
        assert found == (named[expected] if isinstance(expected, str) else PositionMoved(expected))

    @precondition(lambda self: self.model.old)
    @rule(most=st.integers(1, 6))
    def forget_old(self, most: int) -> None:
        keys = sorted(self.model.old)[:most]
        self.hand_overs.forget("v", 0, keys)
        self.model.old -= set(keys)

    @rule(lineage=lineages, served=generations, given_up=generations)
    def abandon(self, lineage: str, served: int, given_up: int) -> None:
        found = self.hand_overs.abandon("v", 0, lineage, served, given_up)
        assert found == self.model.abandon(lineage, served, given_up)

    @precondition(lambda self: self.model.next is not None)
    @rule()
    def abandon_what_is_kept(self) -> None:
        self.abandon(self.model.lineage or "", self.model.generation, self.model.next or 0)

    @rule(lineage=lineages, now=st.sampled_from([4, 5, 20, 10**12]), most=st.integers(1, 5))
    def due(self, lineage: str, now: int, most: int) -> None:
        found = self.expiries.due("v", 0, lineage, now, most)
        shown = found if isinstance(found, PositionMoved) else [(due.key, due.generation, due.version) for due in found]
        assert shown == self.model.due(lineage, now, most)

    @rule(
        lineage=lineages,
        passed=st.sampled_from([0, 3, KEEP, KEEP]),
        finished=st.sampled_from([0, 1, 2, 2, None]),
        keys=st.lists(st.sampled_from(KEYS), unique=True),
    )
    def prune(self, lineage: str, passed: int, finished: int | None, keys: list[bytes]) -> None:
        self.clock += passed
        self.batch += finished or 0
        batch, generation = None if finished is None else self.batch, self.model.generation
        found = self.tombstones.prune(
            "v", 0, lineage, generation=generation, now=self.clock, keep=KEEP, batch=batch, keys=keys
        )
        expected = self.model.prune(lineage, generation, self.clock, KEEP, batch, keys)
        shown = (found.horizon, found.moves, found.dropped) if isinstance(found, Pruned) else found
        assert shown == expected

    @rule()
    def empty(self) -> None:
        """Redis has lost everything."""
        self.client.delete(*self.keys.all)
        self.model = Model()

    @rule()
    def save(self) -> None:
        dumps = {key: self.client.dump(cast(str, key)) for key in self.keys.all}
        self.dumps.append(({key: data for key, data in dumps.items() if data}, copy.deepcopy(self.model)))

    @precondition(lambda self: self.dumps)
    @rule(which=st.integers(0, 30))
    def roll_back(self, which: int) -> None:
        """Redis has come back from an old file."""
        data, model = self.dumps[which % len(self.dumps)]
        self.client.delete(*self.keys.all)
        for key, dump in data.items():
            self.client.restore(cast(str, key), 0, cast(str, dump))
        self.model = copy.deepcopy(model)

    @invariant()
    def redis_is_as_the_model_says(self) -> None:
        pipeline = self.client.pipeline(transaction=True)
        names = self.keys
        for name in (names.position, names.rows, names.gone, names.next_rows, names.next_gone, names.old_rows):
            pipeline.hgetall(cast(str, name))
        for name in (names.expiries, names.next_expiries):
            pipeline.zrange(cast(str, name), 0, -1, withscores=True)
        position, rows, gone, next_rows, next_gone, old, expiries, next_expiries = pipeline.execute()
        # When the partition was complete is a time of the clock, and noted by another part.
        position.pop(b"as-of", None)
        assert position == _position(self.model)
        assert (rows, gone, dict(expiries)) == _packed(self.model.served)
        assert (next_rows, next_gone, dict(next_expiries)) == _packed(self.model.kept)
        assert set(old) == self.model.old

    def _apply(self, lineage: str, expected: int, changes: list[Change]) -> None:
        reached = expected + max(1, len(changes))
        result = self.model.apply(lineage, expected, reached, changes)
        found = self.writer.apply("v", 0, lineage, expected, reached, changes)
        if not isinstance(result, tuple):
            assert found == PositionMoved(result)
            result = (0, 0, [])
        else:
            assert found == Applied(result[0], result[1])
        heard = [(self.keys.channel(lineage, change.key), _pack(change)) for change in result[2]]
        assert self._heard() == heard

    def _heard(self) -> list[tuple[bytes, bytes]]:
        """What was published since the last call, which ends with a message of our own."""
        end = self.keys.channels + b"end"
        self.client.publish(cast(str, end), "")
        return [(message["channel"], message["data"]) for message in heard_before(self.listener, end)]


def _pack(change: Change) -> bytes:
    return StoredRow(change.generation, change.version, change.offset, change.timestamp, change.value or None).pack()


def _packed(build: Build) -> tuple[dict[bytes, bytes], dict[bytes, bytes], dict[bytes, float]]:
    rows, gone = ({key: _pack(change) for key, change in found.items()} for found in (build.rows, build.gone))
    return rows, gone, build.expiries


def _position(model: Model) -> dict[bytes, bytes]:
    if model.lineage is None:
        return {}
    fields: dict[str, Any] = {name: getattr(model, name) for name in ("lineage", "offset", "target", "generation")}
    fields |= {name: getattr(model, name) for name in ("next", "dropped", "pruned")}
    fields["mark"] = None if model.mark is None else " ".join(map(str, model.mark))
    return {name.encode(): str(value).encode() for name, value in fields.items() if value is not None}


@pytest.mark.parametrize("steps", [40])
def test_whatever_happens_in_whatever_order_redis_is_as_the_model_says(redis_server: RedisServer, steps: int) -> None:
    StoreMachine.server = redis_server
    run_state_machine_as_test(
        StoreMachine,
        settings=settings(
            max_examples=50, stateful_step_count=steps, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )

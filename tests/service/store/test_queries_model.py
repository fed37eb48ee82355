"""Whole histories of rows, queries, instances and clients against brute force over a model's rows."""

from __future__ import annotations

import json
from itertools import count
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from query_bench import COLUMNS, QueryBench, digest, row
from query_following import Follower, Reading
from store_bench import LINEAGE, PLACE
from tailrace.contracts.record import Change
from tailrace.dev.redis_server import RedisServer
from tailrace.queries import parse
from tailrace.store.write.writer import Applied, Begun

PLAIN = ["n > 2", "s = 'a'", "n between 1 and 3 and s <> 'b'", "true", "n is null or s = 'b'"]
CLOCKS = ["t > now() and t - now() <= interval '2 seconds'", "t <= now() and s = 'a'"]
QUERIES = PLAIN + CLOCKS
PREDICATES = {text: parse(text, COLUMNS) for text in QUERIES}
KEYS = [b"a", b"b", b"c d", b"\x00\xff", "ключ".encode(), b""]

values = st.none() | st.builds(
    row, st.none() | st.integers(0, 5), st.sampled_from("ab"), st.none() | st.integers(0, 9000)
)
# A version that is not above the one held is stale: it must change nothing.
changes = st.dictionaries(st.sampled_from(KEYS), st.tuples(st.integers(-1, 2), values), max_size=5)
actions = st.one_of(
    st.tuples(st.just("put"), changes),
    st.tuples(st.just("put"), changes),
    st.tuples(st.just("open"), st.sampled_from(QUERIES)),
    st.tuples(st.just("open"), st.sampled_from(QUERIES)),
    st.tuples(st.just("end"), st.sampled_from(QUERIES)),
    st.tuples(st.just("tend"), st.integers(1, 3)),
    st.tuples(st.just("wait"), st.integers(1, 3000)),
    st.tuples(st.just("away"), st.sampled_from(QUERIES)),
    st.tuples(st.just("reopen"), st.lists(changes, max_size=2)),
    st.tuples(st.just("hand-over"), changes),
    st.tuples(st.just("save"), st.none()),
    st.tuples(st.just("roll-back"), st.none()),
    st.tuples(st.just("lose"), st.none()),
    st.tuples(st.just("quiet"), st.none()),
)


class History:
    """A bench, what its rows must be, and a client for every query that is open."""

    def __init__(self, bench: QueryBench, reading: Reading) -> None:
        self.bench = bench
        self.reading = reading
        self.rows: dict[bytes, tuple[int, bytes | None]] = {}
        self.followers: dict[str, Follower] = {}
        self.gone_away: set[str] = set()
        self.replaced = False
        self.log: list[Change] = []
        self.saved: dict[bytes, tuple[int, bytes]] | None = None
        self.saved_at = -1

    def act(self, action: str, what: Any) -> None:
        getattr(self, action.replace("-", "_"))(what)
        self.listen()

    def put(self, found: dict[bytes, tuple[int, bytes | None]]) -> None:
        made = self.made(found)
        self.log += self.bench.batch(*made).changes
        assert self.bench.put(*made) == Applied(self.take(made))

    def made(self, found: dict[bytes, tuple[int, bytes | None]]) -> list[tuple[bytes, int, bytes | None]]:
        return [(key, max(0, self.rows.get(key, (0, None))[0] + by), value) for key, (by, value) in found.items()]

    def take(self, made: list[tuple[bytes, int, bytes | None]]) -> int:
        accepted = 0
        for key, version, value in made:
            held = self.rows.get(key)
            if held is None or (version, value is not None) > (held[0], held[1] is not None):
                self.rows[key] = (version, value)
                accepted += 1
        return accepted

    def open(self, text: str) -> None:
        self.bench.open(text, text)
        self.followers.setdefault(text, Follower(self.reading, 0, digest(text)))

    def end(self, text: str) -> None:
        self.bench.end(text)
        # The client stays where it is, and is there again when the query is opened again.
        self.gone_away.add(text)

    def away(self, text: str) -> None:
        """The client misses what is published until it is quiet."""
        self.gone_away.add(text)

    def tend(self, times: int) -> None:
        for _ in range(times):
            assert self.bench.queries.tend() is None

    def wait(self, ms: int) -> None:
        self.bench.now += ms

    def reopen(self, blind: list[dict[bytes, tuple[int, bytes | None]]]) -> None:
        """Another instance takes over, which learns of the queries only after some batches."""
        self.bench.reopen()
        self.replaced = True
        for found in blind:
            made = self.made(found)
            batch = self.bench.batch(*made)
            self.log += batch.changes
            assert self.bench.blindly(batch) == Applied(self.take(made))
            self.bench.held.stored = batch.reached

    def hand_over(self, found: dict[bytes, tuple[int, bytes | None]]) -> None:
        generation = self.bench.held.generation + 1
        made = [(key, max(0, by), value) for key, (by, value) in found.items()]
        self.log = self.bench.batch(*made, generation=generation).changes
        self.saved = None
        self.bench.put(*made, generation=generation)
        self.rows.clear()
        self.take(made)
        self.bench.hand_over(generation)

    def save(self, _: None) -> None:
        """What Redis writes to its disk."""
        self.saved, self.saved_at = self.bench.dump(), self.bench.held.stored

    def roll_back(self, _: None) -> None:
        """Redis comes back as it was saved, and is brought up to date from the compacted changelog."""
        if self.saved is not None:
            self.restore(self.saved, self.saved_at)

    def lose(self, _: None) -> None:
        """Redis comes back empty."""
        self.restore({}, -1)

    def restore(self, dump: dict[bytes, tuple[int, bytes]], at: int) -> None:
        bench, end = self.bench, self.bench.held.stored
        bench.load(dump)
        # That takes longer than a millisecond.
        bench.now += 1
        begun = bench.writer.begin(*PLACE, end, generation=bench.held.generation)
        assert begun == Begun(at, bench.held.generation)
        bench.held.stored, self.replaced = at, True
        bench.reopen()
        compacted: dict[bytes, Change] = {}
        for change in self.log:
            if change.offset > at and (change.key not in compacted or change.rank > compacted[change.key].rank):
                compacted[change.key] = change
        assert isinstance(bench.writer.apply(*PLACE, at, end, list(compacted.values())), Applied)
        bench.held.stored = end

    def listen(self) -> None:
        for query, message in self.bench.messages():
            for text, follower in self.followers.items():
                if follower.query == query and text not in self.gone_away:
                    follower.receive(message)

    def quiet(self, _: None) -> None:
        self.bench.settle()
        self.listen()
        live = {text for text in QUERIES if digest(text) in self.bench.live.views["v"].queries}
        for text in live:
            expected = {
                key: value
                for key, (_, value) in self.rows.items()
                if value is not None and PREDICATES[text].matches(json.loads(value), self.bench.now)
            }
            assert self.bench.members(text).keys() == expected.keys(), text
            follower = self.followers[text]
            if text in self.gone_away:
                self.gone_away.discard(text)
                follower.read()
            assert follower.complete and follower.copy == expected, text
            before = dict(follower.copy)
            resets = follower.resets
            follower.read()
            assert follower.copy == before and (text in CLOCKS or follower.resets == resets), "a second idle read"
        # What an instance leaves that is replaced before it has forgotten a query is not read, and expires.
        held = {name for name in self.bench.query_keys() if name.startswith(b"query:")}
        for name in held - {b"query:" + digest(text).encode() for text in live}:
            full = self.bench.names.index.removesuffix(b"queries") + name
            assert self.replaced and not self.bench.client.hexists(full.decode(), "ready")
            assert self.bench.client.pttl(full) > 0


_numbers = count()


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    history=st.lists(actions, max_size=25), most_left=st.sampled_from([2, 1000]), entries=st.sampled_from([1, 20_000])
)
def test_every_copy_equals_the_rows_that_match(
    redis_server: RedisServer, fresh: str, history: list[tuple[str, Any]], most_left: int, entries: int
) -> None:
    prefix = f"test:{fresh}.{next(_numbers)}"
    reading = Reading(redis_server.url, prefix, "v", LINEAGE)
    bench = QueryBench(redis_server.url, prefix, most_left=most_left, entries=entries)
    try:
        found = History(bench, reading)
        for action, what in history:
            found.act(action, what)
        found.act("quiet", None)
    finally:
        reading.close()
        bench.close()

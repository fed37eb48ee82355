"""The feed scripts against a plain model of what they promise: no event twice, none missing without a word."""

from __future__ import annotations

import asyncio
from itertools import count
from typing import Any, ClassVar, cast

import pytest
import redis
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from feed_model import FeedModel
from tailrace.catalog import CatalogFeed
from tailrace.dev.redis_server import RedisServer
from tailrace.event import Event
from tailrace.record import MAX_NUMBER
from tailrace.store import feeds
from tailrace.store.feed_keys import feed_keys
from tailrace.store.feeds import Beginning, FeedPlace, Feeds
from tailrace.store.listening import Listening, heard
from tailrace.store.writer import Moved, Writer

LINEAGE = "0123abcd"
CLIENTS = [b"a", "клиент \x00".encode(), b""]
GATEWAYS = ["g1", "g2"]
REMEMBERED = 6
# Long before now; and longer than any test.
PAST, LONG = 1000, 3600.0

_numbers = count()

clients = st.sampled_from(CLIENTS)
gateways = st.sampled_from(GATEWAYS)
# How far a version is from the last one of its source: mostly the next one, sometimes a replay or the same again.
steps = st.sampled_from([1, 1, 1, 2, 0, -1, -3])
# Where versions of a source begin; doubles can't tell the large ones apart.
SOURCES = {b"s:0": 10, b"s:1": 2**53, b"t:0": MAX_NUMBER - 10_000}
values = st.sampled_from([b"{}", b'{"n":1}'])
batches = st.lists(st.tuples(clients, st.sampled_from(sorted(SOURCES)), steps, values), max_size=12)


class FeedSteps(RuleBasedStateMachine):
    """Random steps on one partition; every step must leave Redis as the model says."""

    url: ClassVar[str]

    @initialize(
        retain=st.sampled_from(["listening", "always"]),
        ordered=st.booleans(),
        hold=st.sampled_from([0.0, LONG]),
        listeners=st.sets(clients),
    )
    def declare(self, retain: str, ordered: bool, hold: float, listeners: set[bytes]) -> None:
        prefix = f"test:feeds:{id(self)}:{next(_numbers)}"
        feed = CatalogFeed(
            "f", "f", "id", 1, 1, (), (), {}, hold=hold, retain=retain, length=4, age=24 * LONG, ordered=ordered
        )
        self.place, self.keys = FeedPlace(feed, 0, LINEAGE), feed_keys(prefix, "f", 0)
        self.model = FeedModel(feed, REMEMBERED)
        self.client = redis.Redis.from_url(self.url)
        self.feeds = Feeds(Writer(self.url, prefix))
        self.runner = asyncio.Runner()
        self.gateways = {name: Listening(self.url, prefix, name, lease=LONG) for name in GATEWAYS}
        self.heard = self.client.pubsub(ignore_subscribe_messages=True)  # type: ignore[no-untyped-call]
        self.heard.psubscribe(self.keys.channels + b"*")
        self.begun = self.feeds.begin(self.place, Beginning(0, 0, -1, -1)).begun
        self.versions = dict(SOURCES)
        for client in sorted(listeners):
            self.listen(client, "g1")

    @rule(batch=batches, gap=st.integers(0, 3))
    def apply(self, batch: list[tuple[bytes, bytes, int, bytes]], gap: int) -> None:
        first = self.model.offset + 1 + gap
        events = self.events(batch, first)
        reached = first + len(events)
        expected, published = self.model.apply(events, reached)
        before = reached - len(events) - gap - 1
        assert self.feeds.apply(self.place, self.begun, before, reached, events) == expected
        assert self.messages() == published

    @rule(batch=batches, ahead=st.sampled_from([-2, -1, 1, 7]))
    def a_zombie_changes_nothing(self, batch: list[tuple[bytes, bytes, int, bytes]], ahead: int) -> None:
        events = self.events(batch, self.model.offset + 1)
        believed, reached = self.model.offset + ahead, self.model.offset + ahead + 9
        assert self.feeds.apply(self.place, self.begun, believed, reached, events) == Moved(self.model.offset)
        assert self.feeds.apply(self.place, "0", self.model.offset, reached, events) == Moved(self.model.offset)
        assert self.messages() == []

    @rule(client=clients, gateway=gateways)
    def listen(self, client: bytes, gateway: str) -> None:
        self.model.listen(client, gateway)
        listener = self.runner.run(self.gateways[gateway].listen(self.place, client))
        assert listener.offset == self.model.offset
        kept = self.model.of(client)
        assert kept is not None and listener.start is not None
        assert listener.last == (kept.events[-1].offset if kept.events else listener.start)
        self.compare(client)

    @rule(client=clients, gateway=gateways)
    def leave(self, client: bytes, gateway: str) -> None:
        self.model.leave(client, gateway)
        self.runner.run(self.gateways[gateway].leave(self.place, client))
        self.compare(client)

    @rule(client=clients)
    def a_registration_expires(self, client: bytes) -> None:
        if self.client.zscore(self.keys.listening, client) is not None:
            self.client.zadd(self.keys.listening, {cast(str, client): PAST})
            self.client.hdel(cast(str, self.keys.leases), cast(str, client))
        self.model.lapse(client)
        self.compare(client)

    @rule()
    def what_is_there_grows_old(self) -> None:
        if self.model.offset < 0:
            return
        self.client.zadd(self.keys.times, {str(self.model.offset): PAST + self.model.offset})
        self.model.old = self.model.offset

    @rule()
    def sweep(self) -> None:
        while self.feeds.lapse(self.place, self.begun):
            pass
        self.model.sweep()
        listening = set(cast(list[bytes], self.client.zrange(self.keys.listening, 0, -1)))
        assert listening == self.model.listening.keys()
        assert set(cast(list[bytes], self.client.hkeys(cast(str, self.keys.leases)))) <= listening
        starts = set(cast(list[bytes], self.client.hkeys(cast(str, self.keys.starts))))
        assert starts <= self.model.kept.keys(), "nothing is left of who listens no more"
        streams = cast(list[bytes], self.client.keys(self.keys.stream(self.begun, b"") + b"*"))
        assert {name.removeprefix(self.keys.stream(self.begun, b"")) for name in streams} <= self.model.kept.keys()

    @rule(back=st.integers(0, 5), window=st.integers(0, 5))
    def begin_anew(self, back: int, window: int) -> None:
        start = max(0, self.model.offset + 1 - back)
        since = start - 1 + window
        self.begun = self.feeds.begin(self.place, Beginning(0, start, since, since), anew=True).begun
        self.model.begin(start, since)

    @rule(client=clients, after=st.integers(-1, 40), size=st.integers(1, 5))
    def read(self, client: bytes, after: int, size: int) -> None:
        page = self.runner.run(self.gateways["g1"].events(self.place, client, after, size))
        kept = self.model.of(client)
        if kept is None:
            assert page is None
            return
        assert page is not None
        expected = [e for e in kept.events if e.offset > after][:size]
        assert [(row.offset, row.version, row.value) for row in page.events] == [
            (e.offset, e.version, e.value) for e in expected
        ]
        assert page.reached == (expected[-1].offset if len(expected) == size else max(after, self.model.offset))
        if page.complete:
            assert kept.is_complete_after(after), "who misses an event is told"
        elif kept.dropped is None:
            assert after < max(kept.base, self.model.since), "who misses nothing is not"
        elif kept.events:
            assert after < kept.events[0].offset, "what is there can be followed"

    def events(self, batch: list[tuple[bytes, bytes, int, bytes]], offset: int) -> list[Event]:
        found = []
        for n, (client, source, step, value) in enumerate(batch):
            version = self.versions[source] + step
            self.versions[source] = max(self.versions[source], version)
            found.append(Event(client, value, 1, version, 0, offset + n, source))
        return found

    def compare(self, client: bytes) -> None:
        for after in (-1, self.model.offset):
            self.read(client, after, 5)

    def messages(self) -> list[tuple[bytes, int, int]]:
        """What was published since the last call."""
        mark = self.keys.channels + b"mark"
        self.client.publish(cast(str, mark), b"")
        found: list[tuple[bytes, int, int]] = []
        while True:
            message: Any = self.heard.get_message(timeout=1)
            if message is None:
                # The confirmation of the subscription, or nothing yet.
                continue
            if message["channel"] == mark:
                return found
            client = message["channel"].removeprefix(self.keys.channel(LINEAGE, b""))
            told = heard(message["data"])
            found.append((client, told.before, told.event.offset))

    def teardown(self) -> None:
        if hasattr(self, "runner"):
            for gateway in self.gateways.values():
                self.runner.run(gateway.close())
            self.runner.close()
            self.heard.close()
            self.client.close()


def test_every_step_leaves_redis_as_the_model_says(redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feeds, "REMEMBERED", REMEMBERED)
    FeedSteps.url = redis_server.url
    run_state_machine_as_test(
        FeedSteps,
        settings=settings(
            max_examples=60, stateful_step_count=25, deadline=None, suppress_health_check=[HealthCheck.too_slow]
        ),
    )


def test_a_history_that_was_dropped_because_all_of_it_was_old_is_not_taken_for_complete(
    redis_server: RedisServer,
) -> None:
    FeedSteps.url = redis_server.url
    steps = FeedSteps()
    try:
        steps.declare(retain="always", ordered=True, hold=0.0, listeners=set())
        steps.apply([(b"a", b"s:0", 1, b"{}")], 0)
        steps.what_is_there_grows_old()
        steps.sweep()
        page = steps.runner.run(steps.gateways["g1"].events(steps.place, b"a", -1))
        assert page is not None and page.events == [] and not page.complete
        steps.read(b"a", -1, 5)
    finally:
        steps.teardown()

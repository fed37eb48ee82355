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
from hearing import heard_before
from tailrace.contracts.catalog import CatalogFeed
from tailrace.contracts.event import FeedEvent
from tailrace.contracts.record import MAX_NUMBER
from tailrace.dev.redis_server import RedisServer
from tailrace.materializer.feeds.batch import gather
from tailrace.store.connection.outages import Unavailable
from tailrace.store.connection.servers import AsyncServers
from tailrace.store.layout.feed_keys import FeedPlace, feed_keys
from tailrace.store.layout.packed_events import PackedEvents, pack_events
from tailrace.store.read.feed_histories import FeedHistories, heard
from tailrace.store.write import feeds
from tailrace.store.write.feeds import Beginning, FeedParcel, Feeds, Taken
from tailrace.store.write.writer import PositionMoved, StoreWriter

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
        self.prefix = prefix = f"test:feeds:{id(self)}:{next(_numbers)}"
        feed = CatalogFeed(
            "f", "f", "id", 1, 1, (), (), {}, hold=hold, retain=retain, length=4, age=24 * LONG, ordered=ordered
        )
        self.place, self.keys = FeedPlace(feed, 0, LINEAGE), feed_keys(prefix, "f", 0)
        self.model = FeedModel(feed, REMEMBERED)
        self.client = redis.Redis.from_url(self.url)
        self.feeds = Feeds(StoreWriter(self.url, prefix))
        self.runner = asyncio.Runner()
        self.servers = {name: AsyncServers(self.url) for name in GATEWAYS}
        self.gateways = {name: FeedHistories(self.servers[name], prefix, name, lease=LONG) for name in GATEWAYS}
        self.heard = self.client.pubsub(ignore_subscribe_messages=True)  # type: ignore[no-untyped-call]
        self.heard.psubscribe(self.keys.channels + b"*")
        self.marks: dict[bytes, int] = {}
        self.begun = self.feeds.begin(self.place, Beginning(0, 0, -1, -1)).begun
        self.versions = dict(SOURCES)
        for client in sorted(listeners):
            self.listen(client, "g1")

    @rule(batch=batches, gap=st.integers(0, 3), most=st.integers(1, 12), tended=st.sets(clients))
    def apply(self, batch: list[tuple[bytes, bytes, int, bytes]], gap: int, most: int, tended: set[bytes]) -> None:
        """The records of a poll, in batches that are sent together."""
        before = self.model.offset
        events = self.events(batch, before + 1 + gap)
        records = [(e.client, e.value, cast(Any, e.headers()), e.offset) for e in events]
        ordered = self.place.feed.ordered
        parcels, expected, published = [], [], []
        for one in gather(records, before, self.marks, ordered=ordered, most=most, largest=1000):
            tend = one.packed.clients.keys() & tended
            parcels.append(FeedParcel(self.place, self.begun, before, one.reached, one.packed, tend))
            taken, told = self.model.apply([e for e in events if before < e.offset <= one.reached], one.reached, tend)
            expected.append(taken)
            published += told
            before = one.reached
        assert self.feeds.apply_all(parcels) == expected
        assert by_client(self.messages()) == by_client(published)

    @rule(gap=st.integers(1, 3))
    def records_that_hold_no_events_are_passed(self, gap: int) -> None:
        before, reached = self.model.offset, self.model.offset + gap
        assert self.feeds.apply(self.place, self.begun, before, reached, PackedEvents()) == Taken(0, 0)
        self.model.offset = reached

    @rule()
    def another_instance_opens_it(self) -> None:
        found = self.feeds.begin(self.place, Beginning(0, 0, -1, -1))
        assert (found.offset, found.begun, found.marks) == (self.model.offset, self.begun, self.model.marks)
        self.marks = found.marks

    @rule(batch=batches, ahead=st.sampled_from([-2, -1, 1, 7]))
    def a_zombie_changes_nothing(self, batch: list[tuple[bytes, bytes, int, bytes]], ahead: int) -> None:
        events = pack_events(self.events(batch, self.model.offset + 1), ordered=self.place.feed.ordered)
        believed, reached = self.model.offset + ahead, self.model.offset + ahead + 9
        assert self.feeds.apply(self.place, self.begun, believed, reached, events) == PositionMoved(self.model.offset)
        assert self.feeds.apply(self.place, "0", self.model.offset, reached, events) == PositionMoved(self.model.offset)
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
        stem = self.keys.history(self.begun, b"")
        histories = cast(list[bytes], self.client.keys(stem + b"*"))
        assert {name.removeprefix(stem) for name in histories} <= self.model.kept.keys()
        assert all(self.client.ttl(cast(str, name)) > 0 for name in histories), "each expires by itself"

    @rule(back=st.integers(0, 5), window=st.integers(0, 5))
    def begin_anew(self, back: int, window: int) -> None:
        start = max(0, self.model.offset + 1 - back)
        since = start - 1 + window
        self.begun = self.feeds.begin(self.place, Beginning(0, start, since, since), anew=True).begun
        self.model.begin(start, since)
        self.marks = {}

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
        else:
            missed = [] if kept.dropped is None else [kept.dropped]
            assert after < max(kept.base, self.model.since, *missed), "who misses nothing is not"

    def events(self, batch: list[tuple[bytes, bytes, int, bytes]], offset: int) -> list[FeedEvent]:
        found = []
        for n, (client, source, step, value) in enumerate(batch):
            version = self.versions[source] + step
            self.versions[source] = max(self.versions[source], version)
            found.append(FeedEvent(client, value, 1, version, 0, offset + n, source))
        return found

    @rule(client=clients)
    def compare(self, client: bytes) -> None:
        """Read after the offsets at which a history may begin to be complete."""
        kept = self.model.of(client)
        dropped = -1 if kept is None or kept.dropped is None else kept.dropped
        for after in {-1, dropped - 1, dropped, self.model.offset}:
            self.read(client, max(after, -1), 5)

    def messages(self) -> list[tuple[bytes, int, int]]:
        """What was published since the last call."""
        mark = self.keys.channels + b"mark"
        self.client.publish(cast(str, mark), b"")
        found: list[tuple[bytes, int, int]] = []
        for message in heard_before(self.heard, mark):
            client = message["channel"].removeprefix(self.keys.channel(LINEAGE, b""))
            told = heard(message["data"])
            found.append((client, told.before, told.event.offset))
        return found

    def teardown(self) -> None:
        if hasattr(self, "runner"):
            for servers in self.servers.values():
                self.runner.run(servers.close())
            self.runner.close()
            self.heard.close()
            self.client.close()


def by_client(published: list[tuple[bytes, int, int]]) -> dict[bytes, list[tuple[int, int]]]:
    """Of each client the messages in their order; between clients there is none."""
    found: dict[bytes, list[tuple[int, int]]] = {}
    for client, before, offset in published:
        found.setdefault(client, []).append((before, offset))
    return found


def test_every_step_leaves_redis_as_the_model_says(redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feeds, "REMEMBERED", REMEMBERED)
    FeedSteps.url = redis_server.url
    run_state_machine_as_test(
        FeedSteps,
        settings=settings(
            max_examples=60, stateful_step_count=25, deadline=None, suppress_health_check=[HealthCheck.too_slow]
        ),
    )


def test_an_entry_is_named_by_its_offset_in_the_changelog_and_its_version_in_the_source(
    redis_server: RedisServer,
) -> None:
    FeedSteps.url = redis_server.url
    steps = FeedSteps()
    try:
        steps.declare(retain="always", ordered=True, hold=0.0, listeners=set())
        steps.apply([(b"a", source, 1, b"{}") for source in SOURCES], 0, 12, set())
        entries = cast(list[Any], steps.client.xrange(cast(str, steps.keys.history(steps.begun, b"a"))))
        assert [name for name, _ in entries] == [b"%d-%d" % (n, last + 1) for n, last in enumerate(SOURCES.values())]
    finally:
        steps.teardown()


def test_a_history_that_was_dropped_because_all_of_it_was_old_is_not_taken_for_complete(
    redis_server: RedisServer,
) -> None:
    FeedSteps.url = redis_server.url
    steps = FeedSteps()
    try:
        steps.declare(retain="always", ordered=True, hold=0.0, listeners=set())
        steps.apply([(b"a", b"s:0", 1, b"{}")], 0, 12, set())
        steps.what_is_there_grows_old()
        steps.sweep()
        page = steps.runner.run(steps.gateways["g1"].events(steps.place, b"a", -1))
        assert page is not None and page.events == [] and not page.complete
        steps.read(b"a", -1, 5)
    finally:
        steps.teardown()


@pytest.mark.parametrize("asked", [False, True], ids=["unasked", "asked for before"])
def test_a_history_that_expired_by_itself_and_gets_events_again_is_not_taken_for_complete(
    redis_server: RedisServer, asked: bool
) -> None:
    FeedSteps.url = redis_server.url
    steps = FeedSteps()
    try:
        steps.declare(retain="always", ordered=True, hold=0.0, listeners=set())
        for _ in range(3):
            steps.apply([(b"a", b"s:0", 1, b"{}")], 0, 12, set())
        steps.client.delete(steps.keys.history(steps.begun, b"a"))
        steps.apply([(b"b", b"s:0", 1, b"{}")], 0, 12, set())
        if asked:
            assert steps.runner.run(steps.gateways["g1"].listen(steps.place, b"a")).start == 2
            steps.runner.run(steps.gateways["g1"].leave(steps.place, b"a"))
        for kept in ([], [4]):
            for after, complete in ((-1, False), (1, False), (2, True), (3, True)):
                page = steps.runner.run(steps.gateways["g1"].events(steps.place, b"a", after))
                assert page is not None and page.complete == complete, after
                assert [row.offset for row in page.events] == kept
            steps.apply([(b"a", b"s:0", 1, b"{}")] * (1 - len(kept)), 0, 12, set())
        assert steps.runner.run(steps.gateways["g1"].listen(steps.place, b"a")).start == 2
    finally:
        steps.teardown()


def test_who_has_seen_all_that_has_grown_old_is_not_told_that_it_has_missed_events(redis_server: RedisServer) -> None:
    FeedSteps.url = redis_server.url
    steps = FeedSteps()
    try:
        steps.declare(retain="always", ordered=True, hold=0.0, listeners={b"a"})
        steps.apply([(b"a", b"s:0", 1, b"{}")], 0, 12, set())
        steps.what_is_there_grows_old()
        steps.apply([(b"b", b"s:0", 1, b"{}")] * 3, 0, 12, set())
        for _ in range(2):
            found = steps.runner.run(steps.gateways["g1"].listen(steps.place, b"a"))
            assert found.covers(0) and not found.covers(-1) and found.last == 0
            page = steps.runner.run(steps.gateways["g1"].events(steps.place, b"a", 0))
            assert page is not None and page.complete and page.reached == 3
    finally:
        steps.teardown()


@pytest.mark.parametrize("most", [12, 1, 2], ids=["at once", "one by one", "by twos"])
@pytest.mark.parametrize(
    ("retain", "refused"),
    [
        ("always", "xadd"),
        ("always", "hset"),
        ("always", "xtrim"),
        ("always", "zadd"),
        ("listening", "xadd"),
        ("listening", "hset"),
        ("listening", "xtrim"),
    ],
)
def test_a_batch_that_redis_has_given_up_half_way_is_taken_whole_once_and_told_when_it_comes_again(
    redis_server: RedisServer, retain: str, refused: str, most: int
) -> None:
    """A Redis user that lacks a command, for a while: the script fails there, mostly after it has added events."""
    FeedSteps.url = redis_server.url
    steps = FeedSteps()
    try:
        steps.declare(retain=retain, ordered=True, hold=LONG, listeners={b"a"})
        steps.apply([(b"a", b"s:0", 1, b"{}")] * 3, 0, 12, set())
        batch = [(b"a", b"s:0", 1, b"{}"), (b"b", b"s:0", 1, b"{}"), *[(b"a", b"s:0", 1, b'{"n":1}')] * 2]
        before, versions = steps.model.offset, dict(steps.versions)
        packed = pack_events(steps.events(batch, before + 1))
        denied = f"feeds-{id(steps)}"
        steps.client.acl_setuser(
            denied, enabled=True, nopass=True, keys=["*"], channels=["*"], commands=["+@all", f"-{refused}"]
        )
        address = redis_server.url.replace("redis://", f"redis://{denied}:any@")
        with pytest.raises(Unavailable, match="refuses this user"):
            Feeds(StoreWriter(address, steps.prefix)).apply(steps.place, steps.begun, before, before + 4, packed)
        steps.client.acl_deluser(denied)
        added = steps.client.xlen(steps.keys.history(steps.begun, b"a")) > 3
        assert added == (refused != "xadd"), "it has begun to add events"
        assert steps.messages() == []
        steps.versions = versions
        steps.another_instance_opens_it()
        for again in (batch, [(b"a", b"s:0", 1, b"{}")]):
            steps.apply(again, 0, most, {b"a", b"b"} if again is batch else set())
            for client in (b"a", b"b"):
                steps.compare(client)
    finally:
        steps.teardown()


@pytest.mark.parametrize("length", [1, 2, 7, 1500])
def test_a_page_begins_after_any_offset_and_holds_the_last_events_up_to_the_length(
    redis_server: RedisServer, fresh: str, length: int
) -> None:
    """Histories of every size up to the length and beyond, with gaps between offsets, more than one command takes."""
    feed = CatalogFeed("f", "f", "id", 1, 1, (), (), {}, retain="always", length=length, ordered=True)
    place, store = FeedPlace(feed, 0, LINEAGE), Feeds(StoreWriter(redis_server.url, f"test:{fresh}"))
    begun = store.begin(place, Beginning(0, 0, -1, -1)).begun
    written: list[int] = []
    reached = -1
    with asyncio.Runner() as runner:
        servers = AsyncServers(redis_server.url)
        reader = FeedHistories(servers, f"test:{fresh}", "g1")
        for size in (1, 1, 3, length, length + 3):
            events = [
                FeedEvent(b"a", b"{}", 1, reached + 3 * n, 0, reached + 3 * n, b"s:0") for n in range(1, size + 1)
            ]
            last = events[-1].offset
            assert store.apply(place, begun, reached, last, pack_events(events)) == Taken(size, size)
            written += [event.offset for event in events]
            reached, kept, dropped = last, written[-length:], [-1, *written[:-length]][-1]
            for after in {
                -1,
                max(dropped - 1, -1),
                dropped,
                kept[0] - 1,
                *kept[:5],
                *kept[-5:],
                kept[len(kept) // 2] + 1,
                last + 1,
            }:
                page = runner.run(reader.events(place, b"a", after, 10))
                assert page is not None
                assert [row.offset for row in page.events] == [offset for offset in kept if offset > after][:10]
                assert page.complete == (after >= dropped)
        runner.run(servers.close())

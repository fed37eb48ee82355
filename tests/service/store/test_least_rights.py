"""Each process's user in Redis: its rights are enough for all that the process does, and none of them is too many."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
import redis

from store_bench import LINEAGE, PLACE
from tailrace.contracts.catalog import CatalogFeed
from tailrace.contracts.event import FeedEvent
from tailrace.contracts.freshness import FORGOTTEN, Report
from tailrace.contracts.record import Change
from tailrace.declarations.app import App
from tailrace.dev.redis_server import RedisServer
from tailrace.operations.kafka_rights import GATEWAY, MATERIALIZER, OPERATOR, PIPELINE
from tailrace.operations.redis_rights import redis_rights
from tailrace.store.connection.outages import Unavailable
from tailrace.store.connection.scripts import Script, commands_in
from tailrace.store.connection.servers import AsyncServers
from tailrace.store.layout.feed_keys import FeedPlace
from tailrace.store.layout.message import GONE, ROW, QueryEvent
from tailrace.store.layout.packed_events import pack_events
from tailrace.store.read.channels import Channels
from tailrace.store.read.feed_histories import FeedHistories
from tailrace.store.read.matches import Matches
from tailrace.store.read.page_keys import PageKeys
from tailrace.store.read.reader import Reader
from tailrace.store.read.restricted import RestrictedUsers
from tailrace.store.read.revocations import Revocations, revoke
from tailrace.store.read.scans import Scans
from tailrace.store.read.streams import Streams
from tailrace.store.read.tickets import Tickets
from tailrace.store.write.expiries import Expiries
from tailrace.store.write.feeds import Beginning, Feeds
from tailrace.store.write.hand_overs import HandOvers
from tailrace.store.write.match_writer import SETTLED, BelievedPartition, MatchWriter, Outcome
from tailrace.store.write.reports import Reports
from tailrace.store.write.tombstones import StoredTombstones
from tailrace.store.write.writer import StoreWriter

NEVER = 4_000_000_000_000
QUERY = "0f1e2d3c"
CLIENT = b"c7"
GATEWAY_NAME = "g1"
# In seconds: what is older may be dropped.
AGE = 0.01


def movies(*, views: bool = True, feeds: bool = True) -> App:
    app = App("movies")
    ratings = app.topic("ratings", value="movie_id long, rating double")
    if views:
        app.view("v", ratings, key="movie_id", columns={"rating": "avg(rating)"})
    if feeds:
        app.feed("f", ratings, key="movie_id", columns={"rating": "rating"})
    return app


class World:
    """The keys of one app in Redis, and a user who has some rights there."""

    def __init__(self, server: RedisServer, fresh: str) -> None:
        self.prefix = f"test:{fresh}"
        self.user = f"user-{fresh}"
        self.admin = redis.Redis.from_url(server.url)
        self.admin_url = server.url
        self.url = server.url.replace("redis://", f"redis://{self.user}:secret@")

    def allow(self, rules: list[str]) -> None:
        self.admin.execute_command("ACL", "SETUSER", self.user, "reset", "on", ">secret", *rules)  # type: ignore[no-untyped-call]

    def forget(self) -> None:
        """Empty the app, and make Redis forget all scripts."""
        if keys := list(self.admin.scan_iter(f"{self.prefix}:*", count=1000)):
            self.admin.delete(*keys)
        self.admin.script_flush()

    def close(self) -> None:
        self.forget()
        self.admin.execute_command("ACL", "DELUSER", self.user)  # type: ignore[no-untyped-call]
        self.admin.close()


@pytest.fixture
def world(redis_server: RedisServer, fresh: str) -> Iterator[World]:
    world = World(redis_server, fresh)
    yield world
    world.close()


def feed_place(name: str, retain: str, *, ordered: bool) -> FeedPlace:
    feed = CatalogFeed(name, name, "id", 1, 1, (), (), {}, hold=0, retain=retain, length=2, age=AGE, ordered=ordered)
    return FeedPlace(feed, 0, LINEAGE)


ALWAYS = feed_place("f", "always", ordered=False)
LISTENING = feed_place("g", "listening", ordered=True)


def materialize(url: str, prefix: str, admin: str) -> None:
    """Everything that a materializer does in Redis."""
    writer = StoreWriter(url, prefix)
    try:
        write_catalog(writer)
        write_view(writer)
        write_queries(writer)
        write_feeds(writer, admin)
    finally:
        writer.close()


def write_catalog(writer: StoreWriter) -> None:
    writer.put_catalog("app", b"{}")
    writer.put_catalog("app", None)
    reports, now = Reports(writer), int(time.time() * 1000)
    reports.put("old", {"v": Report(now - 2 * FORGOTTEN, LINEAGE, 1)}, now - 2 * FORGOTTEN)
    reports.put("m1", {"v": Report(now, LINEAGE, 1)}, now)


def write_view(writer: StoreWriter) -> None:
    hand_overs, tombstones = HandOvers(writer), StoredTombstones(writer)
    for _ in range(2):
        writer.begin(*PLACE, -1, generation=1)
    writer.apply(*PLACE, -1, 0, [Change(b"a", b"{}", 1, 1, 0, 0, 7)])
    writer.apply(*PLACE, 0, 2, [Change(b"a", None, 1, 2, 0, 1), Change(b"b", b"{}", 1, 1, 0, 2, 7)])
    assert writer.newest("v", 0, [b"b"])[0] is not None
    Expiries(writer).due(*PLACE, NEVER, 10)
    writer.complete(*PLACE, 2, NEVER)
    for now in (0, 100):
        tombstones.prune(*PLACE, generation=1, now=now, keep=1, batch=now)
    tombstones.prune(*PLACE, generation=1, now=100, keep=1, batch=100, keys=[b"a"])
    tombstones.before("v", 0, 9, 0, 10)
    for generation in (2, 3):
        writer.apply(*PLACE, generation, generation + 1, [Change(b"c", b"{}", generation, 1, 0, generation + 1)])
    hand_overs.serve(*PLACE, 3, -1)
    hand_overs.old_keys(*PLACE, 3, 0, 10)
    hand_overs.forget("v", 0, [b"b"])
    writer.apply(*PLACE, 4, 5, [Change(b"c", b"{}", 4, 1, 0, 5)])
    hand_overs.abandon(*PLACE, 3, 4)


def write_queries(writer: StoreWriter) -> None:
    matches = MatchWriter(writer, most_left=1)
    writer.begin(*PLACE, -1, generation=1, anew=True)
    place = partial(BelievedPartition, *PLACE, generation=1)
    matches.enlist(place(offset=-1), {QUERY: (False, NEVER)}, 0)
    matches.settle(place(offset=-1), [QUERY], 0)
    for offset, kind in enumerate((ROW, ROW, GONE, GONE)):
        key, value = b"k%d" % (offset % 2), b"{}" if kind == ROW else None
        outcome = Outcome(
            [QueryEvent(kind, key, 1, offset, offset, 0, value)], {QUERY: [1]}, {QUERY: SETTLED}, {QUERY: NEVER}
        )
        matches.apply(place(offset=offset - 1), offset, [Change(key, value, 1, offset, 0, offset)], outcome)
    matches.held(place(offset=3), [b"k0"])
    matches.scan_rows(place(offset=3), 0, 10)
    matches.scan_members(place(offset=3), [(QUERY, 0)], 10)
    matches.extend(place(offset=3), {QUERY: NEVER}, NEVER)
    matches.forget_left(place(offset=3), [QUERY], 3)
    matches.unsettle(place(offset=3))
    matches.delist(place(offset=3), [QUERY])


def write_feeds(writer: StoreWriter, admin: str) -> None:
    feeds = Feeds(writer)

    for place in (ALWAYS, LISTENING):
        begun = feeds.begin(place, Beginning(0, 0, -1, -1)).begun
        asyncio.run(listen(admin, writer.prefix, place))
        for first in (0, 3, 6):
            take(feeds, place, begun, first)
            wait_until_old()
        asyncio.run(listen(admin, writer.prefix, place, leave=True))
        wait_until_old()
        feeds.lapse(place, begun)


def take(feeds: Feeds, place: FeedPlace, begun: str, first: int) -> None:
    """Take three events of the client, one more than are kept."""
    events = [FeedEvent(CLIENT, b"{}", 1, n + 1, 0, n, b"s:0") for n in range(first, first + 3)]
    packed = pack_events(events, ordered=place.feed.ordered)
    feeds.apply(place, begun, first - 1, first + 2, packed, tended=[CLIENT])


def wait_until_old() -> None:
    """By the clock of Redis, which nobody can turn."""
    time.sleep(2 * AGE)


def prepare(url: str, prefix: str) -> None:
    """A view with a complete query, and feeds with events that are old."""
    writer = StoreWriter(url, prefix)
    matches, feeds = MatchWriter(writer), Feeds(writer)
    try:
        writer.begin(*PLACE, -1, generation=1)
        place = BelievedPartition(*PLACE, -1, 1)
        matches.enlist(place, {QUERY: (False, NEVER)}, 0)
        matches.settle(place, [QUERY], 0)
        for feed in (ALWAYS, LISTENING):
            begun = feeds.begin(feed, Beginning(0, 0, -1, -1)).begun
            asyncio.run(listen(url, prefix, feed))
            take(feeds, feed, begun, 0)
        wait_until_old()
    finally:
        writer.close()


async def listen(url: str, prefix: str, place: FeedPlace, *, leave: bool = False) -> None:
    """Register a client, or end its registration, as a gateway."""
    servers = AsyncServers(url)
    try:
        histories = FeedHistories(servers, prefix, GATEWAY_NAME)
        await (histories.leave if leave else histories.listen)(place, CLIENT)
    finally:
        await servers.close()


def serve(url: str, prefix: str, admin: str) -> None:
    """Everything that a gateway does in Redis."""
    prepare(admin, prefix)
    asyncio.run(serve_clients(url, prefix))


async def serve_clients(url: str, prefix: str) -> None:
    servers = AsyncServers(url)
    try:
        await follow(servers, prefix)
        await read_views(servers, prefix)
        await keep_streams(servers, prefix)
        await let_in(servers, prefix)
        histories = FeedHistories(servers, prefix, GATEWAY_NAME)
        for place in (ALWAYS, LISTENING):
            await histories.listen(place, CLIENT)
            await histories.listen(place, b"another")
            await histories.events(place, CLIENT, -1)
            await histories.leave(place, CLIENT)
    finally:
        await servers.close()


async def follow(servers: AsyncServers, prefix: str) -> None:
    """Hear one channel, then not any more."""
    recovered, heard = asyncio.Event(), asyncio.Event()
    link = Channels(servers, lambda *_: heard.set(), recovered.set)
    channel = f"{prefix}:catalog".encode()
    link.join(channel)
    running = asyncio.create_task(link.run())

    async def until(done: Callable[[], bool]) -> None:
        while not done():
            if link.problem is not None:
                raise redis.ResponseError(link.problem)
            await asyncio.sleep(0.005)

    try:
        await until(recovered.is_set)
        link.leave(channel)
        # When the last of these is heard, the first one has been left.
        for other in (channel + b"-2", channel + b"-3"):
            link.join(other)
            joined = asyncio.create_task(link.joined(other))
            await until(joined.done)
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def read_views(servers: AsyncServers, prefix: str) -> None:
    reader, matches = Reader(servers, prefix), Matches(servers, prefix)
    await reader.ping()
    await reader.held(*PLACE, [b"k0"])
    await reader.stored([PLACE])
    await reader.catalog()
    await reader.reports()
    await Scans(servers, prefix).batch(*PLACE)
    await matches.snapshot(*PLACE, QUERY)
    await matches.heads([(*PLACE, QUERY)])


async def keep_streams(servers: AsyncServers, prefix: str) -> None:
    streams = Streams(servers, prefix)
    await streams.put("s", None, b"{}", 60_000)
    await streams.get("s", keep=60_000)
    await streams.keep("s", 60_000)
    await streams.search(60_000)
    await streams.searched(60_000)
    await streams.is_searching()


async def let_in(servers: AsyncServers, prefix: str) -> None:
    tickets, revocations, restricted = Tickets(servers, prefix), Revocations(servers, prefix), RestrictedUsers
    await tickets.put("t", b"claims", 60)
    await tickets.take("t")
    now = int(time.time() * 1000)
    await revocations.put({"sub:b": (now, NEVER), "sub:over": (now, now + 20)})
    await asyncio.sleep(0.03)
    await revocations.put({"sub:a": (now, NEVER)})
    await revocations.all()
    await restricted(servers, prefix).add("a", "v")
    await restricted(servers, prefix).includes("a", "v")
    keys = PageKeys(servers, prefix)
    await keys.named((await keys.current()).number)


def operate(url: str, prefix: str, admin: str) -> None:
    """Everything that `tailrace status` and `tailrace revoke` do in Redis."""
    prepare(admin, prefix)
    writer = StoreWriter(url, prefix)
    try:
        Reports(writer).all()
        writer.stored([PLACE])
    finally:
        writer.close()
    revoke(admin, prefix, "sub:b", 60)
    revoke(admin, prefix, "sub:over", 0.001)
    wait_until_old()
    with redis.Redis.from_url(admin) as client:
        client.script_flush()
    revoke(url, prefix, "sub:a", 60)


DOES = {MATERIALIZER: materialize, GATEWAY: serve, OPERATOR: operate}


@pytest.mark.parametrize("process", DOES)
def test_the_rights_of_a_process_are_enough_and_without_any_of_them_it_says_which_one_is_missing(
    world: World, process: str
) -> None:
    rules = redis_rights(movies(), process, prefix=world.prefix)
    world.allow(rules)
    DOES[process](world.url, world.prefix, world.admin_url)
    unused, unnamed = [], {}
    for rule in [rule for rule in rules if rule[0] in "~&+"]:
        world.forget()
        world.allow([one for one in rules if one != rule])
        try:
            DOES[process](world.url, world.prefix, world.admin_url)
        except (Unavailable, redis.ResponseError) as error:
            named = rule[1:].removesuffix("*").partition("|")[0].lower()
            if named not in str(error).lower():
                unnamed[rule] = str(error)
        else:
            unused.append(rule)
    assert (unused, unnamed) == ([], {})


def test_a_user_has_no_right_on_another_app(world: World) -> None:
    for process in DOES:
        world.allow(redis_rights(movies(), process, prefix=world.prefix))
        client: Any = redis.Redis.from_url(world.url)
        for name in (f"{world.prefix}x:catalog", "tailrace:movies:catalog", "x"):
            with pytest.raises(redis.exceptions.NoPermissionError):
                client.hgetall(name)
        for command in (["FLUSHALL"], ["KEYS", "*"], ["CONFIG", "GET", "*"], ["ACL", "LIST"]):
            with pytest.raises(redis.exceptions.NoPermissionError):
                client.execute_command(*command)
        client.close()


def test_a_pattern_in_the_prefix_means_itself(world: World) -> None:
    world.allow(redis_rights(movies(), GATEWAY, prefix=f"{world.prefix}[a]*"))
    client: Any = redis.Redis.from_url(world.url)
    assert client.hgetall(f"{world.prefix}[a]*:catalog") == {}
    with pytest.raises(redis.exceptions.NoPermissionError):
        client.hgetall(f"{world.prefix}ab:catalog")
    client.close()


def test_an_app_without_views_or_feeds_gets_no_rights_for_them() -> None:
    both = set(redis_rights(movies(), MATERIALIZER))
    assert "+xadd" in both - set(redis_rights(movies(feeds=False), MATERIALIZER))
    assert "+rename" in both - set(redis_rights(movies(views=False), MATERIALIZER))


def test_a_pipeline_does_not_connect_to_redis() -> None:
    assert redis_rights(movies(), PIPELINE) == []


def test_in_a_cluster_everyone_may_ask_where_everything_is() -> None:
    added = {process: set(redis_rights(movies(), process, cluster=True)) for process in DOES}
    added = {process: found - set(redis_rights(movies(), process)) for process, found in added.items()}
    assert added == {
        MATERIALIZER: {"+cluster|slots"},
        GATEWAY: {"+cluster|slots", "+cluster|info"},
        OPERATOR: {"+cluster|slots"},
    }


def test_every_command_of_every_script_is_found() -> None:
    """What an error names if Redis does not."""
    writer = StoreWriter("redis://127.0.0.1:1/0", "test")
    apply: Script = writer.script("apply")
    assert {"HMGET", "PUBLISH", "ZADD", "HDEL", "UNLINK"} <= set(commands_in(apply.text))

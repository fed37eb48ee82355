"""Feeds between a real broker and a real Redis: who listens gets every event once, and nobody else costs anything."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import pytest
import redis
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from feeding import FeedLog, gateway
from hearing import heard_before
from materializing import running
from oracle import read_topic
from running import eventually
from services import NewRedis
from tailrace.contracts.catalog import Catalog
from tailrace.contracts.event import FeedEvent
from tailrace.dev.broker import Broker
from tailrace.dev.redis_server import RedisServer
from tailrace.kafka.brokers import Brokers
from tailrace.kafka.dead_letters import dead_letter_topic
from tailrace.kafka.topics import EVENTS, Topics
from tailrace.materializer.counters import MaterializerCounters
from tailrace.materializer.materializer import Materializer
from tailrace.store.layout.keys import catalog_key, freshness_key
from tailrace.store.layout.packed_events import pack_events
from tailrace.store.write.feeds import Feeds
from tailrace.store.write.writer import PositionMoved, StoreWriter

NewLog = Callable[..., FeedLog]


@pytest.fixture
def new_log(broker: Broker, fresh: str) -> NewLog:
    return lambda **declared: FeedLog(broker, fresh, **declared)


def followed(log: FeedLog, url: str, materializer: Materializer) -> None:
    """Wait until Redis has a position: from then on, events are for who listens."""
    eventually(lambda: log.stored(url) is not None and materializer.reasons() == [], "the feed is followed")


def test_who_does_not_listen_has_nothing_stored_and_nothing_published(
    new_log: NewLog, redis_server: RedisServer
) -> None:
    log, url = new_log(), redis_server.url
    client = redis.Redis.from_url(url)
    heard = client.pubsub(ignore_subscribe_messages=True)  # type: ignore[no-untyped-call]
    heard.psubscribe(log.prefix + "*")
    with running(log, url) as materializer, gateway(log, url) as own:
        followed(log, url, materializer)
        own.listen(b"ann")
        for n in range(5):
            log.put(b"bob", b"%d" % n)
            log.put(b"ann", b"%d" % n)
        eventually(lambda: log.stored(url) == 9, "all records are read")
        assert log.kept(url) == {b"ann": [b"0", b"1", b"2", b"3", b"4"]}
        assert not [name for name in cast(list[bytes], client.keys(log.prefix + "*")) if b"bob" in name]
        client.publish(log.prefix + ":end", "")
        channels = {message["channel"] for message in heard_before(heard, f"{log.prefix}:end".encode())}
        assert channels - {catalog_key(log.prefix).encode()} == {log.keys.channel(log.place.lineage, b"ann")}


def test_a_replay_of_a_feed_that_is_not_ordered_adds_nothing_and_no_event_is_lost(
    new_log: NewLog, redis_server: RedisServer
) -> None:
    log, url = new_log(ordered=False), redis_server.url
    # One record that became two events, and one that was overtaken by a later one.
    written = [(1, b"a"), (1, b"b"), (3, b"d"), (2, b"c")]
    with running(log, url) as materializer, gateway(log, url) as own:
        followed(log, url, materializer)
        own.listen(b"ann")
        for version, value in [*written, *sorted(written), (4, b"e")]:
            log.put(b"ann", value, version=version)
        eventually(lambda: log.stored(url) == 8, "all records are read")
        assert own.events(b"ann") == [b"a", b"b", b"d", b"c", b"e"]


def test_a_client_that_comes_back_within_the_hold_time_gets_what_it_has_missed(
    new_log: NewLog, redis_server: RedisServer
) -> None:
    log, url = new_log(), redis_server.url
    with (
        running(log, url) as materializer,
        gateway(log, url) as own,
        gateway(log, url, "g2") as other,
    ):
        followed(log, url, materializer)
        own.listen(b"ann")
        log.put(b"ann", b"before")
        eventually(lambda: own.events(b"ann") == [b"before"], "the first event")
        own.leave(b"ann")
        log.put(b"ann", b"meanwhile")
        eventually(lambda: log.stored(url) == 1, "the second record is read")
        back = other.listen(b"ann")
        assert back.covers(0) and other.events(b"ann", 0) == [b"meanwhile"]


def test_registrations_of_a_dead_gateway_expire_and_leave_nothing_behind(
    new_log: NewLog, redis_server: RedisServer
) -> None:
    log, url = new_log(hold=0.0), redis_server.url
    client = redis.Redis.from_url(url)
    with running(log, url) as materializer, gateway(log, url, lease=1.5) as own:
        followed(log, url, materializer)
        # The report of the materializer comes in between.
        baseline = {*cast(list[bytes], client.keys(log.prefix + "*")), freshness_key(log.prefix).encode()}
        own.listen(b"ann")
        log.put(b"ann", b"event")
        # It may have expired before it was looked at; what counts is what is left.
        eventually(lambda: own.page(b"ann", -1) is None, "the registration has expired")
        eventually(lambda: log.stored(url) == 0, "the record is read")
        grown = {log.keys.marks, log.keys.times}
        eventually(lambda: set(cast(list[bytes], client.keys(log.prefix + "*"))) - baseline == grown, "all is gone")


def test_a_redis_emptied_while_a_client_listens_gives_it_the_exact_suffix(new_log: NewLog, new_redis: NewRedis) -> None:
    log, url = new_log(), new_redis().url
    with running(log, url, grace=4.0) as materializer, gateway(log, url) as own:
        followed(log, url, materializer)
        own.listen(b"ann")
        own.listen(b"bob")
        for n in range(5):
            log.put(b"ann", b"%d" % n)
            log.put(b"bob", b"%d" % n)
        eventually(lambda: log.stored(url) == 9, "all records are read")
        redis.Redis.from_url(url).flushall()
        log.put(b"ann", b"while it was away")
        # A replay of what the client had before Redis was lost.
        log.put(b"ann", b"3", version=7)
        # As gateways do: every few seconds.
        eventually(lambda: own.listen(b"ann").offset is not None, "the registration is made again")
        log.put(b"ann", b"after")
        eventually(lambda: log.stored(url) == 12 and materializer.reasons() == [], "all is read again")
        assert own.listen(b"ann").covers(4)
        assert own.events(b"ann", 4) == [b"3", b"4", b"while it was away", b"after"]
        assert b"bob" not in log.kept(url)
        late = own.listen(b"bob")
        assert not late.covers(8) and late.covers(12), "who registers after that is told that it has missed events"


def test_the_lag_of_a_feed_grows_while_redis_is_away(new_log: NewLog, new_redis: NewRedis) -> None:
    log, server, counters = new_log(), new_redis(), MaterializerCounters()

    def lag() -> float | None:
        labels = {"view": log.feed, "partition": "0"}
        return counters.registry.get_sample_value("tailrace_materializer_lag", labels)

    with running(log, server.url, counters=counters) as materializer:
        followed(log, server.url, materializer)
        log.put(b"ann", b"0")
        eventually(lambda: log.stored(server.url) == 0 and lag() == 0, "the first record is read")
        server.kill()
        for n in range(1, 4):
            log.put(b"ann", b"%d" % n)
        eventually(lambda: (lag() or 0) >= 3, "the lag grows")
        server.start()
        eventually(lambda: lag() == 0 and materializer.reasons() == [], "all is read")
        assert log.stored(server.url) == 3


def test_a_feed_that_always_keeps_events_does_so_for_who_is_away_and_after_a_loss(
    new_log: NewLog, new_redis: NewRedis
) -> None:
    log, url = new_log(retain="always", length=3), new_redis().url
    with running(log, url) as materializer, gateway(log, url) as own:
        followed(log, url, materializer)
        for n in range(5):
            log.put(b"ann", b"%d" % n)
        log.put(b"ann", b"3", version=4)
        log.put(b"bob", b"0")
        expected = {b"ann": [b"2", b"3", b"4"], b"bob": [b"0"]}
        eventually(lambda: log.kept(url) == expected, "the last events of both, and no replay")
        redis.Redis.from_url(url).flushall()
        eventually(lambda: log.kept(url) == expected and materializer.reasons() == [], "the same again")
        found = own.listen(b"ann")
        assert found.covers(1) and not found.covers(0), "who misses the first events is told"
        assert own.listen(b"bob").covers(-1)


def test_a_backlog_of_many_polls_gives_each_client_every_event_once_also_where_redis_is_lost_meanwhile(
    new_log: NewLog, new_redis: NewRedis
) -> None:
    log, url = new_log(retain="always"), new_redis().url
    expected: dict[bytes, list[bytes]] = {}
    for n in range(300):
        client = b"client %d" % (n * n % 7)
        log.put(client, b"%d" % n, version=n + 1)
        expected.setdefault(client, []).append(b"%d" % n)
        if n % 50 == 49:
            # The pipeline repeats what it has not saved.
            for again in range(n - 20, n + 1):
                log.put(b"client %d" % (again * again % 7), b"%d" % again, version=again + 1)
    # Polls are full, so that each is on its way to Redis while the next is read.
    with running(log, url, most=7) as materializer:
        eventually(lambda: (log.stored(url) or 0) > 100, "a part of them is read")
        redis.Redis.from_url(url).flushall()
        eventually(lambda: log.kept(url) == expected and materializer.reasons() == [], "every event, and no replay")
    with running(log, url, most=7) as materializer:
        log.put(b"client 0", b"299", version=300)
        log.put(b"client 0", b"last", version=301)
        expected[b"client 0"].append(b"last")
        eventually(lambda: log.kept(url) == expected, "who opens it next knows the marks")


def test_a_new_generation_that_reads_its_source_again_repeats_nothing(
    new_log: NewLog, redis_server: RedisServer
) -> None:
    log, url = new_log(), redis_server.url
    with running(log, url) as materializer, gateway(log, url) as own:
        followed(log, url, materializer)
        own.listen(b"ann")
        for n in range(1, 4):
            log.put(b"ann", b"%d" % n, version=n)
        log.name(generation=2)
        # The pipeline was stopped before its first batch was saved, so a third generation begins at the start, too.
        log.put(b"ann", b"1", version=1)
        log.name(generation=3)
        for n in range(1, 5):
            log.put(b"ann", b"%d" % n, version=n)
        eventually(lambda: own.events(b"ann") == [b"1", b"2", b"3", b"4"], "each event once")
        # A source topic that was made anew begins with the first version again.
        log.name(generation=4)
        log.put(b"ann", b"new", origin="t", version=1)
        log.put(b"ann", b"old", version=2)
        log.put(b"ann", b"newer", origin="t", version=2)
        eventually(lambda: log.stored(url) == 10, "all records are read")
        assert own.events(b"ann") == [b"1", b"2", b"3", b"4", b"new", b"newer"]


def test_a_changelog_that_was_made_anew_begins_anew(new_log: NewLog, redis_server: RedisServer) -> None:
    log, url = new_log(), redis_server.url
    with running(log, url) as materializer, gateway(log, url) as own:
        followed(log, url, materializer)
        own.listen(b"ann")
        log.put(b"ann", b"old")
        eventually(lambda: own.events(b"ann") == [b"old"], "the first event")
        lineage = log.place.lineage
        other = f"{log.feed}-anew"
        topics = Topics(Brokers(log.broker.address))
        topics.create(other, partitions=1, replication=1, config=EVENTS)
        log.name(changelog=other, topic_id=topics.describe([other])[other].id)
        assert log.place.lineage != lineage
        eventually(lambda: own.listen(b"ann").offset == -1, "a position of the new changelog")
        assert own.events(b"ann") == [] and own.listen(b"ann").covers(-1)
        assert Catalog(log.app, {}).lineage(log.entry) == log.place.lineage


def test_a_position_past_the_end_of_the_changelog_is_not_believed(new_log: NewLog, redis_server: RedisServer) -> None:
    log, url = new_log(), redis_server.url
    client = redis.Redis.from_url(url)
    with gateway(log, url) as own:
        with running(log, url) as materializer:
            followed(log, url, materializer)
            own.listen(b"ann")
            log.put(b"ann", b"0")
            eventually(lambda: own.events(b"ann") == [b"0"], "the event")
        client.hset(cast(str, log.keys.position), "offset", "4000")
        with running(log, url, grace=0.0):
            eventually(lambda: log.stored(url) == 0 and own.events(b"ann") == [b"0"], "what the changelog has")
        assert not own.listen(b"ann").covers(4000)


def test_records_that_retention_removed_before_they_were_read_are_told(
    new_log: NewLog, redis_server: RedisServer
) -> None:
    log, url = new_log(), redis_server.url
    with gateway(log, url) as own:
        with running(log, url) as materializer:
            followed(log, url, materializer)
            own.listen(b"ann")
            log.put(b"ann", b"0")
            eventually(lambda: own.events(b"ann") == [b"0"], "the first event")
        for n in range(1, 5):
            log.put(b"ann", b"%d" % n)
        admin = AdminClient({"bootstrap.servers": log.broker.address})
        for future in admin.delete_records([TopicPartition(log.feed, 0, 3)]).values():
            future.result(30)
        with running(log, url) as materializer:
            eventually(lambda: own.events(b"ann") == [b"0", b"3", b"4"], "what is left")
            found = own.listen(b"ann")
            assert not found.covers(0) and found.covers(2)


def test_every_event_counts_once_in_the_order_of_the_changelog_whatever_is_repeated_or_foreign(
    new_log: NewLog, redis_server: RedisServer
) -> None:
    log, url = new_log(), redis_server.url
    feeds = Feeds(StoreWriter(url, log.prefix))
    with running(log, url) as materializer, gateway(log, url) as own:
        followed(log, url, materializer)
        own.listen(b"ann")
        for _ in range(2):
            log.put(b"ann", b"same", partition=1, version=70)
            log.put(b"ann", b"same", partition=0, version=3)
            log.put(b"ann", b"same", partition=1, version=71)
            log.put_raw(b"ann", b"foreign", [])
            log.put_raw(None, b"keyless", [("g", b"1"), ("v", b"99"), ("t", b"0"), ("p", b"0")])
            log.put_raw(b"ann", None, [("g", b"1"), ("v", b"99"), ("t", b"0"), ("p", b"0")])
        log.put(b"ann", b"last", partition=0, version=4)
        eventually(lambda: log.stored(url) == 12, "all records are read")
        assert own.events(b"ann") == [b"same", b"same", b"same", b"last"]
        page = own.page(b"ann", 1)
        assert page is not None and page.complete and page.reached == 12
        assert [row.offset for row in page.events] == [2, 12]
        # What is no event is kept as a dead letter, untouched.
        letters = [message.value() for message in read_topic(log.broker.address, dead_letter_topic(log.feed))]
        assert letters == [b"foreign", b"keyless", None] * 2

        # An instance that was paused, and believes what was so before.
        begun = cast(bytes, redis.Redis.from_url(url).hget(cast(str, log.keys.position), "history")).decode()
        zombie = pack_events([FeedEvent(b"ann", b"zombie", 1, 999, 0, 13, b"s:0")])
        assert feeds.apply(log.place, begun, 11, 13, zombie) == PositionMoved(12)
        assert feeds.apply(log.place, "an earlier restore", 12, 13, zombie) == PositionMoved(12)
        assert own.events(b"ann", 2) == [b"last"] and log.stored(url) == 12


def test_a_client_is_held_until_it_has_left_every_gateway_and_is_told_when_it_comes_back_later(
    new_log: NewLog, redis_server: RedisServer
) -> None:
    log, url = new_log(hold=0.0), redis_server.url
    with running(log, url) as materializer, gateway(log, url) as one, gateway(log, url, "g2") as two:
        followed(log, url, materializer)
        two.listen(b"ann")
        one.listen(b"ann")
        one.leave(b"ann")
        log.put(b"ann", b"first")
        eventually(lambda: two.events(b"ann") == [b"first"], "it still listens through the other")
        two.leave(b"ann")
        assert log.kept(url) == {}
        log.put(b"ann", b"meanwhile")
        eventually(lambda: log.stored(url) == 1, "the second record is read")
        assert one.page(b"ann", 0) is None, "it must register first"
        back = one.listen(b"ann")
        assert not back.covers(0) and back.covers(1) and one.events(b"ann") == []


@pytest.mark.parametrize("ordered", [True, False])
def test_an_event_that_redis_never_takes_is_found_among_many_and_held_up_no_other(
    new_log: NewLog, new_redis: NewRedis, ordered: bool
) -> None:
    log, url = new_log(retain="always", ordered=ordered), new_redis(options=("--proto-max-bulk-len", "1mb")).url
    huge = b'"%b"' % (b"x" * 1_200_000)
    for n in range(40):
        log.put(b"ann" if n % 2 else b"bob", b"%d" % n)
        if n in (7, 8, 30):
            log.put(b"ann", huge)
        if n == 20:
            log.put_raw(b"ann", b"no event", [])
    with running(log, url) as materializer:
        eventually(lambda: log.stored(url) == 43, "all records are read")
        kept = log.kept(url)
        assert kept == {b"ann": [b"%d" % n for n in range(1, 40, 2)], b"bob": [b"%d" % n for n in range(0, 40, 2)]}
        letters = [message.value() or b"" for message in read_topic(log.broker.address, dead_letter_topic(log.feed))]
        # What is no event is kept before its batch is tried, and may be repeated with it.
        assert letters.count(huge) == 3 and set(letters) == {huge, b"no event"}
        log.put(b"ann", b"40")
        eventually(lambda: log.kept(url)[b"ann"][-1] == b"40" and materializer.reasons() == [], "it goes on")

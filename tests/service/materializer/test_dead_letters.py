"""A changelog record that can never be applied becomes a dead letter and holds up no other; an outage makes none."""

from __future__ import annotations

import time
from argparse import Namespace
from typing import Any

import pytest
import redis
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from materializing import PARTITIONS, Changelog, ready, running
from running import eventually
from services import NewRedis
from tailrace.contracts.partitions import partition_of
from tailrace.contracts.record import Change
from tailrace.dev.broker import Broker
from tailrace.kafka.brokers import Brokers
from tailrace.kafka.dead_letters import dead_letter_topic
from tailrace.kafka.topics import Topics
from tailrace.operations.status import DeadLetterCounts, status
from tailrace.settings import Settings


@pytest.fixture
def log(broker: Broker, fresh: str) -> Changelog:
    return Changelog(broker, fresh)


def consumer(log: Changelog, group: str = "test") -> Consumer:
    return Consumer({"bootstrap.servers": log.broker.address, "group.id": group, "enable.auto.commit": False})


def letters(log: Changelog) -> list[Any]:
    """The dead letters of a changelog; none where there is no topic for them."""
    name = dead_letter_topic(log.view)
    if not Topics(Brokers(log.broker.address)).describe([name]):
        return []
    found: list[Any] = []
    reading = consumer(log)
    _, end = reading.get_watermark_offsets(TopicPartition(name, 0), timeout=30)
    reading.assign([TopicPartition(name, 0, OFFSET_BEGINNING)])
    deadline = time.monotonic() + 60
    while len(found) < end:
        assert time.monotonic() < deadline, "the dead letters can be read"
        found += [message for message in reading.consume(100, 0.2) if message.error() is None]
    reading.close()
    return found


def committed(log: Changelog) -> dict[int, int]:
    asking = consumer(log, f"tailrace.{log.app}.materializer")
    found = asking.committed([TopicPartition(log.view, number) for number in range(PARTITIONS)], timeout=30)
    asking.close()
    return {position.partition: position.offset for position in found}


def test_a_record_that_is_no_change_is_kept_as_it_was_with_where_and_why_and_only_once(
    log: Changelog, new_redis: NewRedis
) -> None:
    server = new_redis()
    for number in range(PARTITIONS):
        log.put(next(b"%d" % n for n in range(99) if partition_of(b"%d" % n, PARTITIONS) == number), 1)
    log.put_raw(b"\x00odd", b"\xff\xfe", [("g", b"one"), ("mine", b"1")])
    log.put_raw(b"a", None, [])
    log.put(b"good", 1)
    with running(log, server.url) as materializer:
        eventually(lambda: b"good" in log.rows(server.url), "the record behind them")
        eventually(lambda: len(letters(log)) == 2, "both letters")
        odd, other = sorted(letters(log), key=lambda letter: letter.key())
        assert (odd.key(), odd.value(), odd.headers()[:2]) == (b"\x00odd", b"\xff\xfe", [("g", b"one"), ("mine", b"1")])
        said = {name.removeprefix("tailrace."): value.decode() for name, value in odd.headers()[2:]}
        assert said.keys() == {"error", "topic", "partition", "offset", "timestamp", "views"}
        assert (said["topic"], said["views"]) == (log.view, log.view)
        assert int(said["partition"]) == partition_of(b"\x00odd", PARTITIONS) and int(said["offset"]) >= 1
        assert "'g'" in said["error"] and int(said["timestamp"]) > 1_600_000_000_000
        assert (other.key(), other.value()) == (b"a", None)
        addresses = Namespace(kafka=log.broker.address, redis=server.url, prefix=log.prefix)
        assert status(log.app, Settings.read(addresses, {})).dead_letters == [
            DeadLetterCounts(log.view, {"not-applied": 2}, 0)
        ]
        ends = log.ends()
        eventually(lambda: committed(log) == {n: end + 1 for n, end in ends.items()}, "the group has committed")
        redis.Redis.from_url(server.url).flushall()
        eventually(lambda: b"good" in log.rows(server.url) and materializer.reasons() == [], "all is read again")
        assert len(letters(log)) == 2


def test_a_record_that_redis_never_takes_is_found_among_many(log: Changelog, new_redis: NewRedis) -> None:
    server = new_redis(options=("--proto-max-bulk-len", "1mb"))
    huge = b'"%b"' % (b"x" * 1_200_000)
    for n in range(40):
        log.put(b"%d" % n, 1)
        if n in (7, 8, 30):
            log.put(b"huge-%d" % n, 1, huge)
    with running(log, server.url) as materializer:
        eventually(lambda: len(log.rows(server.url)) == 40, "every other record")
        eventually(lambda: len(letters(log)) == 3, "the three")
        found = letters(log)
        assert {(letter.key(), letter.value()) for letter in found} == {(b"huge-%d" % n, huge) for n in (7, 8, 30)}
        assert all("Redis" in dict(letter.headers())["tailrace.error"].decode() for letter in found)
        ready(materializer)
        log.put(b"0", 2)
        eventually(lambda: log.rows(server.url)[b"0"][1] == 2, "it goes on")


def test_a_key_whose_row_is_too_long_holds_none_until_it_fits_again_and_a_letter_says_so(
    log: Changelog, new_redis: NewRedis
) -> None:
    server = new_redis()
    log.put(b"a", 1)
    with running(log, server.url):
        eventually(lambda: log.rows(server.url) == {b"a": (1, 1, b"{}")}, "the row")
        log.put_raw(b"a", None, Change(b"a", None, 1, 2, 0, -1, oversize=9_000_000).headers())
        eventually(lambda: log.rows(server.url) == {b"a": (1, 2, None)}, "the key holds none")
        eventually(lambda: len(letters(log)) == 1, "the letter")
        (letter,) = letters(log)
        assert (letter.key(), letter.value(), dict(letter.headers())["v"]) == (b"a", None, b"2")
        assert "9000000 bytes" in dict(letter.headers())["tailrace.error"].decode()
        log.put(b"a", 3)
        eventually(lambda: log.rows(server.url) == {b"a": (1, 3, b"{}")}, "the row that fits")


def test_a_letter_is_longer_than_its_topic_takes_and_holds_up_nothing(log: Changelog, new_redis: NewRedis) -> None:
    server = new_redis()
    topics = Topics(Brokers(log.broker.address))
    config = {"max.message.bytes": "5000"}
    topics.create(dead_letter_topic(log.view), partitions=1, replication=1, config=config)
    log.put_raw(b"a", b"x" * 10_000, [("mine", b"1")])
    log.put(b"a", 1)
    with running(log, server.url):
        eventually(lambda: log.rows(server.url) == {b"a": (1, 1, b"{}")}, "the record behind it")
        (letter,) = letters(log)
        said = {name: value.decode() for name, value in letter.headers()}
        assert letter.value() is None and "longer than this topic takes" in said["tailrace.error"]
        assert (said["tailrace.topic"], said["tailrace.offset"]) == (log.view, "0")


def test_an_outage_makes_no_dead_letter_however_often_it_comes(log: Changelog, new_redis: NewRedis) -> None:
    server = new_redis()
    with running(log, server.url) as materializer:
        ready(materializer)
        for round in range(4):
            server.kill()
            log.put(b"killed", round + 1)
            eventually(lambda: materializer.reasons() != [], "Redis is away")
            server.start()
        eventually(lambda: log.rows(server.url) == {b"killed": (1, 4, b"{}")}, "the last version")
    assert letters(log) == []

"""Queries through a real gateway, materializer, broker and Redis: a client's copy is what matches."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
import redis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from materializing import ready, running
from query_gateway import QueryGateway
from running import eventually
from streaming import Streams
from tailrace.dev.broker import Broker
from tailrace.dev.redis_server import RedisServer

KEYS = [f"k{n}" for n in range(12)]


class Rows:
    """Rows of one test, told apart by a column from those of others."""

    def __init__(self, streams: Streams, tag: str) -> None:
        self.log = streams.log
        self.tag = tag
        self.big = f"s = '{tag}' and n > 2"

    def keys(self, *names: str) -> set[str]:
        return {f"{self.tag}-{name}" for name in names}

    def put(self, version: int, n: int | None, *names: str, **more: object) -> None:
        """Rows with this n, or none where it is None."""
        rows = []
        for key in (f"{self.tag}-{name}" for name in names):
            value = None if n is None else json.dumps({"k": key, "n": n, "s": self.tag, **more}).encode()
            rows.append((key.encode(), version, value))
        self.log.put_many(rows)


@pytest.fixture(scope="module")
def streams(broker: Broker) -> Streams:
    return Streams(broker, "queries-of-gateways")


@pytest.fixture(scope="module")
def gateway(
    streams: Streams, redis_server: RedisServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[QueryGateway]:
    """A gateway beside a running materializer; pub/sub alone brings its messages, no sweep helps."""
    with running(streams.log, redis_server.url) as materializer:
        ready(materializer)
        directory = tmp_path_factory.mktemp("gateway")
        process = QueryGateway(directory, streams, redis_server.url, sweep=3600, linger=2)
        process.wait_ready()
        yield process
        process.close()


@pytest.fixture
def rows(streams: Streams, gateway: QueryGateway, fresh: str) -> Iterator[Rows]:
    found = Rows(streams, fresh)
    found.put(1, 3, *KEYS)
    yield found
    gateway.disconnect()


def test_rows_that_match_come_then_ready_then_what_enters_changes_and_leaves(gateway: QueryGateway, rows: Rows) -> None:
    rows.put(1, 1, "small")
    copy = gateway.query(rows.big)
    # The rows may still be on their way when the query is complete.
    copy.ready()
    copy.until(rows.keys(*KEYS))
    rows.put(2, 1, "k0")
    rows.put(2, 7, "k1", "small")
    rows.put(2, None, "k2")
    rows.put(1, 4, "new")
    changed = f"{rows.tag}-k1"
    copy.until(rows.keys(*KEYS[3:], "k1", "small", "new"), lambda held: held[changed]["n"] == 7)
    assert copy.resets == []


def test_a_client_that_comes_back_gets_what_has_changed_and_the_second_time_nothing(
    gateway: QueryGateway, rows: Rows
) -> None:
    copy = gateway.query(rows.big)
    copy.ready()
    copy.until(rows.keys(*KEYS))
    copy.close()
    other = gateway.query(rows.big)
    other.ready()
    assert set(other.rows) == rows.keys(*KEYS)
    rows.put(2, 1, "k0")
    rows.put(2, 7, "k1")
    other.until(rows.keys(*KEYS[1:]), lambda held: held[f"{rows.tag}-k1"]["n"] == 7)
    back = gateway.query(rows.big, copy.position)
    frames = back.ready()
    assert sorted((frame.event, frame.data["k"][-2:]) for frame in frames[:-1]) == [("gone", "k0"), ("row", "k1")]
    assert all(frame.id is None for frame in frames[:-1])
    back.close()
    for position in (back.position, other.position):
        again = gateway.query(rows.big, position)
        assert [frame.event for frame in again.ready()] == ["ready"]


def test_a_whole_view_comes_in_pages_and_is_followed(gateway: QueryGateway, rows: Rows) -> None:
    many = [f"many-{n}" for n in range(1700)]
    rows.put(1, 0, *many)
    copy = gateway.query()
    copy.ready()
    while not rows.keys(*many, *KEYS) <= set(copy.rows):
        copy.take(copy.tap.frame())
    late = gateway.query()
    late.ready()
    assert (late.tap.last_id or "").endswith(".0"), "who is cut off before `ready` asks for everything"
    assert rows.keys(*many, *KEYS) <= set(late.rows)
    cut_off = gateway.query(None, late.tap.last_id)
    cut_off.ready()
    assert cut_off.resets == ["query"] and set(cut_off.rows) == set(late.rows)
    rows.put(2, 5, "many-3")
    rows.put(2, None, "many-4")
    for one in (copy, late):
        one.until(one.rows.keys() - rows.keys("many-4"), lambda held: held[f"{rows.tag}-many-3"]["n"] == 5)


def test_a_row_enters_and_leaves_by_the_clock(gateway: QueryGateway, rows: Rows) -> None:
    to_come = gateway.query(f"s = '{rows.tag}' and t > now()")
    begun = gateway.query(f"s = '{rows.tag}' and t <= now()")
    to_come.ready(), begun.ready()
    starts = datetime.now(UTC) + timedelta(seconds=2)
    rows.put(1, 1, "meeting", t=starts.isoformat(timespec="milliseconds"))
    to_come.until(rows.keys("meeting"))
    begun.until(rows.keys("meeting"))
    assert datetime.now(UTC) >= starts, "not before"
    to_come.until(set())
    back = gateway.query(f"s = '{rows.tag}' and t <= now()", begun.position)
    back.ready()
    assert back.resets == ["query"] and set(back.rows) == rows.keys("meeting")


def test_a_websocket_has_the_query_in_its_frames_and_resumes_by_merged_positions(
    gateway: QueryGateway, rows: Rows
) -> None:
    copy = gateway.query(rows.big)
    copy.ready()
    copy.until(rows.keys(*KEYS))
    socket = gateway.socket()
    socket.send(type="subscribe", id="a", view=rows.log.view, where=rows.big)
    subscribed = socket.message()
    messages = socket.messages("ready")
    query = subscribed["query"]
    assert subscribed == {"type": "subscribed", "id": "a", "query": query}
    assert {message["key"] for message in messages[:-1]} == rows.keys(*KEYS)
    assert all(one["query"] == query and one["view"] == rows.log.view for one in messages[:-1])
    rows.put(2, 1, "k0")
    gone = socket.message()
    assert (gone["type"], gone["key"], gone["query"]) == ("gone", f"{rows.tag}-k0", query)
    assert gone["position"].split(".")[:2] == messages[-1]["position"].split(".")[:2]
    socket.send(type="unsubscribe", id="a")
    assert socket.message() == {"type": "unsubscribed", "id": "a"}
    socket.send(type="subscribe", id="b", view=rows.log.view, where=rows.big, position=messages[-1]["position"])
    assert [one["type"] for one in socket.messages("ready")] == ["subscribed", "gone", "ready"]
    socket.send(type="subscribe", id="c", view=rows.log.view, where="no_such_column = 1")
    refused = socket.message()
    assert (refused["type"], refused["id"], refused["retry"]) == ("error", "c", False) and "columns" in str(refused)


def test_rows_and_keys_that_are_not_utf_8_leave_a_websocket_open(gateway: QueryGateway, rows: Rows) -> None:
    where = f"s like '{rows.tag}%' and n = 9"
    key, value = f"{rows.tag}-".encode() + b"\xff", b'{"n":9,"s":"%b\xed\xa0\x80"}' % rows.tag.encode()
    socket = gateway.socket()
    socket.send(type="subscribe", id="a", view=rows.log.view, where=where)
    assert [one["type"] for one in socket.messages("ready")] == ["subscribed", "ready"]
    rows.log.put_many([(key, 1, value)])
    found = socket.message()
    assert (found["type"], found["key"]) == ("row", f"{rows.tag}-\ufffd")
    assert found["row"] == {"n": 9, "s": f"{rows.tag}\ufffd\ufffd\ufffd"}
    rows.log.put_many([(key, 2, b'{"n":9,"s":"%b"}' % rows.tag.encode())])
    assert socket.message()["row"] == {"n": 9, "s": rows.tag}
    events = gateway.query(where).tap
    assert [events.frame().event, events.frame().event] == ["row", "ready"]
    rows.log.put_many([(key, 3, None)])
    gone = socket.message()
    assert (gone["type"], gone["key"]) == ("gone", f"{rows.tag}-\ufffd")
    assert events.frame().data == {"k": f"{rows.tag}-\ufffd"}


def test_a_link_that_was_killed_loses_nothing_and_resets_nobody(
    gateway: QueryGateway, rows: Rows, redis_server: RedisServer
) -> None:
    copy, clock = gateway.query(rows.big), gateway.query(f"{rows.big} and (t is null or t < now())")
    for one in (copy, clock):
        one.ready()
        one.until(rows.keys(*KEYS))
    client = redis.Redis.from_url(redis_server.url)
    for version in range(2, 6):
        client.client_kill_filter(_type="pubsub")
        rows.put(version, version * 2, *KEYS[3:])
        rows.put(version, version % 2 * 5, *KEYS[:3])
    for one in (copy, clock):
        one.until(rows.keys(*KEYS), lambda held: {row["n"] for row in held.values()} == {5, 10})
        assert one.resets == []


def test_a_client_that_does_not_read_gets_the_newest_rows_when_it_does(gateway: QueryGateway, rows: Rows) -> None:
    slow, other = gateway.query(rows.big, buffer=4096), gateway.query(rows.big)
    for one in (slow, other):
        one.ready()
        one.until(rows.keys(*KEYS))
    filler = "x" * 20_000
    for version in range(2, 60):
        rows.put(version, version + 1, *KEYS[2:], note=filler)
    rows.put(60, 1, "k0")
    rows.put(60, 61, *KEYS[2:])
    for one in (other, slow):
        one.until(rows.keys(*KEYS[1:]), lambda held: {row["n"] for row in held.values()} == {3, 61})
        assert one.resets == []
    seen = len([frame for frame in slow.seen if frame.event == "row"])
    assert seen < 58 * 10, "it was spared some"


def test_a_query_that_nobody_follows_any_more_leaves_nothing_behind(
    gateway: QueryGateway, rows: Rows, redis_server: RedisServer
) -> None:
    client = redis.Redis.from_url(redis_server.url)
    copy = gateway.query(rows.big)
    copy.ready()
    copy.close()
    eventually(lambda: gateway.metric("tailrace_gateway_queries") == 0, "no query is followed")
    eventually(lambda: not any(client.scan_iter(f"{rows.log.prefix}:*:matches:*", count=1000)), "no member is kept")
    assert client.pubsub_channels(f"{rows.log.prefix}:*queries*") == []


texts = st.text(alphabet="ns tk=<>'()andorinlike%_0129.\"\\\u20ac", max_size=60) | st.text(max_size=40)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(where=texts)
def test_a_text_that_is_no_query_is_refused_with_what_was_expected(gateway: QueryGateway, where: str) -> None:
    tap = gateway.query(where).tap
    assert tap.status in (200, 400)
    if tap.status == 400:
        assert {"error", "expected", "got", "remedy"} <= tap.json().keys()
    tap.close()


def test_a_gateway_without_kafka_serves_keys_and_says_what_is_missing(
    streams: Streams, redis_server: RedisServer, rows: Rows, tmp_path_factory: pytest.TempPathFactory
) -> None:
    directory = tmp_path_factory.mktemp("alone")
    alone = QueryGateway(directory, streams, redis_server.url, kafka="none")
    away = QueryGateway(directory, streams, redis_server.url, kafka="127.0.0.1:9")
    try:
        for gateway, status, text in ((alone, 501, "--kafka"), (away, 503, "Kafka is unavailable")):
            gateway.wait_ready()
            answer = gateway.get(f"/views/{streams.log.view}/events?where=n=1")
            assert answer.status_code == status and text in answer.text
            found = gateway.get(f"/views/{streams.log.view}/{rows.tag}-k0")
            assert found.status_code == 200 and found.json()["n"] == 3
        assert away.get(f"/views/{streams.log.view}/events?where=n=1").headers["Retry-After"] == "1"
    finally:
        alone.close()
        away.close()


def test_without_the_commands_topic_a_query_says_who_makes_it(
    broker: Broker, redis_server: RedisServer, fresh: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    streams = Streams(broker, fresh, topic=False)
    with running(streams.log, redis_server.url) as materializer:
        ready(materializer)
        gateway = QueryGateway(tmp_path_factory.mktemp("early"), streams, redis_server.url)
        gateway.wait_ready()
        answer = gateway.get(f"/views/{streams.log.view}/events")
        assert answer.status_code == 503 and "the pipeline creates it" in answer.text
        streams.make_topic()
        copy = gateway.query()
        copy.ready()
        gateway.close()

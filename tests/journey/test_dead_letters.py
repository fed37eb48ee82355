"""Every record that can't be used is kept byte for byte, with where from and why; inputs = processed + dead letters."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from confluent_kafka import Message, Producer

from oracle import changelog, read_topic
from running import Tailrace, eventually
from tailrace.dev.broker import Broker
from tailrace.dev.redis_server import RedisServer
from tailrace.kafka.brokers import Brokers
from tailrace.kafka.topics import Topics

MODULE = """
from tailrace import App

app = App("movies-{fresh}")
ratings = app.topic("ratings-{fresh}", value="movie_id long, rating double", expect="rating between 0 and 10")
app.view("averages-{fresh}", ratings, key="movie_id", columns={{"ratings": "count(*)"}})
named = ratings.with_columns(client="_key").where("rating >= 0")
app.view("by-client-{fresh}", named, key="client", columns={{"ratings": "count(*)"}})
movies = app.table("movies-{fresh}", key="movie_id", key_format="long", value="title string")
app.latest("titles-{fresh}", movies)
"""


@pytest.fixture
def movies(tmp_path: Path, broker: Broker, redis_server: RedisServer, fresh: str) -> Iterator[Tailrace]:
    app = Tailrace(tmp_path / "app", broker, redis_server, fresh, MODULE.format(fresh=fresh))
    yield app
    app.stop()


def headers_of(message: Message) -> dict[str, bytes]:
    return {name: value or b"" for name, value in cast(list[tuple[str, bytes | None]], message.headers())}


def test_inputs_are_processed_or_dead_letters_and_nothing_is_touched(movies: Tailrace, fresh: str) -> None:
    movies.start_pipeline()
    movies.wait_ready("pipeline")
    chance = random.Random(11)
    good = by_client = 0
    bad: list[tuple[str, bytes | None, bytes | None, str]] = []
    for number in range(300):
        key = b"\xff\x00%d" % number if number % 5 == 0 else b"ann"
        kind = chance.choice(["good", "good", "good", "malformed", "null-value", "broken-rule", "no-key"])
        value = {
            "good": b'{"movie_id":%d,"rating":%d}' % (number % 7, number % 11),
            "malformed": bytes(chance.randrange(256) for _ in range(chance.randrange(40))) + b"\xff",
            "null-value": None,
            "broken-rule": b'{"movie_id":1,"rating":11}',
            "no-key": b'{"rating":7}',
        }[kind]
        headers = {"trace": b"\x00\xfe%d" % number, "": b""}
        movies.produce(value, key=key, headers=headers)
        good += kind == "good"
        by_client += kind in ("good", "no-key") and key == b"ann"
        if kind != "good":
            bad.append((kind, key, value, f"trace {number}"))
        elif key != b"ann":
            # Its key is no text: the view by client has no use for it, the other one has.
            bad.append(("no-key", key, value, f"trace {number}"))
    movies.produce(b'{"title":"Ran"}', key=b"short", topic=f"movies-{fresh}")

    def letters() -> list[tuple[str, bytes | None, bytes | None, str]]:
        found: list[tuple[str, bytes | None, bytes | None, str]] = []
        for message in read_topic(movies.broker.address, f"{movies.topic}.dead-letters"):
            headers = headers_of(message)
            trace = headers["trace"]
            assert trace.startswith(b"\x00\xfe") and headers[""] == b""
            reason = headers["tailrace.error"].decode().partition(":")[0]
            key, value = cast(bytes, message.key()), message.value()
            found.append((reason, key, value, f"trace {trace[2:].decode()}"))
        return found

    eventually(lambda: len(letters()) >= len(bad), f"{len(bad)} dead letters")
    assert sorted(letters(), key=lambda letter: letter[3]) == sorted(bad, key=lambda letter: letter[3])

    def counted(view: str) -> int:
        rows = changelog(movies.broker.address, f"{view}-{fresh}").values()
        return sum(max(rows, key=lambda row: row.version).row["ratings"] for rows in rows)  # type: ignore[index]

    eventually(lambda: counted("averages") == good, "every good record is processed")
    eventually(lambda: counted("by-client") == by_client, "every good record with a text as its key is processed")

    # Where from and why.
    (letter,) = (m for m in read_topic(movies.broker.address, f"{movies.topic}.dead-letters") if m.value() == bad[0][2])
    told = {name: value.decode(errors="replace") for name, value in headers_of(letter).items()}
    assert told["tailrace.topic"] == movies.topic and int(told["tailrace.timestamp"]) > 0
    source = {(m.partition(), m.offset()): m.value() for m in read_topic(movies.broker.address, movies.topic)}
    assert source[int(told["tailrace.partition"]), int(told["tailrace.offset"])] == letter.value()

    topic = f"movies-{fresh}.dead-letters"
    eventually(lambda: len(read_topic(movies.broker.address, topic)) == 1, "the row of a table without a usable key")

    def metric() -> dict[str, float]:
        name = f'topic="{movies.topic}"'
        found = movies.metrics("pipeline").items()
        return {sample: value for sample, value in found if "tailrace_dead_letters_total" in sample and name in sample}

    eventually(lambda: sum(metric().values()) == len(bad), "the metrics count every dead letter")


LONG = """
from tailrace import App

app = App("movies-{fresh}")
notes = app.topic("ratings-{fresh}", value="client string, text string")
app.latest("last-{fresh}", notes, key="client")
app.latest("last-in-batches-{fresh}", notes, key="client", mode="micro-batch")
app.view("counts-{fresh}", notes, key="client", columns={{"notes": "count(*)"}})
app.feed("notes-{fresh}", notes, key="client")
"""


def test_a_record_that_is_too_long_for_a_row_a_key_or_a_letter_delays_no_other(
    tmp_path: Path, broker: Broker, redis_server: RedisServer, fresh: str
) -> None:
    app = Tailrace(tmp_path / "app", broker, redis_server, fresh, LONG.format(fresh=fresh))
    topics = Topics(Brokers(broker.address))
    topics.create(app.topic, partitions=1, replication=1, config={"max.message.bytes": "40000000"})
    # One that its owner has made, and that takes less than the longest of the records.
    letters = f"{app.topic}.dead-letters"
    topics.create(letters, partitions=1, replication=1, config={"max.message.bytes": "12000000"})
    producer = Producer({"bootstrap.servers": broker.address, "message.max.bytes": 40_000_000})

    def note(client: str, text: str) -> bytes:
        return json.dumps({"client": client, "text": text}).encode()

    def rows(name: str) -> dict[str, list[Any]]:
        found = changelog(broker.address, f"{name}-{fresh}")
        return {key: [one.row and one.row["text"] for one in of] for key, of in found.items()}

    def headers(topic: str) -> list[dict[str, bytes]]:
        return [headers_of(message) for message in read_topic(broker.address, topic)]

    try:
        app.start_pipeline()
        app.start_materializer()
        app.wait_ready("pipeline")
        malformed = b"{" + b"x" * 9_000_000
        for value in (
            note("ann", "first"),
            note("ann", "x" * 9_000_000),
            # The views hold more copies of this one than the usual heap has room for.
            note("eve", '"' + "x" * 38_000_000),
            malformed,
            b"{" + b"y" * 20_000_000,
            note("k" * 70_000, "a key that nobody can ask for"),
            note("bob", "last"),
        ):
            producer.produce(app.topic, value)
        assert producer.flush(60) == 0
        for name in ("last", "last-in-batches", "notes"):
            eventually(lambda name=name: rows(name).get("bob") == ["last"], f"what comes after them, in {name}")  # type: ignore[misc]
            # The long ones may take longer than what comes after them.
            eventually(lambda name=name: rows(name).keys() == {"ann", "bob", "eve"}, f"a row of each, in {name}")  # type: ignore[misc]
            assert rows(name)["ann"][-1] is None and rows(name)["eve"] == [None]
        assert rows("last")["ann"] == rows("notes")["ann"] == ["first", None]

        def counts() -> dict[str, int]:
            found = changelog(broker.address, f"counts-{fresh}")
            return {key: of[-1].row["notes"] for key, of in found.items() if of[-1].row}

        eventually(lambda: counts() == {"ann": 2, "bob": 1, "eve": 1}, "each is counted once")

        eventually(lambda: len(headers(letters)) == 3, "both that are malformed, and the one with the long key")
        found = read_topic(broker.address, letters)
        assert [message.value() for message in found][:2] == [malformed, None]
        errors = [headers["tailrace.error"].decode() for headers in headers(letters)]
        assert [error.partition(":")[0] for error in errors] == ["malformed", "malformed", "no-key"]
        assert "longer than this topic takes" in errors[1] and "longer" not in errors[0]
        for name in ("last", "last-in-batches", "notes"):
            topic = f"{name}-{fresh}.dead-letters"
            eventually(lambda topic=topic: bool(topics.describe([topic])), f"{topic}")  # type: ignore[misc]
            eventually(lambda topic=topic: len(headers(topic)) == 2, "those of the rows that are too long")  # type: ignore[misc]
            for letter, size in zip(headers(topic), (9_000_000, 38_000_000), strict=True):
                assert "bytes with its key: it is left out" in letter["tailrace.error"].decode()
                assert (int(letter["o"]), int(letter["v"])) > (size, 0)
        restarts = [value for name, value in app.metrics("pipeline").items() if "pipeline_restarts_total" in name]
        assert len(restarts) == 4 and not any(restarts)
    finally:
        app.stop()

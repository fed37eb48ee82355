"""Every record that can't be used is kept byte for byte, with where from and why; inputs = processed + dead letters."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest
from confluent_kafka import Message

from oracle import changelog, read_topic
from running import Tailrace, eventually
from tailrace.dev.broker import Broker
from tailrace.dev.redis_server import RedisServer

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

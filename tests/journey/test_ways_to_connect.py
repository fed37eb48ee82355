"""Every way to connect to Kafka, by every process, as `--kafka-config` says it.

- By the ways of `WHOLE`: pipeline, materializer, gateway, `tailrace status`, both of Spark's sinks, and what lag tools
  see. Here.
- By the others: materializer, gateway, `tailrace status`. Here.
- By all, in the names of either client: Spark's source and sink, every client of Kafka in Python, and commits of
  offsets. In tests/service/kafka/test_ways_to_connect.py.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from running import Tailrace, eventually
from secured_kafka import WAYS, Secured
from sse import Follower
from tailrace.dev.redis_server import RedisServer
from tailrace.kafka.brokers import Brokers
from tailrace.kafka.groups import Group
from tailrace.kafka.topics import Topics

# A view in real time, and one in micro-batches, which has a sink of its own.
MODULE = """
from tailrace import App

app = App("movies-{fresh}")
ratings = app.topic("ratings-{fresh}", value="movie_id long, rating double")
columns = {{"ratings": "count(*)"}}
app.view("rating-averages-{fresh}", ratings, key="movie_id", columns=columns)
app.view("batches-{fresh}", ratings, key="movie_id", columns=columns, mode="micro-batch")
"""
# The ways that differ most, some in the names of Java's clients and some in librdkafka's.
WHOLE = {
    ("MUTUAL", ""): True,
    ("BOTH", "SCRAM-SHA-512"): False,
    ("BOTH", "OAUTHBEARER"): True,
}
# `tailrace dev --secure` connects so, and has its own test.
LOCKED = pytest.param(
    ("BOTH", "SCRAM-SHA-512"), marks=pytest.mark.campaign("the ordinary run has it in test_secure.py")
)
OTHERS = [way for way in WAYS if way not in WHOLE]


def named(way: tuple[str, str]) -> str:
    return "-".join(part for part in way if part)


def told(app: Tailrace, *flags: str) -> dict[str, dict[str, Any]]:
    """What `tailrace status` says of each view."""
    command = [sys.executable, "-m", "tailrace", "status", app.app, *app.kafka_flags, "--redis", app.redis.url]
    said = subprocess.run([*command, "--json", *flags], capture_output=True, text=True, check=False)
    assert said.returncode == 0, said.stderr
    return {view["view"]: view for view in json.loads(said.stdout)["views"]}


def count(app: Tailrace, movie: int, view: str) -> int:
    return int((app.row(movie, view) or {"ratings": 0})["ratings"])


def follow_query(app: Tailrace, ratings: int) -> Follower:
    """A client that is told of movies with so many ratings; the gateway asks materializers by Kafka."""
    return Follower(f"{app.url}/views/{app.view}/events?where={quote(f'ratings = {ratings}')}")


def lag(brokers: Brokers, group: str, topic: str) -> int | None:
    """What a lag tool shows; None while the group has not told where it is."""
    partitions = {topic: Topics(brokers).describe([topic])[topic].partitions}
    looking = Group(brokers, group)
    try:
        found, bounds = looking.committed(partitions)[topic], looking.bounds(partitions)[topic]
    finally:
        looking.close()
    filled = {number: end for number, (first, end) in bounds.items() if end > first}
    return sum(end - found[number] for number, end in filled.items()) if filled.keys() <= found.keys() else None


@pytest.mark.parametrize("way", [("MUTUAL", ""), ("BOTH", "OAUTHBEARER"), LOCKED], ids=named)
def test_an_event_becomes_a_row_and_a_frame_of_a_query_and_lag_tools_see_it(
    secured: Secured, redis_server: RedisServer, tmp_path: Path, fresh: str, way: tuple[str, str]
) -> None:
    app = Tailrace(tmp_path / "app", secured.broker, redis_server, fresh, MODULE.format(fresh=fresh))
    app.kafka_config = secured.file(*way, java=WHOLE[way])
    brokers = Brokers(secured.broker.address)
    try:
        app.start_all()
        app.rate([(362, 8)])
        for view in (app.view, f"batches-{fresh}"):
            eventually(lambda view=view: count(app, 362, view) == 1, f"the row of {view}")  # type: ignore[misc]
        follower = follow_query(app, 2)
        follower.wait(lambda f: f.frames != [])
        app.rate([(362, 10)])
        follower.wait(lambda f: [row["ratings"] for row in f.rows] == [2])
        follower.close()
        for view in (app.view, f"batches-{fresh}"):
            eventually(lambda view=view: count(app, 362, view) == 2, f"the next row of {view}")  # type: ignore[misc]
            group = f"tailrace.{app.app}.{view}"
            eventually(lambda group=group: lag(brokers, group, app.topic) == 0, f"{group} has no lag")  # type: ignore[misc]
        own = f"tailrace.{app.app}.materializer"
        eventually(lambda: lag(brokers, own, app.view) == 0, "the materializer has no lag")
        eventually(lambda: all(view["behind"] == 0 for view in told(app).values()), "status shows no lag")
        assert app.health("gateway")["kafka"] == []
    finally:
        app.stop()


@pytest.fixture(scope="module")
def rows(secured: Secured, redis_server: RedisServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tailrace]:
    """An app whose pipeline runs, with a password; each test starts the other processes, with a prefix of their own."""
    app = Tailrace(tmp_path_factory.mktemp("ways") / "app", secured.broker, redis_server, "ways")
    app.kafka_config = secured.file("SASL", "PLAIN")
    app.start_pipeline()
    app.wait_ready("pipeline")
    yield app
    app.stop()


@pytest.mark.parametrize("way", OTHERS, ids=named)
def test_rows_reach_clients_by_materializer_and_gateway(
    secured: Secured, rows: Tailrace, fresh: str, way: tuple[str, str]
) -> None:
    movie = OTHERS.index(way)
    rows.rate([(movie, 8)])
    rows.kafka_config = secured.file(*way)
    try:
        rows.start_materializer("--prefix", fresh)
        rows.start_gateway("--prefix", fresh)
        rows.wait_ready("gateway")
        eventually(lambda: count(rows, movie, rows.view) == 1, "the row is restored")
        follower = follow_query(rows, 2)
        follower.wait(lambda f: f.frames != [])
        rows.rate([(movie, 10)])
        follower.wait(lambda f: [row["movie_id"] for row in f.rows][-1:] == [movie])
        follower.close()
        assert told(rows, "--prefix", fresh).keys() == {rows.view}
        assert rows.health("materializer")["reasons"] == rows.health("gateway")["kafka"] == []
    finally:
        for name in ("gateway", "materializer"):
            if name in rows.parts:
                rows.parts.pop(name).stop()

"""A feed from its topic to who follows it, through a changed definition, killed pipelines and a killed gateway."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from oracle import read_topic
from running import PATIENCE, Tailrace
from sse import Follower
from tailrace.contracts.catalog import APP_RECORD, Catalog
from tailrace.dev.broker import Broker
from tailrace.dev.redis_server import RedisServer
from tailrace.store.connection.servers import AsyncServers
from tailrace.store.layout.keys import default_prefix
from tailrace.store.read.reader import Reader

MODULE = """
from tailrace import App

app = App("movies-{fresh}")
ratings = app.topic("ratings-{fresh}", value="movie_id long, rating double", format="json")
app.feed("notes-{fresh}", ratings, key="movie_id", columns={{"rating": "rating"{more}}}, hold="1 hour")
"""
# No batch ends while the test runs: each start replays everything.
OPEN = ("--batch-interval", "10m")


@pytest.fixture
def notes(tmp_path: Path, broker: Broker, redis_server: RedisServer, fresh: str) -> Iterator[Tailrace]:
    app = Tailrace(tmp_path / "app", broker, redis_server, fresh, MODULE.format(fresh=fresh, more=""))
    yield app
    app.stop()


@pytest.fixture
def follow() -> Iterator[Callable[[str], Follower]]:
    started: list[Follower] = []

    def start(url: str) -> Follower:
        started.append(Follower(url))
        return started[-1]

    yield start
    for follower in started:
        follower.close()


async def catalog_of(notes: Tailrace) -> Catalog | None:
    servers = AsyncServers(notes.redis.url)
    found = (await Reader(servers, default_prefix(notes.app)).catalog()).get(APP_RECORD)
    await servers.close()
    return Catalog.decode(found) if found is not None else None


def test_a_client_gets_each_event_once_through_a_changed_definition_killed_pipelines_and_a_killed_gateway(
    notes: Tailrace, follow: Callable[[str], Follower], fresh: str
) -> None:
    feed = f"notes-{fresh}"

    def generation() -> int:
        catalog = asyncio.run(catalog_of(notes))
        return catalog.feeds[feed].generation if catalog is not None else 0

    def rate(*ratings: int) -> None:
        for n in ratings:
            notes.produce({"movie_id": 1, "rating": n}, {"movie_id": 2, "rating": n}, key=b"%d" % n)

    def heard(follower: Follower) -> list[float]:
        return sorted(event["rating"] for event in follower.events)

    notes.start_pipeline(*OPEN)
    notes.start_materializer()
    notes.start_gateway()
    for name in ("pipeline", "materializer", "gateway"):
        notes.wait_ready(name)
    assert generation() == 1
    client = follow(f"{notes.url}/feeds/{feed}/1/events")
    client.wait(lambda one: [frame.event for frame in one.frames] == ["ready"], PATIENCE)
    rate(*range(6))
    client.wait(lambda one: heard(one) == [0, 1, 2, 3, 4, 5], PATIENCE)

    notes.kill("pipeline")
    notes.kill("gateway")
    (notes.directory / "movies.py").write_text(MODULE.format(fresh=fresh, more=', "twice": "rating * 2"'))
    notes.start_pipeline(*OPEN)
    # Fails with the end of the log where the pipeline dies instead.
    notes.parts["pipeline"].wait(lambda: generation() == 2, PATIENCE)
    notes.kill("pipeline")
    notes.start_pipeline(*OPEN)
    notes.wait_ready("pipeline")
    rate(6)
    notes.start_gateway()
    client.wait(lambda one: heard(one) == [0, 1, 2, 3, 4, 5, 6], PATIENCE)
    rate(7)
    client.wait(lambda one: heard(one) == [0, 1, 2, 3, 4, 5, 6, 7], PATIENCE)
    assert client.connections > 1 and "reset" not in [frame.event for frame in client.frames]
    assert [event.get("twice") for event in client.events if event["rating"] == 7] == [14]

    written = read_topic(notes.broker.address, feed)
    assert len([message for message in written if message.key() == b"1"]) > 8, "there was something to repeat"
    assert len({dict(message.headers() or [])["s"] for message in written}) == 1
    command = [sys.executable, "-m", "tailrace", "status", notes.app, "--json"]
    command += ["--kafka", notes.broker.address, "--redis", notes.redis.url]
    (told,) = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)["views"]
    assert (told["view"], told["store_behind"]) == (feed, 0)


def test_a_feed_is_reset_and_sends_its_events_again(
    notes: Tailrace, follow: Callable[[str], Follower], fresh: str
) -> None:
    feed = f"notes-{fresh}"
    notes.start_all()
    client = follow(f"{notes.url}/feeds/{feed}/1/events")
    client.wait(lambda one: [frame.event for frame in one.frames] == ["ready"], PATIENCE)

    def heard() -> list[float]:
        return [event["rating"] for event in client.events]

    for n in range(3):
        notes.produce({"movie_id": 1, "rating": n}, key=b"1")
    client.wait(lambda _: heard() == [0, 1, 2], PATIENCE)
    line = [sys.executable, "-m", "tailrace", "reset", notes.app, feed, "--to-earliest"]
    told = subprocess.run([*line, "--kafka", notes.broker.address], capture_output=True, text=True, check=True).stdout
    assert f"feed {feed}: sends its events again from earliest, 3 records" in told, told
    assert "nothing was done" in told
    subprocess.run([*line, "--execute", "--kafka", notes.broker.address], capture_output=True, check=True)
    client.wait(lambda _: heard() == [0, 1, 2, 0, 1, 2], PATIENCE)
    # It was done once: a restart sends nothing again, and what comes goes on.
    notes.kill("pipeline")
    notes.start_pipeline()
    notes.produce({"movie_id": 1, "rating": 3}, key=b"1")
    client.wait(lambda _: heard() == [0, 1, 2, 0, 1, 2, 3], PATIENCE)
    assert "reset" not in [frame.event for frame in client.frames]

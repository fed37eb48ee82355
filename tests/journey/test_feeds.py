"""A feed from its topic to who listens, through a changed definition and pipelines that are killed."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from oracle import read_topic
from running import PATIENCE, Tailrace, eventually
from tailrace.catalog import APP_RECORD, Catalog
from tailrace.dev.broker import Broker
from tailrace.dev.redis_server import RedisServer
from tailrace.partitions import partition_of
from tailrace.store.feeds import FeedPlace
from tailrace.store.keys import default_prefix
from tailrace.store.listening import Listening
from tailrace.store.reader import Reader

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


async def catalog_of(notes: Tailrace) -> Catalog | None:
    reader = Reader(notes.redis.url, default_prefix(notes.app))
    found = (await reader.catalog()).get(APP_RECORD)
    await reader.close()
    return Catalog.decode(found) if found is not None else None


async def events(notes: Tailrace, feed: str, client: bytes) -> list[float]:
    """Registers the client, and reads the ratings that are kept for it."""
    catalog = await catalog_of(notes)
    if catalog is None:
        return []
    entry = catalog.feeds[feed]
    place = FeedPlace(entry, partition_of(client, entry.partitions), catalog.lineage(entry))
    listening = Listening(notes.redis.url, default_prefix(notes.app), "test", lease=3600)
    await listening.listen(place, client)
    page = await listening.events(place, client, -1)
    await listening.close()
    return [] if page is None else [json.loads(row.value or b"")["rating"] for row in page.events]


def test_a_listener_gets_each_event_once_through_a_changed_definition_and_killed_pipelines(
    notes: Tailrace, fresh: str
) -> None:
    feed = f"notes-{fresh}"

    def generation() -> int:
        catalog = asyncio.run(catalog_of(notes))
        return catalog.feeds[feed].generation if catalog is not None else 0

    def rate(*ratings: int) -> None:
        for n in ratings:
            notes.produce({"movie_id": 1, "rating": n}, {"movie_id": 2, "rating": n}, key=b"%d" % n)

    def heard() -> list[float]:
        return sorted(asyncio.run(events(notes, feed, b"1")))

    notes.start_pipeline(*OPEN)
    notes.start_materializer()
    for name in ("pipeline", "materializer"):
        notes.wait_ready(name)
    eventually(lambda: generation() == 1 and heard() == [], "it listens")
    rate(*range(6))
    eventually(lambda: heard() == [0, 1, 2, 3, 4, 5], "the first events")

    notes.kill("pipeline")
    (notes.directory / "movies.py").write_text(MODULE.format(fresh=fresh, more=', "twice": "rating * 2"'))
    notes.start_pipeline(*OPEN)
    # Fails with the end of the log where the pipeline dies instead.
    notes.parts["pipeline"].wait(lambda: generation() == 2, PATIENCE)
    notes.kill("pipeline")
    notes.start_pipeline(*OPEN)
    notes.wait_ready("pipeline")
    rate(6, 7)
    eventually(lambda: heard() == [0, 1, 2, 3, 4, 5, 6, 7], "each event once")

    written = read_topic(notes.broker.address, feed)
    assert len([message for message in written if message.key() == b"1"]) > 8, "there was something to repeat"
    assert len({dict(message.headers() or [])["s"] for message in written}) == 1
    command = [sys.executable, "-m", "tailrace", "status", notes.app, "--json"]
    command += ["--kafka", notes.broker.address, "--redis", notes.redis.url]
    (told,) = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)["views"]
    assert (told["view"], told["store_behind"]) == (feed, 0)

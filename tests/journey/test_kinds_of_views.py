"""Every kind of view and feed in real time, from a record to the changelog and to a client's row."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from oracle import changelog, read_topic
from running import Tailrace, eventually
from tailrace.dev.broker import Broker
from tailrace.dev.redis_server import RedisServer

MODULE = """
from tailrace import App
from pyspark.sql import functions as F

app = App("movies-{fresh}")
ratings = app.topic(
    "ratings-{fresh}", value="movie_id long, rating double, at timestamp", expect="rating between 0 and 10"
)
movies = app.table("movies-{fresh}", key="movie_id", key_format="string", value="title string, year int")

averages = app.view(
    "averages-{fresh}", ratings, key="movie_id", columns=lambda: {{"rating": F.avg("rating"), "n": F.count("*")}}
)
app.view(
    "per-minute-{fresh}", ratings, key="movie_id", window="1 minute", at="at", late="1 hour",
    columns={{"n": "count(*)"}},
)
app.latest("last-{fresh}", ratings.with_columns(client="_key"), key="client", columns={{"rating": "rating"}})
app.latest("last-of-movie-{fresh}", ratings, key="movie_id", columns={{"rating": "rating"}})
app.latest("recent-{fresh}", movies.where("year >= 2000"))
good = app.latest("good-{fresh}", averages.where("rating >= 7").with_columns(id="cast(movie_id as string)"))
texts = app.table("scores-{fresh}", key="movie_id", value="score double")
scored = {{"title": "movie.title", "score": "score.score"}}
app.join("scored-{fresh}", {{"movie": movies, "score": texts}}, columns=scored)
app.join("all-{fresh}", {{"movie": movies, "score": texts}}, how="outer", mode="micro-batch")
app.view(
    "words-{fresh}", app.topic("titles-{fresh}", value="title string", format="string"), key="word",
    transform=lambda frame: frame.withColumn("word", F.explode(F.split("title", " "))), columns={{"n": "count(*)"}},
)
app.feed("notes-{fresh}", ratings.where("rating > 5"), key="movie_id", columns={{"rating": "rating"}})
"""


@pytest.fixture
def kinds(tmp_path: Path, broker: Broker, redis_server: RedisServer, fresh: str) -> Iterator[Tailrace]:
    app = Tailrace(tmp_path / "app", broker, redis_server, fresh, MODULE.format(fresh=fresh))
    yield app
    app.stop()


def test_every_kind_of_view_follows_its_topics(kinds: Tailrace, fresh: str) -> None:
    kinds.start_all()

    def row(view: str, key: object) -> object:
        return kinds.row(key, f"{view}-{fresh}")

    def wait(view: str, key: object, expected: object) -> None:
        eventually(lambda: row(view, key) == expected, f"{view} {key}: {expected}, not {row(view, key)}")

    at = "2026-01-01T10:00:30Z"
    kinds.produce({"movie_id": 1, "rating": 8, "at": at}, key=b"ann")
    kinds.produce({"movie_id": 1, "rating": 6, "at": at}, {"movie_id": 2, "rating": 3, "at": at}, key=b"bob")
    wait("averages", 1, {"movie_id": 1, "rating": 7.0, "n": 2})
    start, end = "2026-01-01T10:00:00.000Z", "2026-01-01T10:01:00.000Z"
    wait("per-minute", f'[1,"{start}"]', {"movie_id": 1, "window_start": start, "window_end": end, "n": 2})
    wait("last", "ann", {"client": "ann", "rating": 8.0})
    wait("last", "bob", {"client": "bob", "rating": 3.0})
    eventually(lambda: row("last-of-movie", 1) in [{"movie_id": 1, "rating": r} for r in (8.0, 6.0)], "a last rating")
    wait("good", 1, {"movie_id": 1, "rating": 7.0, "n": 2, "id": "1"})
    assert row("good", 2) is None

    # A row that stops meeting the condition is gone.
    kinds.produce({"movie_id": 1, "rating": 1, "at": at}, key=b"ann")
    wait("averages", 1, {"movie_id": 1, "rating": 5.0, "n": 3})
    wait("good", 1, None)
    wait("last", "ann", {"client": "ann", "rating": 1.0})

    movies, scores = f"movies-{fresh}", f"scores-{fresh}"
    kinds.produce({"title": "Ran", "year": 1985}, key=b"1", topic=movies)
    kinds.produce({"title": "Amélie", "year": 2001}, key=b"2", topic=movies)
    wait("recent", 2, {"movie_id": "2", "title": "Amélie", "year": 2001})
    assert row("recent", 1) is None and row("scored", 1) is None
    kinds.produce({"score": 9}, key=b"1", topic=scores)
    wait("scored", 1, {"movie_id": "1", "title": "Ran", "score": 9.0})
    wait("all", 1, {"movie_id": "1", "title": "Ran", "year": 1985, "score": 9.0})
    wait("all", 2, {"movie_id": "2", "title": "Amélie", "year": 2001, "score": None})
    # A tombstone on either side retracts the row; what comes again brings it back.
    kinds.produce(None, key=b"1", topic=movies)
    wait("scored", 1, None)
    wait("all", 1, {"movie_id": "1", "title": None, "year": None, "score": 9.0})
    kinds.produce({"title": "Ran!", "year": 1985}, key=b"1", topic=movies)
    wait("scored", 1, {"movie_id": "1", "title": "Ran!", "score": 9.0})
    kinds.produce(None, key=b"1", topic=scores)
    wait("scored", 1, None)
    kinds.produce(None, key=b"2", topic=movies)
    wait("recent", 2, None)
    wait("all", 2, None)

    kinds.produce("the wind the sea", topic=f"titles-{fresh}")
    wait("words", "the", {"word": "the", "n": 2})

    notes = [(m.key(), json.loads(m.value() or b"")) for m in read_topic(kinds.broker.address, f"notes-{fresh}")]
    assert sorted(notes, key=str) == [
        (b"1", {"movie_id": 1, "rating": 6.0}),
        (b"1", {"movie_id": 1, "rating": 8.0}),
    ]
    # A key that never had a row has no tombstone.
    assert set(changelog(kinds.broker.address, f"scored-{fresh}")) == {"1"}

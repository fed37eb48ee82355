"""From a client's event to its own row: written through the gateway, computed by the pipeline, read by the writer."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from running import Tailrace
from tailrace.dev.broker import Broker
from tailrace.dev.redis_server import RedisServer

FILM = {
    "type": "record",
    "name": "Film",
    "fields": [
        {"name": "title", "type": "string"},
        {"name": "price", "type": ["null", {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2}]},
        {"name": "seen", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    ],
}
MODULE = """
from tailrace import App

app = App("movies-{fresh}")
ratings = app.topic(
    "ratings-{fresh}", value="movie_id long, rating double, at timestamp", accept=True
).dedupe(header="idempotency-key")
movies = app.table("movies-{fresh}", key="movie_id", key_format="long", value="title string", accept=True)
films = app.table(
    "films-{fresh}", key="film_id", key_format="avro", key_schema='"long"', format="avro", schema='{film}', accept=True
)
closed = app.topic("closed-{fresh}", value="n long")
averages = app.view("averages-{fresh}", ratings, key="movie_id", columns={{"rating": "avg(rating)"}})
titles = app.latest("titles-{fresh}", movies)
prices = app.latest("prices-{fresh}", films)
others = app.view("others-{fresh}", closed, key="n", columns={{"count": "count(*)"}})
"""


@pytest.fixture
def live(tmp_path: Path, broker: Broker, redis_server: RedisServer, fresh: str) -> Iterator[Tailrace]:
    app = Tailrace(tmp_path / "app", broker, redis_server, fresh, MODULE.format(fresh=fresh, film=json.dumps(FILM)))
    app.start_all()
    yield app
    app.stop()


def test_a_client_writes_an_event_and_reads_what_the_views_have_made_of_it(live: Tailrace, fresh: str) -> None:
    """One journey, because Spark takes seconds to start: each block is a promise of its own."""

    def write(topic: str, body: object, **headers: str) -> httpx.Response:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return httpx.post(f"{live.url}/topics/{topic}-{fresh}/events", json=body, headers=named, timeout=30)

    def read(view: str, key: int, topic: str, at: dict[str, int]) -> httpx.Response:
        record = f"{topic}-{fresh}:{at['partition']}:{at['offset']}"
        url = f"{live.url}/views/{view}-{fresh}/{key}"
        return httpx.get(url, params={"at_least": record}, headers={"Prefer": "wait=60"}, timeout=90)

    # A view of a table tells by its row, also that the row is gone.
    written = write("movies", {"movie_id": 362, "title": "Ran"})
    assert written.status_code == 202, written.text
    assert read("titles", 362, "movies", written.json()["records"][0]).json() == {"movie_id": 362, "title": "Ran"}
    gone = httpx.post(
        f"{live.url}/topics/movies-{fresh}/events",
        params={"key": "362"},
        content=b"null",
        headers={"Content-Type": "application/json"},
    )
    assert read("titles", 362, "movies", gone.json()["records"][0]).status_code == 404

    # An aggregate tells at the end of a batch. What was sent twice counts once.
    rated = {"movie_id": 7, "rating": 9, "at": "2026-01-31T09:30:00Z"}
    for _ in range(2):
        last = write("ratings", [rated, {"movie_id": 7, "rating": 8}], Idempotency_Key="once").json()["records"]
    found = read("averages", 7, "ratings", last[-1])
    assert found.status_code == 200, found.text
    assert found.json() == {"movie_id": 7, "rating": 8.5}

    # Avro is JSON for the client, and its values are the same for the view.
    film = {"film_id": 3, "title": "Ran", "price": 12.50, "seen": "2026-01-31T09:30:00Z"}
    written = write("films", film)
    assert written.status_code == 202, written.text
    found = read("prices", 3, "films", written.json()["records"][0])
    assert found.status_code == 200, found.text
    assert found.json() == {**film, "seen": "2026-01-31T09:30:00.000Z"}

    # Schemas come from the module; topics that are not declared for it take nothing.
    wrong = write("ratings", {"movie_id": 7, "at": "yesterday"})
    assert (wrong.status_code, wrong.json()["problems"][0]["where"]) == (422, "at")
    assert write("closed", {"n": 1}).status_code == 403

    # The documents name them all, with their types.
    document = httpx.get(f"{live.url}/openapi.json", timeout=30).json()
    assert f"/topics/closed-{fresh}/events" not in document["paths"]
    event = document["components"]["schemas"][f"ratings-{fresh}.event"]
    assert event["properties"]["at"]["format"] == "date-time"
    avro = document["components"]["schemas"][f"films-{fresh}.event"]
    assert avro["required"] == ["title", "seen"] and set(avro["properties"]) == set(film)
    assert document["components"]["schemas"][f"averages-{fresh}.row"]["required"] == ["movie_id"]

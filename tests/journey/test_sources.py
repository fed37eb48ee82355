"""Every way to read a topic, in real time: Avro, JSON with rules and headers, plain numbers, computed columns."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from running import Tailrace, eventually
from tailrace.dev.broker import Broker
from tailrace.dev.redis_server import RedisServer

MODULE = """
from tailrace import App

app = App("movies-{fresh}")

films = app.topic("films-{fresh}", format="avro", schema="rating.avsc")
app.view("by-film-{fresh}", films, key="movie_id", columns={{"rating": "avg(rating)", "ratings": "count(*)"}})

mixed = app.topic("mixed-{fresh}", value="movie_id long, rating double", expect="rating between 0 and 10")
liked = mixed.where("_headers['__TypeId__'] = 'rating'").with_columns(client="_key", liked="rating >= 7")
app.view("by-client-{fresh}", liked, key=["client", "liked"], columns={{"best": "max(rating)", "n": "count(*)"}})

steps = app.topic("steps-{fresh}", value="steps long", format="long")
steps = steps.with_columns(walker="_key", message="_headers['id']").dedupe(by="message")
app.view("walked-{fresh}", steps, key="walker", columns={{"steps": "sum(steps)"}})
"""

SCHEMA = """
{"type": "record", "name": "Rating", "fields": [
    {"name": "movie_id", "type": "long"}, {"name": "rating", "type": "double"}
]}
"""


def avro(movie: int, rating: float) -> bytes:
    """A rating as Avro writes it: a zigzag varint, then a little-endian double."""
    number, text = movie << 1 ^ movie >> 63, b""
    while number > 0x7F:
        text += bytes([number & 0x7F | 0x80])
        number >>= 7
    return text + bytes([number]) + struct.pack("<d", rating)


@pytest.fixture
def sources(tmp_path: Path, broker: Broker, redis_server: RedisServer, fresh: str) -> Iterator[Tailrace]:
    directory = tmp_path / "app"
    app = Tailrace(directory, broker, redis_server, fresh, MODULE.format(fresh=fresh))
    (directory / "rating.avsc").write_text(SCHEMA)
    yield app
    app.stop()


def test_every_kind_of_source_gives_its_rows_in_real_time(sources: Tailrace, fresh: str) -> None:
    sources.start_all()
    sources.produce(avro(362, 10), avro(362, 8), b"\xff\xff", avro(300, -0.5) + b"!", topic=f"films-{fresh}")
    view = f"by-film-{fresh}"
    nine = {"movie_id": 362, "rating": 9.0, "ratings": 2}
    eventually(lambda: sources.row(362, view) == nine, "the average over Avro records")
    assert sources.row(300, view) is None

    topic, typed = f"mixed-{fresh}", {"__TypeId__": b"rating"}
    sources.produce({"movie_id": 1, "rating": 8}, {"movie_id": 2, "rating": 3}, topic=topic, key=b"ann", headers=typed)
    sources.produce({"movie_id": 3, "rating": 9}, {"movie_id": 3, "rating": 99}, topic=topic, key=b"ann", headers=typed)
    sources.produce({"movie_id": 4, "rating": 10}, topic=topic, key=b"ann", headers={"__TypeId__": b"other"})
    view = f"by-client-{fresh}"
    best = {"client": "ann", "liked": True, "best": 9.0, "n": 2}
    eventually(lambda: sources.row('["ann",true]', view) == best, "a composite key from the record key and a column")
    eventually(lambda: (sources.row('["ann",false]', view) or {}).get("n") == 1, "the other half of the key")

    numbers = [struct.pack(">q", number) for number in (5, -7, 2**40)]
    for number, value in enumerate([*numbers, *numbers]):
        sources.produce(value, topic=f"steps-{fresh}", key=b"bob", headers={"id": b"%d" % (number % 3)})
    sources.produce(b"short", topic=f"steps-{fresh}", key=b"bob")
    total = {"walker": "bob", "steps": 2**40 - 2}
    eventually(lambda: sources.row("bob", f"walked-{fresh}") == total, "the sum of big-endian longs, each message once")

    def skipped(view: str, reason: str) -> float:
        return sources.metrics("pipeline").get(f'tailrace_skipped_total{{reason="{reason}",view="{view}-{fresh}"}}', 0)

    eventually(lambda: skipped("by-film", "malformed") == 2, "the Avro records that can't be read")
    eventually(lambda: skipped("by-client", "broken-rule") == 1, "the rating that breaks the rule")
    eventually(lambda: skipped("walked", "malformed") == 1, "the number that is too short")

"""Avro records whose schemas a registry keeps: new ids and compatible changes while the view runs, nothing lost."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from oracle import changelog, read_topic
from registry_server import RegistryServer
from running import Tailrace, eventually
from tailrace.dev.broker import Broker
from tailrace.dev.redis_server import RedisServer
from tailrace.kafka.brokers import Brokers
from tailrace.kafka.topics import Topics

MODULE = """
from tailrace import App

app = App("movies-{fresh}")
ratings = app.topic("ratings-{fresh}", format="avro", key_format="avro", registry=True, accept=True)
app.view("averages-{fresh}", ratings, key="movie_id", columns={{"rating": "avg(rating)", "ratings": "count(*)"}})
app.latest("last-{fresh}", ratings.with_columns(client="_key"), key="client")
"""


def schema(*more: dict[str, Any]) -> str:
    fields = [{"name": "movie_id", "type": "int"}, {"name": "rating", "type": "double"}, *more]
    return json.dumps({"type": "record", "name": "Rating", "fields": fields})


@pytest.fixture
def movies(tmp_path: Path, broker: Broker, redis_server: RedisServer, fresh: str) -> Iterator[Tailrace]:
    app = Tailrace(tmp_path / "app", broker, redis_server, fresh, MODULE.format(fresh=fresh))
    yield app
    app.stop()


@pytest.fixture
def client(registry: RegistryServer) -> Iterator[SchemaRegistryClient]:
    found = registry.client()
    yield found
    found.close()


def test_a_new_schema_id_is_picked_up_while_running_without_losing_a_record(
    movies: Tailrace, registry: RegistryServer, client: SchemaRegistryClient, fresh: str
) -> None:
    keys = AvroSerializer(client, '"string"')
    key = keys("ann", SerializationContext(movies.topic, MessageField.KEY))

    def rate(text: str, *ratings: dict[str, Any], subject: str | None = None) -> None:
        strategy = {"subject.name.strategy": lambda *_: subject} if subject is not None else None
        values = AvroSerializer(client, text, conf=strategy)
        for rating in ratings:
            encoded = values(rating, SerializationContext(movies.topic, MessageField.VALUE))
            assert encoded is not None
            movies.produce(encoded, key=key)

    Topics(Brokers(movies.broker.address)).create(movies.topic, partitions=2, replication=1, config={})
    first = schema({"name": "note", "type": "string", "default": ""})
    rate(first, {"movie_id": 1, "rating": 8.0, "note": "x"}, {"movie_id": 1, "rating": 6.0, "note": "y"})
    movies.start_pipeline("--registry", registry.url)
    movies.start_materializer()
    movies.start_gateway("--registry", registry.url)
    averages, last = f"averages-{fresh}", f"last-{fresh}"
    eventually(lambda: movies.row(1, averages) == {"movie_id": 1, "rating": 7.0, "ratings": 2}, "the first schema")
    eventually(lambda: (movies.row("ann", last) or {}).get("rating") == 6.0, "the key from the registry, too")

    # A field fewer and one more; and a wider type, from elsewhere: ids that did not exist when the query was started.
    second = schema({"name": "mood", "type": ["null", "string"], "default": None})
    rate(second, {"movie_id": 1, "rating": 1.0, "mood": "sad"})
    rate(schema().replace('"int"', '"long"'), {"movie_id": 2, "rating": 3.0}, subject=f"other-{fresh}")
    rate(first, {"movie_id": 1, "rating": 5.0, "note": "z"})
    eventually(lambda: movies.row(1, averages) == {"movie_id": 1, "rating": 5.0, "ratings": 4}, "the second schema")
    # A long does not fit into the reader's int: malformed, and nothing else stops.
    assert movies.row(2, averages) is None
    assert set(movies.row("ann", last) or {}) == {"client", "movie_id", "rating", "note"}

    # Ids that the registry does not have are looked up once, and their records are dead letters.
    movies.produce(b"\x00\x00\x0f\x42\x40rest", b"\x01no header", key=key)
    rate(second, {"movie_id": 3, "rating": 4.0, "mood": None})
    eventually(lambda: (movies.row(3, averages) or {}).get("ratings") == 1, "what follows an unknown id")
    eventually(
        lambda: len(read_topic(movies.broker.address, f"{movies.topic}.dead-letters")) == 3, "three dead letters"
    )
    written = changelog(movies.broker.address, averages)
    assert max(record.version for record in written["1"]) == 4

    # The newest schema has another field; a view stays with the one that it was built with.
    movies.parts.pop("pipeline").stop()
    movies.start_pipeline("--registry", registry.url)
    movies.wait_ready("pipeline")
    rate(first, {"movie_id": 1, "rating": 5.0, "note": "again"})
    eventually(lambda: (movies.row(1, averages) or {}).get("ratings") == 5, "the same state after a restart")
    eventually(lambda: (movies.row("ann", last) or {}).get("note") == "again", "the same columns after a restart")

    # What a client of the gateway writes is read as all others are: with the newest schema, which is another one.
    url = f"{movies.url}/topics/{movies.topic}/events"
    answer = httpx.post(url, json={"movie_id": 4, "rating": 2, "mood": "calm"}, params={"key": "bob"}, timeout=30)
    assert answer.status_code == 202, answer.text
    eventually(lambda: (movies.row(4, averages) or {}).get("rating") == 2.0, "an event of a client")
    eventually(lambda: (movies.row("bob", last) or {}).get("movie_id") == 4, "its key from the registry, too")

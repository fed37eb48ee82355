"""Events in, over a real Kafka: what clients may write, and what becomes of it."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from io import BytesIO
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest
from confluent_kafka import Consumer, Message, TopicPartition
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext
from fastavro import schemaless_reader

from gateway_process import GatewayProcess, Store, view
from registry_server import RegistryServer
from running import eventually
from tailrace.contracts.catalog import Catalog, CatalogTopic, Column
from tailrace.dev.broker import Broker
from tailrace.dev.redis_server import RedisServer
from tailrace.gateway.http.topics import LARGEST, RECORDS
from tailrace.kafka.brokers import Brokers
from tailrace.kafka.topics import Topics

COLUMNS = (Column("movie_id", "bigint"), Column("rating", "double"), Column("tags", "array<string>"))


AVRO = json.dumps(
    {
        "type": "record",
        "name": "Rating",
        "fields": [
            {"name": "movie_id", "type": "long"},
            {"name": "rating", "type": ["null", "double"], "default": None},
            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}, "default": 0},
        ],
    }
)


def topics(fresh: str) -> dict[str, CatalogTopic]:
    found = [
        CatalogTopic(f"ratings-{fresh}", "json", COLUMNS, key=(Column("", "string"),), accept=True),
        CatalogTopic(f"movies-{fresh}", "json", COLUMNS[1:], "long", (Column("", "bigint"),), ("movie_id",), True),
        CatalogTopic(f"texts-{fresh}", "string", (Column("text", "string"),), accept=True),
        CatalogTopic(f"longs-{fresh}", "long", (Column("n", "bigint"),), "double", accept=True),
        CatalogTopic(f"closed-{fresh}", "json", COLUMNS),
        CatalogTopic(f"old-{fresh}", "avro", COLUMNS, accept=True),
        CatalogTopic(f"avro-{fresh}", "avro", (), accept=True, schema=AVRO),
        *(CatalogTopic(f"{name}-{fresh}", "avro", (), accept=True, registry=True) for name in ("known", "none", "odd")),
        CatalogTopic(f"films-{fresh}", "avro", (), "avro", (), ("film_id",), True, registry=True),
    ]
    return {one.name: one for one in found}


@pytest.fixture(scope="module")
def fresh() -> str:
    return uuid4().hex[:10]


@pytest.fixture(scope="module")
def gateway(
    redis_server: RedisServer,
    broker: Broker,
    registry: RegistryServer,
    fresh: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[GatewayProcess]:
    admin = Topics(Brokers(broker.address))
    for name in topics(fresh):
        admin.create(name, partitions=2, replication=1, config={})
    directory = tmp_path_factory.mktemp("gateway")
    process = _gateway(redis_server, broker.address, fresh, directory, registry=registry.url)
    yield process
    process.close()


def _gateway(redis: RedisServer, kafka: str, fresh: str, directory: Path, **settings: str) -> GatewayProcess:
    store = Store(redis.url, fresh, view("averages"))
    store.catalog = Catalog(fresh, store.catalog.views, topics=topics(fresh))
    store.publish_catalog()
    store.begin()
    process = GatewayProcess(directory, redis.url, fresh, {"kafka": kafka, **settings})
    process.wait_ready()
    return process


@pytest.fixture
def post(gateway: GatewayProcess, fresh: str) -> Callable[..., httpx.Response]:
    """Sends a body to a topic."""

    def send(topic: str, body: Any, kind: str = "application/json", key: str | None = None, **headers: str) -> Any:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        named = {"Content-Type": kind, **{name.replace("_", "-"): value for name, value in headers.items()}}
        given = {"key": key} if key is not None else {}
        url = f"{gateway.url}/topics/{topic}-{fresh}/events"
        return httpx.post(url, content=content, params=given, headers=named, timeout=30)

    return send


@pytest.fixture
def record(broker: Broker) -> Iterator[Callable[[str, dict[str, int]], Message]]:
    """Reads the record that an answer names."""
    consumer = Consumer({"bootstrap.servers": broker.address, "group.id": "none", "enable.auto.commit": False})

    def read(topic: str, at: dict[str, int]) -> Message:
        consumer.assign([TopicPartition(topic, at["partition"], at["offset"])])
        found = consumer.poll(30)
        assert found is not None and found.error() is None and found.offset() == at["offset"]
        return found

    yield read
    consumer.close()


Post = Callable[..., httpx.Response]
Record = Callable[[str, dict[str, int]], Message]


def test_an_event_is_in_kafka_byte_for_byte_where_the_answer_says(post: Post, record: Record, fresh: str) -> None:
    body = b' { "movie_id" : 362, "rating": 9.00,  "tags":["\\u00fc", "\xc3\xbc"] }\n'
    answer = post("ratings", body)
    assert answer.status_code == 202, answer.text
    assert answer.json()["topic"] == f"ratings-{fresh}"
    found = record(f"ratings-{fresh}", answer.json()["records"][0])
    assert found.value() == body.strip() and found.key() is None and not found.headers()


def test_an_array_is_written_in_its_order(post: Post, record: Record, fresh: str) -> None:
    events = [{"movie_id": n, "rating": n / 2} for n in range(20)]
    answer = post("ratings", events, key="one key")
    assert answer.status_code == 202
    records = answer.json()["records"]
    assert [one["offset"] - records[0]["offset"] for one in records] == list(range(20))
    assert len({one["partition"] for one in records}) == 1
    for event, at in zip(events, records, strict=True):
        found = record(f"ratings-{fresh}", at)
        assert (json.loads(found.value() or b""), found.key()) == (event, b"one key")


def test_a_request_with_an_idempotency_key_has_it_as_a_header_of_each_record(
    post: Post, record: Record, fresh: str
) -> None:
    one = post("ratings", {"movie_id": 1}, Idempotency_Key="abc").json()["records"]
    two = post("ratings", [{"movie_id": 1}, {"movie_id": 2}], Idempotency_Key="def").json()["records"]
    headers = [record(f"ratings-{fresh}", at).headers() for at in (*one, *two)]
    assert headers == [[("idempotency-key", name)] for name in (b"abc", b"def/0", b"def/1")]
    assert post("ratings", {"movie_id": 1}, Idempotency_Key="x" * 201).status_code == 400


def test_records_come_with_keys_and_headers_of_their_own(post: Post, record: Record, fresh: str) -> None:
    body = b'[{"value":{"movie_id":1,"rating":2.50},"key":"k","headers":{"type":"rating"}},{"value":{}}]'
    answer = post("ratings", body, RECORDS)
    assert answer.status_code == 202, answer.text
    first, second = (record(f"ratings-{fresh}", at) for at in answer.json()["records"])
    assert (first.value(), first.key(), first.headers()) == (
        b'{"movie_id":1,"rating":2.50}',
        b"k",
        [("type", b"rating")],
    )
    assert (second.value(), second.key(), second.headers()) == (b"{}", None, None)


def test_a_table_takes_its_key_from_the_event_and_null_deletes(post: Post, record: Record, fresh: str) -> None:
    answer = post("movies", {"movie_id": 362, "rating": 1})
    found = record(f"movies-{fresh}", answer.json()["records"][0])
    assert found.key() == struct.pack(">q", 362)
    gone = record(f"movies-{fresh}", post("movies", b"null", key="362").json()["records"][0])
    assert (gone.key(), gone.value(), gone.partition()) == (struct.pack(">q", 362), None, found.partition())
    for body, key in (({"rating": 1}, None), (None, None), ({"rating": 1}, "many"), ({"movie_id": "x"}, None)):
        refused = post("movies", body, key=key)
        assert refused.status_code == 422 and refused.json()["problems"][0]["where"] in ("key", "movie_id")


def test_plain_values_are_written_as_kafkas_own_serializers_do(post: Post, record: Record, fresh: str) -> None:
    text = record(f"texts-{fresh}", post("texts", "ü").json()["records"][0])
    assert text.value() == "ü".encode()
    number = record(f"longs-{fresh}", post("longs", -7, key="0.5").json()["records"][0])
    assert (number.value(), number.key()) == (struct.pack(">q", -7), struct.pack(">d", 0.5))


@pytest.mark.parametrize(
    ("event", "where", "expected"),
    [
        ({"movie_id": "1"}, "movie_id", "an integer of 64 bits"),
        ({"movie_id": 2**63}, "movie_id", "an integer of 64 bits"),
        ({"movie_id": 1.5}, "movie_id", "an integer of 64 bits"),
        ({"movie_id": True}, "movie_id", "an integer of 64 bits"),
        ({"rating": "nine"}, "rating", "a number"),
        ({"tags": [1]}, "tags[0]", "text"),
        ({"ratng": 9}, "ratng", "one of the fields movie_id, rating, tags"),
        (5, "", "an object"),
        (None, "", "an event"),
    ],
)
def test_an_event_that_is_not_what_the_topic_declares_is_refused_with_all_the_others(
    post: Post, fresh: str, broker: Broker, event: Any, where: str, expected: str
) -> None:
    before = _ends(broker, f"ratings-{fresh}")
    answer = post("ratings", [{"movie_id": 1}, event])
    assert answer.status_code == 422 and answer.json()["error"] == "unusable events"
    (problem,) = answer.json()["problems"]
    assert (problem["event"], problem["where"], problem["expected"]) == (1, where, expected) and problem["got"]
    assert _ends(broker, f"ratings-{fresh}") == before


@pytest.mark.parametrize(
    ("topic", "body", "where"),
    [
        ("ratings", b'{"rating":1e400}', "rating"),
        ("ratings", b'{"rating":-1%s}' % (b"0" * 309), "rating"),
        ("ratings", b'{"movie_id":9223372036854775808}', "movie_id"),
        ("longs", b"9223372036854775808", ""),
        ("avro", b'{"movie_id":1,"rating":1e400}', "rating"),
        ("avro", b'{"movie_id":1,"rating":{"double":1e309}}', "rating.double"),
        ("avro", b'{"movie_id":9223372036854775808}', "movie_id"),
    ],
)
def test_a_number_that_its_type_cannot_hold_is_named_and_not_written(
    post: Post, broker: Broker, fresh: str, topic: str, body: bytes, where: str
) -> None:
    before = _ends(broker, f"{topic}-{fresh}")
    answer = post(topic, body)
    assert answer.status_code == 422 and [one["where"] for one in answer.json()["problems"]] == [where]
    assert "bits" in answer.json()["problems"][0]["expected"]
    assert _ends(broker, f"{topic}-{fresh}") == before


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"\xff",
        b'{"movie_id":1} x',
        b'[{"movie_id":1},]',
        b'{"rating":NaN}',
        b"[" * 100_000,
        b"[1" * 99,
    ],
)
def test_a_body_that_is_no_json_is_refused(post: Post, body: bytes) -> None:
    answer = post("ratings", body)
    assert answer.status_code == 400 and answer.json()["error"] == "unusable body" and answer.json()["expected"]


def test_too_much_at_once_is_refused(post: Post) -> None:
    assert post("ratings", b" " * (LARGEST + 1)).status_code == 413
    assert post("ratings", [{}] * 1001).json()["got"] == "1001 events"
    long = post("texts", "x" * 1_000_000)
    assert long.status_code == 422 and "bytes" in long.json()["problems"][0]["expected"]


def test_nobody_writes_to_a_topic_that_is_not_declared_for_it(post: Post, gateway: GatewayProcess, fresh: str) -> None:
    unknown, closed, old = post("nothing", {}), post("closed", {}), post("old", {})
    assert (unknown.status_code, closed.status_code, old.status_code) == (404, 403, 501)
    assert unknown.json()["expected"] == sorted(name for name, one in topics(fresh).items() if one.accept)
    for kind in ("application/x-www-form-urlencoded", "text/plain", ""):
        assert post("ratings", b"{}", kind).status_code == 415, "what a form of another site can send"
    assert gateway.get(f"/topics/ratings-{fresh}/events").status_code == 405


@pytest.fixture(scope="module")
def client(registry: RegistryServer) -> Iterator[SchemaRegistryClient]:
    found = registry.client()
    yield found
    found.close()


def test_an_avro_event_is_json_that_the_schema_takes_and_avro_in_kafka(post: Post, record: Record, fresh: str) -> None:
    events = [{"movie_id": 7, "rating": 9, "at": "2026-01-31T09:30:00Z"}, {"movie_id": 7, "rating": {"double": 0.5}}]
    answer = post("avro", events, key="k", Idempotency_Key="abc")
    assert answer.status_code == 202, answer.text
    first, second = (record(f"avro-{fresh}", at) for at in answer.json()["records"])
    read = [schemaless_reader(BytesIO(one.value() or b""), json.loads(AVRO), None) for one in (first, second)]
    assert read == [
        {"movie_id": 7, "rating": 9.0, "at": datetime(2026, 1, 31, 9, 30, tzinfo=UTC)},
        {"movie_id": 7, "rating": 0.5, "at": datetime(1970, 1, 1, tzinfo=UTC)},
    ]
    assert (first.key(), first.headers()) == (b"k", [("idempotency-key", b"abc/0")])
    wrong = post("avro", [{"movie_id": 1}, {"rating": "9", "ratng": 1}])
    assert wrong.status_code == 422
    assert [(one["event"], one["where"], one["got"]) for one in wrong.json()["problems"]] == [
        (1, "ratng", "another name"),
        (1, "movie_id", "nothing"),
        (1, "rating", "'9'"),
    ]


def test_events_are_written_with_the_newest_schema_of_the_registry(
    post: Post, record: Record, client: SchemaRegistryClient, gateway: GatewayProcess, fresh: str
) -> None:
    topic = f"known-{fresh}"
    id = client.register_schema(f"{topic}-value", Schema(AVRO, "AVRO"))
    found = record(topic, post("known", {"movie_id": 7, "rating": 9}).json()["records"][0])
    assert (found.value() or b"")[:5] == b"\x00" + id.to_bytes(4, "big")
    read = AvroDeserializer(client)
    context = SerializationContext(topic, MessageField.VALUE)
    assert (read(found.value(), context) or {})["rating"] == 9.0
    event = gateway.get("/openapi.json").json()["components"]["schemas"][f"{topic}.event"]
    assert event["required"] == ["movie_id"] and event["properties"]["at"]["format"] == "date-time"

    # Nobody tells the gateway of a newer one: an event that only the newer one takes does.
    assert post("known", {"movie_id": 7, "mood": "sad"}).json()["problems"][0]["where"] == "mood"
    newer = json.loads(AVRO)
    newer["fields"].append({"name": "mood", "type": ["null", "string"], "default": None})
    client.register_schema(f"{topic}-value", Schema(json.dumps(newer), "AVRO"))
    eventually(lambda: post("known", {"movie_id": 7, "mood": "sad"}).status_code == 202, "the newer schema is used")
    found = record(topic, post("known", {"movie_id": 8, "mood": "sad"}).json()["records"][0])
    assert (read(found.value(), context) or {})["mood"] == "sad"


def test_a_table_has_the_schemas_of_its_keys_in_the_registry_too(
    post: Post, record: Record, client: SchemaRegistryClient, fresh: str
) -> None:
    topic = f"films-{fresh}"
    title = {"type": "record", "name": "Film", "fields": [{"name": "title", "type": "string"}]}
    client.register_schema(f"{topic}-value", Schema(json.dumps(title), "AVRO"))
    client.register_schema(f"{topic}-key", Schema('"long"', "AVRO"))
    answer = post("films", {"film_id": 3, "title": "Ran"})
    assert answer.status_code == 202, answer.text
    found, read = record(topic, answer.json()["records"][0]), AvroDeserializer(client)
    key = read(found.key(), SerializationContext(topic, MessageField.KEY))
    value = read(found.value(), SerializationContext(topic, MessageField.VALUE))
    assert (key, value) == (3, {"title": "Ran"})
    gone = record(topic, post("films", b"null", key="3").json()["records"][0])
    assert (gone.key(), gone.value(), gone.partition()) == (found.key(), None, found.partition())


def test_a_registry_that_has_no_schema_to_write_with_is_told(
    post: Post, client: SchemaRegistryClient, fresh: str
) -> None:
    absent = post("none", {})
    assert (absent.status_code, absent.json()["error"]) == (502, "no schema")
    assert f"none-{fresh}-value" in absent.json()["remedy"] and "http" not in absent.text
    recursive = {"type": "record", "name": "R", "fields": [{"name": "r", "type": ["null", "R"], "default": None}]}
    client.register_schema(f"odd-{fresh}-value", Schema(json.dumps(recursive), "AVRO"))
    eventually(lambda: post("odd", {}).status_code == 501, "the schema is there, and can't be used")
    assert "recursive" in post("odd", {}).json()["got"]


def test_the_registry_is_away_and_clients_of_its_topics_are_told(
    redis_server: RedisServer, broker: Broker, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    app = f"away-{uuid4().hex[:10]}"
    Topics(Brokers(broker.address)).create(f"avro-{app}", partitions=1, replication=1, config={})
    gateway = _gateway(redis_server, broker.address, app, tmp_path, registry="http://ann:s3cret@127.0.0.1:1")
    request.addfinalizer(gateway.close)
    answer = httpx.post(f"{gateway.url}/topics/known-{app}/events", json={"movie_id": 1}, timeout=30)
    assert (answer.status_code, answer.json()["error"]) == (503, "registry away") and answer.headers["retry-after"]
    assert "127.0.0.1" not in answer.text and "s3cret" not in gateway.log.read_text()
    assert httpx.post(f"{gateway.url}/topics/avro-{app}/events", json={"movie_id": 1}, timeout=30).status_code == 202
    assert f"known-{app}.event" not in gateway.get("/openapi.json").json()["components"]["schemas"]


def test_kafka_is_away_and_clients_are_told(
    redis_server: RedisServer, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    app = f"away-{uuid4().hex[:10]}"
    gateway = _gateway(redis_server, "127.0.0.1:1", app, tmp_path)
    request.addfinalizer(gateway.close)
    url, once = f"{gateway.url}/topics/ratings-{app}/events", {"Idempotency-Key": "abc"}
    answer = httpx.post(url, json=[{"movie_id": 1}, {}], headers=once, timeout=30)
    assert answer.status_code == 503 and answer.headers["retry-after"]
    assert answer.json()["error"] == "not written" and [one["unsure"] for one in answer.json()["records"]] == [
        True,
        True,
    ]
    # A part of it would be taken for another part: an event is told by its place in the request.
    assert answer.json()["remedy"].startswith("Send the whole request again, with the same Idempotency-Key")
    assert gateway.get("/health/ready").status_code == 200, "views are served all the same"
    unregistered = httpx.post(f"{gateway.url}/topics/known-{app}/events", json={})
    assert (unregistered.status_code, unregistered.json()["error"]) == (503, "no registry")


def _ends(broker: Broker, topic: str) -> dict[int, int]:
    consumer = Consumer({"bootstrap.servers": broker.address, "group.id": "none"})
    partitions = consumer.list_topics(topic, 10).topics[topic].partitions
    found = {p: consumer.get_watermark_offsets(TopicPartition(topic, p), 10) for p in partitions}
    consumer.close()
    return {p: bounds[1] for p, bounds in found.items() if bounds is not None}

"""`tailrace dev --secure`: everything works with the users and tokens that it makes, and nothing without."""

from __future__ import annotations

import asyncio
import json
import re
import shlex
import signal
import socket
import ssl
import stat
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import redis
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from dev_process import Dev, kill_if_running
from running import PATIENCE, eventually
from tailrace.client import Client, Event, Row
from tailrace.errors import Unreachable
from tailrace.kafka.brokers import Brokers
from tailrace.kafka.config.kafka_config import KafkaConfig
from tailrace.kafka.config.security import Secrets
from tailrace.kafka.topics import Topics

MODULE = """
from tailrace import App

app = App("movies")
ratings = app.topic("ratings", value="movie_id long, rating double", expect="rating between 0 and 10", accept=True)
app.view("averages", ratings, key="movie_id", columns={"rating": "avg(rating)"})
app.feed("notes", ratings, key="movie_id")
"""
MALFORMED = b"\xff no JSON"


@dataclass
class Locked:
    """A locked app: its address, the directory with what opens it, and the line with which a row is read."""

    dev: Dev
    url: str
    directory: Path
    line: str

    @property
    def tls(self) -> ssl.SSLContext:
        """Trust in the authority of this run alone."""
        return ssl.create_default_context(cafile=self.directory / "ca.pem")

    def token(self, *options: str) -> dict[str, str]:
        """The header with a token of `tailrace token`."""
        return {"Authorization": f"Bearer {token_of(self.dev.data, *options)}"}

    def rate(self, header: dict[str, str], *ratings: tuple[int, float]) -> httpx.Response:
        """Write ratings as a client."""
        events = [{"movie_id": movie, "rating": rating} for movie, rating in ratings]
        return httpx.post(f"{self.url}/topics/ratings/events", json=events, headers=header, verify=self.tls, timeout=60)

    def get(self, path: str, header: dict[str, str]) -> httpx.Response:
        return httpx.get(f"{self.url}{path}", headers=header, verify=self.tls, timeout=90)

    def kafka(self, user: str, kind: str, **more: Any) -> dict[str, Any]:
        """What a client of Kafka of a kind is told in order to connect as a user."""
        config = KafkaConfig.read(str(self.directory / f"{user}.properties"), Secrets())
        return {"bootstrap.servers": config.servers, "log_level": 0, **config.librdkafka(kind), **more}


def token_of(data: Path, *options: str) -> str:
    command = [sys.executable, "-m", "tailrace", "token", "--data", str(data), *options]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Locked]:
    """The app, with a row of movie 362."""
    directory = tmp_path_factory.mktemp("locked")
    (directory / "movies.py").write_text(MODULE)
    dev = Dev(directory / "data", "--secure", "--batch-interval", "5s", directory=directory)
    try:
        url = dev.until(r"gateway +(https://\S+)")[1]
        found = Locked(dev, url, dev.data / "locks", "")
        assert found.rate(found.token("--topics", "ratings"), (362, 10), (362, 8)).status_code == 202
        dev.until("averages is live")
        found.line = dev.until(r"^ +read +(curl .+)$")[1]
        dev.until("Ctrl-C")
        yield found
        dev.signal(signal.SIGTERM)
        assert dev.ended() == 0
        dev.assert_gone()
    finally:
        kill_if_running(dev)


def test_the_printed_line_reads_a_row(locked: Locked) -> None:
    answer = subprocess.run(shlex.split(locked.line), capture_output=True, text=True, check=True).stdout
    assert json.loads(answer) == {"movie_id": 362, "rating": 9.0}


def test_a_client_writes_events_and_follows_a_query_a_feed_and_a_stream_with_a_token_for_these(locked: Locked) -> None:
    header = locked.token("--sub", "ann", "--views", "averages", "--feeds", "notes", "--client", "7", "--topics", "*")
    wanted = {"view": "averages", "keys": ["7"], "ttl": 60}
    stream = httpx.post(f"{locked.url}/streams", json=wanted, headers=header, verify=locked.tls).json()
    begin = f"{locked.url}/streams/{stream['id']}/begin"
    assert httpx.post(begin, headers=header, verify=locked.tls).is_success

    async def follow() -> tuple[Row, Row, Event]:
        token = header["Authorization"].removeprefix("Bearer ")
        async with (
            Client(locked.url, token=token, tls=locked.tls, transport="socket") as sockets,
            Client(locked.url, token=token, tls=locked.tls, transport="events") as events,
        ):
            query, feed = events.follow("averages", where="rating < 5"), sockets.feed("notes", "7")
            streamed = sockets.stream(stream["id"])
            async with asyncio.timeout(PATIENCE):
                for one in (query, feed, streamed):
                    await one.ready()
                written = await asyncio.to_thread(locked.rate, header, (7, 3), (8, 9))
                assert written.status_code == 202
                return (
                    await anext(change async for change in query if isinstance(change, Row)),
                    await anext(change async for change in streamed if isinstance(change, Row)),
                    await anext(change async for change in feed if isinstance(change, Event)),
                )

    by_query, by_stream, by_feed = asyncio.run(follow())
    assert by_query.row == by_stream.row == {"movie_id": 7, "rating": 3.0}
    assert (by_feed.event["movie_id"], by_feed.event["rating"]) == (7, 3.0)

    at = locked.rate(header, (7, 5)).json()["records"][0]
    path = f"/views/averages/7?at_least=ratings:{at['partition']}:{at['offset']}"
    assert locked.get(path, header | {"Prefer": "wait=60"}).json() == {"movie_id": 7, "rating": 4.0}


def test_a_producer_writes_and_the_operator_sees_its_dead_letters(locked: Locked) -> None:
    producer = Producer(locked.kafka("producer", "producer"))
    producer.produce("ratings", MALFORMED)
    assert producer.flush(30) == 0
    consumer = Consumer(locked.kafka("admin", "consumer", **{"group.id": "letters"}))
    # The administrator comes by another port, which clients are not sent to.
    consumer.assign([TopicPartition("ratings.dead-letters", number, OFFSET_BEGINNING) for number in range(2)])
    found: list[bytes | None] = []

    def arrived() -> bool:
        message = consumer.poll(0.2)
        if message is not None and message.error() is None:
            found.append(message.value())
        return found == [MALFORMED]

    eventually(arrived, "the dead letter")
    consumer.close()

    def told() -> bool:
        status = f'. {shlex.quote(str(locked.directory / "operator.env"))}; "$0" -m tailrace status movies --json'
        done = subprocess.run(["sh", "-c", status, sys.executable], capture_output=True, text=True, check=True)
        letters: list[dict[str, Any]] = json.loads(done.stdout)["dead_letters"]
        return any(one["topic"] == "ratings" and one["letters"].get("malformed") == 1 for one in letters)

    eventually(told, "the operator sees it")


def test_clients_without_a_token_or_its_right_and_without_tls_are_refused(locked: Locked) -> None:
    assert locked.get("/views/averages/362", {}).status_code == 401
    one = locked.token("--views", "averages", "--key", "7")
    assert locked.get("/views/averages/362", one).status_code == 403
    assert locked.rate(one, (1, 1)).status_code == 403
    assert locked.get("/metrics", one).status_code == 403
    assert locked.get("/metrics", locked.token("--operations")).status_code == 200
    assert httpx.get(f"http{locked.url.removeprefix('https')}/views/averages/362").status_code == 400
    with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
        httpx.get(f"{locked.url}/health/live")


def test_kafka_refuses_whoever_has_no_password_and_what_a_user_may_not(locked: Locked) -> None:
    servers = locked.kafka("operator", "admin")["bootstrap.servers"]
    with pytest.raises(Unreachable, match=r"speaks TLS: expected security\.protocol"):
        Topics(Brokers(servers)).describe(["ratings"])
    wrong = locked.kafka("gateway", "admin", **{"sasl.password": "another"})
    with pytest.raises(KafkaException):
        AdminClient(wrong).list_topics(timeout=3)
    assert set(AdminClient(locked.kafka("producer", "admin")).list_topics(timeout=30).topics) == {"ratings"}

    def refused(user: str, topic: str) -> KafkaError | None:
        errors: list[KafkaError | None] = []
        producer = Producer(locked.kafka(user, "producer"))
        producer.produce(topic, b"{}", on_delivery=lambda error, _: errors.append(error))
        assert producer.flush(30) == 0
        return errors[0]

    for user, topic in (("gateway", "averages"), ("materializer", "ratings"), ("operator", "ratings")):
        error = refused(user, topic)
        assert error is not None and error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED, (user, error)
    pipeline = AdminClient(locked.kafka("pipeline", "admin"))
    with pytest.raises(KafkaException) as caught:
        pipeline.create_topics([NewTopic("others", 1, 1)])["others"].result(30)
    assert caught.value.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED


def test_the_doors_of_administrators_open_with_their_certificate_alone(locked: Locked) -> None:
    text = (locked.dev.data / "kafka" / "server.properties").read_text()
    ports = re.findall(r"^listeners=.*ADMIN://127.0.0.1:(\d+),CONTROLLER://127.0.0.1:(\d+)$", text, re.MULTILINE)[0]
    for port in map(int, ports):
        with (
            socket.create_connection(("127.0.0.1", port), 30) as plain,
            locked.tls.wrap_socket(plain, server_hostname="127.0.0.1") as link,
            pytest.raises(ssl.SSLError, match=r"(?i)certificate"),
        ):
            link.recv(1)
    # One that the authority has signed, but of nobody who may do anything.
    admin = locked.kafka("admin", "admin")
    assert {"ratings", "averages", "notes"} <= set(AdminClient(admin).list_topics(timeout=30).topics)
    certificate, key = (locked.directory / f"gateway.{one}" for one in ("pem", "key"))
    other = {**admin, "ssl.certificate.pem": certificate.read_text(), "ssl.key.pem": key.read_text()}
    assert not AdminClient(other).list_topics(timeout=30).topics


def test_redis_refuses_whoever_has_no_password_and_what_a_user_may_not(locked: Locked) -> None:
    operator = dict(re.findall(r"export (\w+)=(.*)", (locked.directory / "operator.env").read_text()))
    (url,) = shlex.split(operator["TAILRACE_REDIS"])
    with pytest.raises(redis.AuthenticationError):
        redis.Redis.from_url(url.replace("operator@", "")).ping()
    (file,) = shlex.split(operator["TAILRACE_REDIS_PASSWORD_FILE"])
    password = Path(file).read_text().strip()
    with redis.Redis.from_url(url, password=password) as client, pytest.raises(redis.exceptions.NoPermissionError):
        client.flushall()
    with redis.Redis.from_url(url, password=password) as client, pytest.raises(redis.exceptions.NoPermissionError):
        client.hget("another:app", "row")


def test_secrets_are_in_files_of_this_user_alone(locked: Locked) -> None:
    data = locked.dev.data
    for directory in (data, *(data / name for name in ("locks", "kafka", "redis", "checkpoints", "logs"))):
        assert stat.S_IMODE(directory.stat().st_mode) == 0o700, directory
    for file in locked.directory.iterdir():
        public = file.suffix == ".pem" and "PRIVATE" not in file.read_text()
        assert public or stat.S_IMODE(file.stat().st_mode) == 0o600, file
    kept = [file.read_text().strip() for file in locked.directory.iterdir() if "password" in file.name]
    kept.append((locked.directory / "jwt.key").read_text().strip())
    assert len(kept) == 10
    written = [log.read_text(errors="replace") for log in (data / "logs").iterdir()]
    written += [*locked.dev.processes().values(), locked.dev.text, (data / "kafka" / "server.properties").read_text()]
    variables = [Path(f"/proc/{pid}/environ").read_text() for pid in locked.dev.processes()]
    for secret in kept:
        assert not any(secret in text for text in (*written, *variables))

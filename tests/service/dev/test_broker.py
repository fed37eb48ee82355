"""The embedded broker: real, and still itself after a crash."""

from __future__ import annotations

import socket
import time

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from services import NewBroker
from tailrace.dev.broker import Broker
from tailrace.errors import PartDied

QUIET = {"log_level": 0}


def create(broker: Broker, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.address, **QUIET})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(timeout=20)


def write(broker: Broker, topic: str, values: list[bytes]) -> None:
    producer = Producer({"bootstrap.servers": broker.address, **QUIET})
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(20) == 0


def read(broker: Broker, topic: str, count: int) -> list[bytes]:
    consumer = Consumer({"bootstrap.servers": broker.address, "group.id": "reader", **QUIET})
    consumer.assign([TopicPartition(topic, 0, 0)])
    values: list[bytes] = []
    deadline = time.monotonic() + 20
    while len(values) < count and time.monotonic() < deadline:
        message = consumer.poll(0.2)
        if message is not None and message.error() is None:
            values.append(bytes(message.value() or b""))
    consumer.close()
    return values


def test_a_started_broker_takes_a_topic_at_once(broker: Broker, fresh: str) -> None:
    create(broker, f"ratings-{fresh}")
    write(broker, f"ratings-{fresh}", [b"one", b"two"])
    assert read(broker, f"ratings-{fresh}", 2) == [b"one", b"two"]


def test_the_broker_listens_on_loopback_only(broker: Broker) -> None:
    outside = [
        str(entry[4][0])
        for entry in socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET)
        if not str(entry[4][0]).startswith("127.")
    ]
    for host in outside:
        with pytest.raises(OSError):  # noqa: PT011
            socket.create_connection((host, broker.port), 1).close()


def test_data_survives_kill_and_orderly_stop(new_broker: NewBroker) -> None:
    broker = new_broker()
    create(broker, "ratings")
    write(broker, "ratings", [b"one"])
    broker.kill()
    broker.start()
    write(broker, "ratings", [b"two"])
    broker.stop()
    broker.start()
    assert read(broker, "ratings", 2) == [b"one", b"two"]


def test_an_interrupted_format_is_done_again(new_broker: NewBroker) -> None:
    broker = new_broker()
    broker.stop()
    (broker.directory / "data").rename(broker.directory / "formatting")
    broker.start()
    create(broker, "ratings")


def test_a_broker_that_can_not_start_shows_the_end_of_its_log(new_broker: NewBroker) -> None:
    with pytest.raises(
        PartDied, match=r"(?s)kafka format ended with exit code 1; the end of its log:.*Invalid value one"
    ):
        new_broker(properties={"node.id": "one"})

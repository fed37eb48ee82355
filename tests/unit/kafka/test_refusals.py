"""What clients complain of is told once in a while, each by itself, in words that name what to correct."""

from __future__ import annotations

import logging
from datetime import UTC, datetime

import pytest
from confluent_kafka import KafkaError

from tailrace.credentials.stores import Identity
from tailrace.kafka.brokers import Brokers
from tailrace.kafka.config.listener_check import listener_problem
from tailrace.kafka.config.security import Security

FAILED = """[STREAM_FAILED] Query [id = 1] terminated with exception: Job aborted due to stage failure: {cause}
\tat org.apache.spark.scheduler.DAGScheduler.abortStage(DAGScheduler.scala:1)
Caused by: {cause}
\tat org.apache.kafka.clients.NetworkClient.poll(NetworkClient.java:1)"""
ERRORS = "org.apache.kafka.common.errors"


def test_the_same_complaint_is_told_once_and_another_by_itself(caplog: pytest.LogCaptureFixture) -> None:
    tell = Brokers("").refusals.listener("changelogs")
    with caplog.at_level(logging.WARNING):
        for _ in range(100):
            tell(KafkaError(KafkaError._ALL_BROKERS_DOWN, "1/1 brokers are down"))
        tell(KafkaError(KafkaError._TRANSPORT, "connection refused"))
    assert [record.getMessage().split(";")[0] for record in caplog.records] == [
        "changelogs: Kafka: 1/1 brokers are down",
        "changelogs: Kafka: connection refused",
    ]


@pytest.mark.parametrize(
    ("cause", "expected"),
    [
        (
            f"{ERRORS}.TopicAuthorizationException: Not authorized to access topics: [ratings]",
            "Kafka at broker:1: the brokers refuse user 'ANONYMOUS' a right on a topic: "
            "Not authorized to access topics: [ratings]: allow Read on it, or Write if it is written",
        ),
        (f"{ERRORS}.TimeoutException: Topic ratings not present in metadata", None),
        ("java.lang.OutOfMemoryError: Java heap space", None),
    ],
)
def test_of_what_kafka_refuses_a_query_of_spark_one_line_is_told(cause: str, expected: str | None) -> None:
    assert Brokers("broker:1").refused(FAILED.format(cause=cause)) == expected


def test_a_login_that_was_cut_off_is_no_refused_password() -> None:
    brokers = Brokers("")
    cut = "SASL SCRAM-SHA-512 mechanism handshake failed: Local: Broker transport failure: broker's mechanisms: (n/a)"
    brokers.refusals.note(KafkaError(KafkaError._AUTHENTICATION, cut))
    assert brokers.problems() == [] and brokers.refusals.connection is None


def test_a_certificate_of_the_client_that_ends_while_it_runs_is_named_with_its_file() -> None:
    ended = Identity("", "", "CN=movies", datetime(2026, 1, 2, 3, 4, tzinfo=UTC))
    security = Security("SSL", identity=ended, shown_in="/etc/kafka/client.pem")
    assert listener_problem("broker:1", security) == (
        "the client's certificate /etc/kafka/client.pem (CN=movies) expired on 2026-01-02 03:04 UTC: renew it"
    )

"""A client's complaints are told once in a while, each by itself."""

from __future__ import annotations

import logging

import pytest
from confluent_kafka import KafkaError

from tailrace.kafka.brokers import Brokers

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

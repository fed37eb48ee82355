"""A client's complaints are told once in a while, each by itself."""

from __future__ import annotations

import logging

import pytest
from confluent_kafka import KafkaError

from tailrace.kafka.brokers import Brokers


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

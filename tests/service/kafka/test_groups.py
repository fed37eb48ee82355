"""Consumer groups that nobody is a member of, against a real broker."""

from __future__ import annotations

from datetime import UTC, datetime

from confluent_kafka import Producer

from operating import Operator
from tailrace.dev.broker import Broker
from tailrace.kafka.brokers import Brokers
from tailrace.kafka.groups import Group


def test_a_group_that_is_open_sees_partitions_that_are_added(broker: Broker, fresh: str) -> None:
    operator, topic = Operator(broker), f"grown-{fresh}"
    operator.create(topic, 1)
    group = Group(Brokers(broker.address), f"group-{fresh}")
    try:
        assert group.bounds({topic: 1}) == {topic: {0: (0, 0)}}
        operator.add_partitions(topic, 3)
        producer = Producer({"bootstrap.servers": broker.address})
        producer.produce(topic, b"one", partition=2)
        assert producer.flush(30) == 0
        assert group.bounds({topic: 3}) == {topic: {0: (0, 0), 1: (0, 0), 2: (0, 1)}}
        assert group.at_time({topic: 3}, datetime(2001, 1, 1, tzinfo=UTC)) == {topic: {2: 0}}
        group.commit({topic: {2: 1}})
        assert group.committed({topic: 3}) == {topic: {2: 1}}
    finally:
        group.close()

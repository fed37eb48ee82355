"""Topics on a real broker: found, created, and refused when they are not what a view needs."""

from __future__ import annotations

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from running import eventually
from services import NewBroker
from tailrace.contracts.catalog import Catalog
from tailrace.contracts.partitions import partition_of
from tailrace.dev.broker import Broker
from tailrace.errors import TopicError, Unreachable
from tailrace.kafka.brokers import Brokers
from tailrace.kafka.catalog_topic import CatalogReader, CatalogWriter
from tailrace.kafka.topics import COMPACTED, LEAST, MOST, Topics


def test_a_topic_is_created_once_and_found_with_its_id(broker: Broker, fresh: str) -> None:
    topics = Topics(Brokers(broker.address))
    for _ in range(2):
        topics.create(f"t-{fresh}", partitions=3, replication=1, config=COMPACTED)
    found = topics.describe([f"t-{fresh}", f"missing-{fresh}"])
    assert list(found) == [f"t-{fresh}"] and found[f"t-{fresh}"].partitions == 3
    assert topics.describe([f"t-{fresh}"]) == found
    topics.require_policy(f"t-{fresh}", "compact")


def test_a_changelog_that_forgets_rows_is_refused(broker: Broker, fresh: str) -> None:
    topics = Topics(Brokers(broker.address))
    topics.create(f"t-{fresh}", partitions=1, replication=1, config={})
    with pytest.raises(TopicError, match=r"expected cleanup\.policy=compact.*got delete"):
        topics.require_policy(f"t-{fresh}", "compact")


def test_what_a_topic_takes_is_known_and_too_little_is_refused(broker: Broker, fresh: str) -> None:
    topics = Topics(Brokers(broker.address))
    for size in (LEAST - 1, LEAST):
        topics.create(f"t-{fresh}-{size}", partitions=1, replication=1, config={"max.message.bytes": str(size)})
        assert topics.longest(f"t-{fresh}-{size}") == size
    topics.require_room(f"t-{fresh}-{LEAST}")
    topics.create(f"t-{fresh}-more", partitions=1, replication=1, config={"max.message.bytes": str(2 * MOST)})
    assert topics.longest(f"t-{fresh}-more") == MOST
    with pytest.raises(TopicError, match=rf"expected max\.message\.bytes of {LEAST} at least.*got {LEAST - 1}"):
        topics.require_room(f"t-{fresh}-{LEAST - 1}")


def test_a_topic_whose_settings_are_secret_is_left_out_or_told_with_the_right_that_lacks(
    new_broker: NewBroker, fresh: str
) -> None:
    authorizer = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
    broker = new_broker(properties={"authorizer.class.name": authorizer, "allow.everyone.if.no.acl.found": "true"})
    topics = Topics(Brokers(broker.address))
    config = {"max.message.bytes": "2000000"}
    for name in (f"open-{fresh}", f"secret-{fresh}"):
        topics.create(name, partitions=1, replication=1, config=config)
    refused = AclBinding(
        ResourceType.TOPIC,
        f"secret-{fresh}",
        ResourcePatternType.LITERAL,
        "User:ANONYMOUS",
        "*",
        AclOperation.DESCRIBE_CONFIGS,
        AclPermissionType.DENY,
    )
    admin = AdminClient({"bootstrap.servers": broker.address})
    for future in admin.create_acls([refused]).values():
        future.result(30)
    eventually(
        lambda: topics.lengths([f"open-{fresh}", f"secret-{fresh}"]) == {f"open-{fresh}": 2_000_000},
        "the brokers know what is refused",
    )
    assert topics.lengths([]) == {}
    with pytest.raises(TopicError, match=rf"'secret-{fresh}'.*allow DescribeConfigs"):
        topics.longest(f"secret-{fresh}")


def test_more_replicas_than_brokers_is_told_with_the_topic(broker: Broker, fresh: str) -> None:
    with pytest.raises(TopicError, match=f"t-{fresh}"):
        Topics(Brokers(broker.address)).create(f"t-{fresh}", partitions=1, replication=3, config={})


def test_a_broker_that_is_not_there_is_told_with_its_address() -> None:
    with pytest.raises(Unreachable, match=r"127\.0\.0\.1:9"):
        Topics(Brokers("127.0.0.1:9"), timeout=1).describe(["t"])


def test_the_catalog_topic_gives_the_newest_value_per_record(broker: Broker, fresh: str) -> None:
    topic = f"catalog-{fresh}"
    Topics(Brokers(broker.address)).create(topic, partitions=1, replication=1, config=COMPACTED)
    reader = CatalogReader(Brokers(broker.address), topic)
    assert reader.read_whole() == {}
    writer = CatalogWriter(Brokers(broker.address), topic)
    first, second = (Catalog(name, {}).encode() for name in ("first", "second"))
    # A catalog that can't be read does not take the place of one that can.
    catalogs = [("app", value) for value in (b"0", first, second, b"3")]
    for key, value in [("progress/v", b"2"), *catalogs, ("progress/v", b"4")]:
        writer.put(key, value)
    writer.flush()
    again = CatalogReader(Brokers(broker.address), topic)
    assert again.read_whole() == {"app": second, "progress/v": b"4"}
    reader.close()
    again.close()


def test_keys_fall_where_kafkas_own_partitioner_puts_them(broker: Broker, fresh: str) -> None:
    topic = f"t-{fresh}"
    Topics(Brokers(broker.address)).create(topic, partitions=7, replication=1, config={})
    placed: dict[bytes | None, int | None] = {}
    producer = Producer({"bootstrap.servers": broker.address, "partitioner": "murmur2"})
    keys = [b"362", b"", "ключ".encode(), b"\x00\xff\x80", b'["a",1]', *(b"%d" % n for n in range(200))]
    for key in keys:
        producer.produce(
            topic, b"", key=key, on_delivery=lambda _, message: placed.update({message.key(): message.partition()})
        )
    producer.flush(30)
    assert placed == {key: partition_of(key, 7) for key in keys}


def test_a_record_of_the_catalog_that_the_broker_refuses_is_an_error(broker: Broker, fresh: str) -> None:
    topic = f"t-{fresh}"
    Topics(Brokers(broker.address)).create(topic, partitions=1, replication=1, config={"max.message.bytes": "1000"})
    writer = CatalogWriter(Brokers(broker.address), topic)
    writer.put("app", bytes(5000))
    with pytest.raises(Unreachable, match=rf"did not take the record 'app' of the catalog topic {topic}: .*too large"):
        writer.flush()
    # It is told once.
    writer.put("app", b"{}")
    writer.flush()
    assert CatalogReader(Brokers(broker.address), topic).read_whole() == {"app": b"{}"}

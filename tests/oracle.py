"""An independent recount of a topic in plain Python: no Spark, no product code."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, TopicPartition


def read_topic(servers: str, topic: str) -> list[Message]:
    """Every record that a topic holds now, partition by partition."""
    return read_topics(servers, topic)


def read_topics(servers: str, *topics: str) -> list[Message]:
    """Every record that some topics hold now; those of all if none is named."""
    consumer = Consumer(
        {"bootstrap.servers": servers, "group.id": "oracle", "enable.auto.commit": False, "enable.partition.eof": True}
    )
    try:
        known = consumer.list_topics(topics[0] if len(topics) == 1 else None, timeout=15).topics
        partitions = [(topic, number) for topic in topics or known for number in known[topic].partitions]
        consumer.assign([TopicPartition(*one, OFFSET_BEGINNING) for one in partitions])
        ended: set[tuple[str | None, int | None]] = set()
        found = []
        while len(ended) < len(partitions):
            message = consumer.poll(10)
            assert message is not None, f"{topics} on {servers} gave no record and no end for 10 s"
            error = message.error()
            if error is None:
                found.append(message)
            elif error.code() == KafkaError._PARTITION_EOF:
                ended.add((message.topic(), message.partition()))
        return found
    finally:
        consumer.close()


def rating_averages(servers: str, topic: str) -> dict[str, dict[str, Any]]:
    """What the view of average ratings must hold, by key."""
    sums: dict[int, tuple[int, float]] = {}
    for message in read_topic(servers, topic):
        try:
            event = json.loads(message.value() or b"")
        except ValueError:
            continue
        if not isinstance(event, dict) or type(event.get("movie_id")) is not int:
            continue
        rating = event.get("rating")
        if isinstance(rating, bool) or not isinstance(rating, int | float) or not 0 <= rating <= 10:
            continue
        count, total = sums.get(event["movie_id"], (0, 0.0))
        sums[event["movie_id"]] = (count + 1, total + rating)
    return {
        str(movie): {"movie_id": movie, "rating": total / count, "ratings": count}
        for movie, (count, total) in sums.items()
    }


@dataclass(frozen=True)
class Written:
    """A record of a changelog, as any Kafka consumer sees it."""

    partition: int
    offset: int
    generation: int
    version: int
    row: dict[str, Any] | None


def changelog(servers: str, topic: str) -> dict[str, list[Written]]:
    """The records of a changelog by key, in offset order."""
    found: dict[str, list[Written]] = {}
    for message in read_topic(servers, topic):
        headers = dict(message.headers() or ())
        value, key = message.value(), message.key()
        assert isinstance(key, bytes)
        found.setdefault(key.decode(), []).append(
            Written(
                message.partition() or 0,
                message.offset() or 0,
                int(headers["g"] or b""),
                int(headers["v"] or b""),
                None if value is None else json.loads(value),
            )
        )
    return found

"""Writes ratings to Kafka: two for movie 362, then about twenty a second for twenty movies, until it is stopped."""

import json
import os
import random
import time
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

KAFKA = {"bootstrap.servers": os.environ.get("TAILRACE_KAFKA", "localhost:9092")}
if config := os.environ.get("TAILRACE_KAFKA_CONFIG"):
    # How to connect with `tailrace dev --secure`, in the names of this client.
    KAFKA |= dict(line.split("=", 1) for line in Path(config).read_text().splitlines())
TOPIC = "ratings"
MOVIES = range(350, 370)


def wait_for_topic() -> None:
    admin = AdminClient({**KAFKA})
    while TOPIC not in admin.list_topics(timeout=30).topics:
        time.sleep(0.2)


def main() -> None:
    wait_for_topic()
    producer = Producer({**KAFKA, "linger.ms": 0})

    def rate(movie: int, rating: int) -> None:
        producer.produce(TOPIC, json.dumps({"movie_id": movie, "rating": rating}))
        producer.poll(0)

    rate(362, 10)
    rate(362, 8)
    while True:
        time.sleep(random.expovariate(20))
        rate(random.choice(MOVIES), random.randint(0, 10))


if __name__ == "__main__":
    main()

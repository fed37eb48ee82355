"""Errors of a Kafka client, in our own log: each at most once in a while."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from confluent_kafka import KafkaError

log = logging.getLogger(__name__)

_EVERY = 30.0


def complaints(who: str) -> Callable[[KafkaError], None]:
    """A callback for a client's errors. It logs each error code, then not again for a while; the client continues."""
    told: dict[int, float] = {}

    def tell(error: KafkaError) -> None:
        now = time.monotonic()
        code = int(error.code())
        if code not in told or now - told[code] >= _EVERY:
            told[code] = now
            log.warning("%s: Kafka: %s; the client goes on trying", who, error.str())

    return tell

"""How long a changelog keeps its tombstones: a reader that continues after a longer pause misses some."""

from __future__ import annotations

import logging
import time

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import ConfigResource

from tailrace.kafka.brokers import Brokers

log = logging.getLogger(__name__)

_TIMEOUT = 5.0
# A topic's configuration may be altered while we read the topic.
_REMEMBERED = 60.0
# Kafka's own default.
DEFAULT = 24 * 60 * 60.0


class Tombstones:
    """Reads the configuration of topics, and remembers it for a while."""

    def __init__(self, brokers: Brokers) -> None:
        self._brokers = brokers
        self._kept: dict[str, tuple[float, float]] = {}

    def kept(self, topic: str) -> float | None:
        """For how many seconds a tombstone can be read at least after it was written; None if no broker answers."""
        found = self._kept.get(topic)
        if found is None or time.monotonic() >= found[1]:
            asked = self._ask(topic)
            if asked is None:
                return None if found is None else found[0]
            found = self._kept[topic] = (asked, time.monotonic() + _REMEMBERED)
        return found[0]

    def _ask(self, topic: str) -> float | None:
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
        (future,) = self._brokers.admin().describe_configs([resource], request_timeout=_TIMEOUT).values()
        try:
            found = self._brokers.answer(future, _TIMEOUT + 1)
        except KafkaException as error:
            if error.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                log.warning(
                    "the configuration of topic %s may not be read, so tombstones are taken to be kept for %.0f h: "
                    "allow DescribeConfigs if delete.retention.ms is shorter",
                    topic,
                    DEFAULT / 3600,
                )
                return DEFAULT
            return None
        return (int(found["delete.retention.ms"].value) + int(found["min.compaction.lag.ms"].value)) / 1000

"""Topics on the broker: what exists, and what Tailrace creates."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import ConfigResource, NewTopic

from tailrace.errors import TopicError, Unreachable
from tailrace.kafka.brokers import Brokers
from tailrace.kafka.config.reasons import ALLOW_DESCRIBE

log = logging.getLogger(__name__)

# The longest record of a changelog by default, and the least that a changelog must take: a key of any length.
LONGEST = 8 * 1024 * 1024
LEAST = 512 * 1024
# The most bytes of a record, whatever its topic says: brokers take requests of 100 MiB, clients answers of 100 MB.
MOST = 96_000_000
# A compacted topic keeps every record for this long. A replay after a crash re-emits older versions at newer
# offsets; compaction must not leave such a record alone before the newer version has been written again.
COMPACTED = {
    "cleanup.policy": "compact",
    "min.compaction.lag.ms": str(60 * 60 * 1000),
    "delete.retention.ms": str(7 * 24 * 60 * 60 * 1000),
    "max.message.bytes": str(LONGEST),
}
# The settings of a feed's changelog: every event counts, for a day.
EVENTS = {
    "cleanup.policy": "delete",
    "retention.ms": str(24 * 60 * 60 * 1000),
    "max.message.bytes": str(LONGEST),
}
# The newest command of a stream is enough. A stream that was not refreshed for this long has expired.
# Kafka does both by segment: short segments keep the topic short for readers from the start.
COMMANDS = {
    "cleanup.policy": "compact,delete",
    "retention.ms": str(24 * 60 * 60 * 1000),
    "segment.ms": str(60 * 60 * 1000),
}
DEAD_LETTERS = {"max.message.bytes": str(MOST)}

_REFUSED = (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED)
_REASONS = {
    "compact": "it is the only copy of a view",
    "delete": "every event of a feed counts",
    "compact,delete": "only the newest command of a stream counts, and not for ever",
}


@dataclass(frozen=True)
class TopicOnBroker:
    """A topic as the broker knows it. The id changes if a topic is deleted and made anew."""

    name: str
    id: str
    partitions: int


@dataclass(frozen=True)
class Policy:
    """What Kafka removes from a topic: whether it is `compacted`, and how many seconds tombstones then stay.

    The defaults are for a topic whose settings can't be read.
    """

    compacted: bool = True
    tombstones: float = 86_400.0


class Topics:
    """Looks up and creates topics. Methods raise Unreachable if the brokers do not answer in time."""

    def __init__(self, brokers: Brokers, *, timeout: float = 15.0) -> None:
        self._brokers = brokers
        self._timeout = timeout

    def describe(self, names: Sequence[str]) -> dict[str, TopicOnBroker]:
        """The topics that exist, by name."""
        if not names:
            return {}
        found: dict[str, TopicOnBroker] = {}
        pending = self._brokers.admin().describe_topics(TopicCollection(list(names)), request_timeout=self._timeout)
        for name, future in pending.items():
            try:
                topic = self._brokers.answer(future, self._timeout + 5)
            except KafkaException as error:
                if error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                    continue
                raise self._unreachable(error, name, ALLOW_DESCRIBE) from None
            found[name] = TopicOnBroker(name, str(topic.topic_id), len(topic.partitions))
        return found

    def create(self, name: str, *, partitions: int, replication: int, config: Mapping[str, str]) -> None:
        """Create a topic unless it exists, and return when the brokers know it."""
        new = NewTopic(name, partitions, replication, config=dict(config))
        for future in self._brokers.admin().create_topics([new], request_timeout=self._timeout).values():
            try:
                self._brokers.answer(future, self._timeout + 5)
            except KafkaException as error:
                code = error.args[0].code()
                if code == KafkaError.TOPIC_ALREADY_EXISTS:
                    continue
                if code in (KafkaError._TRANSPORT, KafkaError._TIMED_OUT, KafkaError._ALL_BROKERS_DOWN):
                    raise self._unreachable(error) from None
                if code in _REFUSED:
                    raise self._unreachable(error, name, "allow Create on it") from None
                raise TopicError(
                    f"topic {name!r} could not be created on {self._brokers}: {error.args[0].str()}"
                ) from None

        deadline = time.monotonic() + self._timeout
        while not self.describe([name]):
            if time.monotonic() > deadline:
                raise Unreachable(f"Kafka at {self._brokers} did not show the new topic {name!r} in time: start again")
            time.sleep(0.02)

    def require_policy(self, name: str, policy: str) -> None:
        """Raise TopicError unless a topic has the cleanup policy that it must have."""
        found = self._config(name)["cleanup.policy"]
        if set(found.split(",")) != set(policy.split(",")):
            why = _REASONS[policy]
            raise TopicError(
                f"topic {name!r} on {self._brokers}: expected cleanup.policy={policy}, because {why}, got {found}: "
                "alter the topic, or name another one with to=…"
            )

    def longest(self, name: str) -> int:
        """The most bytes that a record of a topic may have."""
        return _longest(self._config(name))

    def lengths(self, names: Sequence[str]) -> dict[str, int]:
        """The same for several topics, by name, without those whose settings this user may not read."""
        return {name: _longest(config) for name, config in self._configs(names).items()}

    def policies(self, names: Sequence[str]) -> dict[str, Policy]:
        """What Kafka removes from topics, by name, without those whose settings this user may not read."""
        return {
            name: Policy("compact" in config["cleanup.policy"], int(config["delete.retention.ms"]) / 1000)
            for name, config in self._configs(names).items()
        }

    def require_room(self, name: str) -> None:
        """Raise TopicError unless a topic takes records of the least length."""
        if (found := self.longest(name)) < LEAST:
            raise TopicError(
                f"topic {name!r} on {self._brokers}: expected max.message.bytes of {LEAST} at least, because a change "
                f"of a key must fit, got {found}: alter the topic, or name another one with to=…"
            )

    def _config(self, name: str) -> dict[str, str]:
        found = self._configs([name])
        if name not in found:
            raise TopicError(
                f"topic {name!r} on {self._brokers}: expected to be allowed to ask for its settings, was refused: "
                "allow DescribeConfigs on it"
            )
        return found[name]

    def _configs(self, names: Sequence[str]) -> dict[str, dict[str, str]]:
        if not names:
            return {}
        resources = [ConfigResource(ConfigResource.Type.TOPIC, name) for name in names]
        found: dict[str, dict[str, str]] = {}
        for resource, future in (
            self._brokers.admin().describe_configs(resources, request_timeout=self._timeout).items()
        ):
            try:
                config = self._brokers.answer(future, self._timeout + 5)
            except KafkaException as error:
                if error.args[0].code() in _REFUSED:
                    log.warning("topic %s: its settings may not be read: allow DescribeConfigs on it", resource.name)
                    continue
                raise self._unreachable(error) from None
            found[resource.name] = {entry.name: entry.value or "" for entry in config.values()}
        return found

    def _unreachable(self, error: KafkaException, name: str = "", remedy: str = "") -> Unreachable:
        refused = error.args[0].code() in _REFUSED
        return self._brokers.unreachable(
            error, f", topic {name}" if refused and name else "", remedy if refused else ""
        )


def _longest(config: Mapping[str, str]) -> int:
    return min(int(config["max.message.bytes"]), MOST)

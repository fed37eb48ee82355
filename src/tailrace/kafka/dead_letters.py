"""Dead letters: records that can't be used, byte for byte, on `<topic>.dead-letters` with where from and why.

The pipeline writes those of the topics that it reads, a materializer those of changelogs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tailrace.errors import TopicError, Unreachable
from tailrace.kafka.delivery import LARGEST, Delivery, Headers, Outgoing
from tailrace.kafka.topics import Topics

SUFFIX = ".dead-letters"
# Added to the headers of a dead letter, each with `tailrace.` before it.
HEADERS = ("error", "topic", "partition", "offset", "timestamp", "views")
# As many as the broker says.
_REPLICATION = -1
_CONFIG = {"max.message.bytes": str(LARGEST)}


def dead_letter_topic(topic: str) -> str:
    """Where the dead letters of a topic go."""
    return topic + SUFFIX


@dataclass(frozen=True)
class DeadLetter:
    """A record as it was, where it was, when, in ms since 1970, and why `views` can't use it."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    error: str
    views: str

    def outgoing(self) -> Outgoing:
        """The record to write."""
        said = (self.error, self.topic, self.partition, self.offset, self.timestamp, self.views)
        added: Headers = [(f"tailrace.{name}", str(text).encode()) for name, text in zip(HEADERS, said, strict=True)]
        return Outgoing(dead_letter_topic(self.topic), None, self.key, self.value, [*self.headers, *added])


class DeadLetters:
    """Writes dead letters, and makes their topics."""

    def __init__(self, servers: str) -> None:
        self._servers = servers
        self._delivery = Delivery(servers)
        self._made: set[str] = set()

    def write(self, letters: Sequence[DeadLetter]) -> None:
        """Write letters; raises Unreachable where any may not have been written."""
        try:
            for name in {dead_letter_topic(letter.topic) for letter in letters} - self._made:
                Topics(self._servers).create(name, partitions=1, replication=_REPLICATION, config=_CONFIG)
                self._made.add(name)
            problem = self._delivery.write(letter.outgoing() for letter in letters)
        except TopicError as error:
            problem = str(error)
        if problem is not None:
            raise Unreachable(
                f"Kafka at {self._servers} did not take dead letters: {problem}. See whether the brokers answer, and "
                "whether the materializer may create and write their topics"
            )

"""Dead letters: records that can't be used, byte for byte, on `<topic>.dead-letters` with where from and why.

The pipeline writes those of the topics that it reads, a materializer those of changelogs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tailrace.errors import TopicError, Unreachable
from tailrace.kafka.delivery import Delivery, Headers, Outgoing
from tailrace.kafka.topics import DEAD_LETTERS, Topics

SUFFIX = ".dead-letters"
# Added to the headers of a dead letter, each with `tailrace.` before it.
HEADERS = ("error", "topic", "partition", "offset", "timestamp", "views")
# As many as the broker says.
_REPLICATION = -1
# What Kafka adds to a record, and to each header of it, at most.
ROOM = 100
ROOM_OF_HEADER = 10
# Added to the error of a letter that does not hold its record.
NOT_HELD = "; the record is longer than this topic takes, and stays where it is"


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

    def outgoing(self, longest: int) -> Outgoing:
        """The record to write; of one that does not fit into so many bytes, only where it is and why."""
        to = dead_letter_topic(self.topic)
        headers = [*self.headers, *self._added(self.error)]
        size = ROOM + len(self.key or b"") + len(self.value or b"")
        size += sum(ROOM_OF_HEADER + len(name.encode()) + len(value or b"") for name, value in headers)
        if size > longest:
            return Outgoing(to, None, None, None, self._added(self.error + NOT_HELD))
        return Outgoing(to, None, self.key, self.value, headers)

    def _added(self, error: str) -> Headers:
        said = (error, self.topic, self.partition, self.offset, self.timestamp, self.views)
        return [(f"tailrace.{name}", str(text).encode()) for name, text in zip(HEADERS, said, strict=True)]


class DeadLetters:
    """Writes dead letters, and makes their topics."""

    def __init__(self, servers: str) -> None:
        self._servers = servers
        self._delivery = Delivery(servers)
        # What each topic takes, of those that are known to exist.
        self._longest: dict[str, int] = {}

    def write(self, letters: Sequence[DeadLetter]) -> None:
        """Write letters; raises Unreachable where any may not have been written."""
        try:
            for name in {dead_letter_topic(letter.topic) for letter in letters} - self._longest.keys():
                topics = Topics(self._servers)
                topics.create(name, partitions=1, replication=_REPLICATION, config=DEAD_LETTERS)
                self._longest[name] = topics.longest(name)
            outgoing = (letter.outgoing(self._longest[dead_letter_topic(letter.topic)]) for letter in letters)
            problem = self._delivery.write(outgoing)
        except TopicError as error:
            problem = str(error)
        if problem is not None:
            # A topic may have been altered, or deleted.
            self._longest.clear()
            raise Unreachable(
                f"Kafka at {self._servers} did not take dead letters: {problem}. See whether the brokers answer, and "
                "whether the materializer may create and write their topics"
            )

"""Dead letters: records that can't be used, byte for byte, on `<topic>.dead-letters`, with their place and the reason.

The pipeline writes those of the topics that it reads, a materializer those of changelogs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tailrace.errors import TopicError, Unreachable
from tailrace.kafka.brokers import Brokers
from tailrace.kafka.delivery import Delivery, Headers, Outgoing
from tailrace.kafka.topics import DEAD_LETTERS, Topics

SUFFIX = ".dead-letters"
# The headers that a dead letter gets, each with the prefix `tailrace.`.
HEADERS = ("error", "topic", "partition", "offset", "timestamp", "views")
# The broker's default.
_REPLICATION = -1
# The most bytes that Kafka adds to a record, and to each of its headers.
ROOM = 100
ROOM_OF_HEADER = 10
# Added to the error of a letter that does not hold its record.
NOT_HELD = "; the record is longer than this topic takes, and stays where it is"


def dead_letter_topic(topic: str) -> str:
    """The topic for the dead letters of a topic."""
    return topic + SUFFIX


@dataclass(frozen=True)
class DeadLetter:
    """A record as it was, its place, its time in ms since 1970, and why `views` can't use it."""

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
        """The record to write. If it does not fit into this many bytes, it has only the headers."""
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

    def __init__(self, brokers: Brokers) -> None:
        self._brokers = brokers
        self._delivery = Delivery(brokers, "dead letters")
        # The longest record of each topic that is known to exist.
        self._longest: dict[str, int] = {}

    def write(self, letters: Sequence[DeadLetter]) -> None:
        """Write letters. Raises Unreachable if any may not have been written."""
        try:
            for name in {dead_letter_topic(letter.topic) for letter in letters} - self._longest.keys():
                topics = Topics(self._brokers)
                # Whoever lets no process create topics has made it beforehand.
                if not topics.describe([name]):
                    topics.create(name, partitions=1, replication=_REPLICATION, config=DEAD_LETTERS)
                self._longest[name] = topics.longest(name)
            outgoing = (letter.outgoing(self._longest[dead_letter_topic(letter.topic)]) for letter in letters)
            problem = self._delivery.write(outgoing)
        except TopicError as error:
            problem = str(error)
        if problem is not None:
            # The topic may have been altered, or deleted.
            self._longest.clear()
            raise Unreachable(
                f"Kafka at {self._brokers} did not take dead letters: {problem}. See whether the brokers answer, and "
                "whether the materializer may create and write their topics"
            )

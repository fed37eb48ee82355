"""What comes out of a contender: seen live by a consumer, or read afterwards with the time that the broker noted."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, TopicPartition

from view_kinds import Kind, Mark, read_row

_TRIES = 25
_PATIENCE = 120.0


def _consumer(servers: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "benchmark",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 100,
            "log_level": 0,
        }
    )


def _partitions(consumer: Consumer, topic: str) -> list[int]:
    """The partitions of a topic; none where it does not exist yet."""
    with suppress(KafkaException):
        found = consumer.list_topics(topic, timeout=10).topics[topic]
        return list(found.partitions) if found.error is None else []
    return []


def read_once(servers: str, topics: Sequence[str], records: int) -> None:
    """Read topics from their beginning until so many records were read."""
    consumer = _consumer(servers)
    places = [(topic, number) for topic in topics for number in _partitions(consumer, topic)]
    consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for topic, number in places])
    deadline = time.time() + _PATIENCE
    while records > 0:
        if time.time() > deadline:
            raise TimeoutError(f"{records} records were not read in {_PATIENCE:.0f} s")
        records -= sum(message.error() is None for message in consumer.consume(10_000, 1.0))
    consumer.close()


class Sights:
    """When each number of each mark was first seen by a consumer of the output; filled by a thread of its own."""

    def __init__(self, servers: str, topic: str, kind: Kind) -> None:
        self.seen: dict[Mark, list[tuple[int, float]]] = defaultdict(list)
        self._servers, self._topic, self._kind = servers, topic, kind
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    @property
    def any(self) -> bool:
        """Whether anything was seen."""
        return bool(self.seen)

    def lacks(self) -> int:
        """How many marks have not been seen with their last number."""
        return sum(number > self._newest(mark) for mark, number in list(self._kind.last.items()) if number)

    def close(self) -> None:
        """Stop watching."""
        self._stop.set()
        self._thread.join(10)

    def _newest(self, mark: Mark) -> int:
        sights = self.seen.get(mark)
        return sights[-1][0] if sights else 0

    def _watch(self) -> None:
        consumer = _consumer(self._servers)
        while not (found := _partitions(consumer, self._topic)) and not self._stop.wait(0.2):
            pass
        consumer.assign([TopicPartition(self._topic, number, OFFSET_BEGINNING) for number in found])
        while not self._stop.is_set():
            message = consumer.poll(0.2)
            at = time.time()
            if message is None or message.error() is not None or (value := message.value()) is None:
                continue
            for mark, number in self._kind.marks(read_row(value)):
                if number > self._newest(mark):
                    self.seen[mark].append((number, at))
        consumer.close()


class Absorbed:
    """The newest row of each key, read when the contender is quiet, so that reading takes nothing from it."""

    def __init__(self, servers: str, topic: str, kind: Kind) -> None:
        self._topic, self._kind = topic, kind
        self._consumer = _consumer(servers)
        self._next: dict[int, int] = {}
        self._rows: dict[bytes | None, tuple[bytes, float]] = {}
        self._newest = 0.0

    def count(self) -> int:
        """How many records the output has by now."""
        if not self._next:
            self._next = dict.fromkeys(_partitions(self._consumer, self._topic), 0)
        return sum(self._ends().values())

    def complete_at(self) -> float | None:
        """When the last event was absorbed; None where some are missing."""
        self._read()
        if self._kind.every:
            return self._newest if sum(self._next.values()) >= self._kind.outputs else None
        missing = {mark: number for mark, number in self._kind.last.items() if number}
        at = 0.0
        for value, written in self._rows.values():
            for mark, number in self._kind.marks(read_row(value)):
                if missing.get(mark, -1) == number:
                    del missing[mark]
                    at = max(at, written)
        return at if not missing else None

    def close(self) -> None:
        """Disconnect."""
        self._consumer.close()

    def _ends(self) -> dict[int, int]:
        found = {}
        for number in self._next:
            partition = TopicPartition(self._topic, number)
            for tries_left in range(_TRIES, -1, -1):
                try:
                    _, found[number] = self._consumer.get_watermark_offsets(partition, timeout=15)
                    break
                except KafkaException:
                    # A topic that was just created may have no leader yet.
                    if not tries_left:
                        raise
                    time.sleep(0.2)
        return found

    def _read(self) -> None:
        """Take in the records since the last call."""
        ends = self._ends()
        waiting = {number for number, end in ends.items() if self._next[number] < end}
        self._consumer.assign([TopicPartition(self._topic, number, self._next[number]) for number in waiting])
        while waiting:
            for message in self._consumer.consume(20_000, timeout=0.1):
                if message.error() is not None:
                    continue
                number, offset = message.partition(), message.offset()
                if number is None or offset is None or offset < self._next[number]:
                    continue
                self._next[number] = offset + 1
                written = message.timestamp()[1] / 1000
                self._newest = max(self._newest, written)
                if (value := message.value()) is not None and not self._kind.every:
                    self._rows[message.key()] = (value, written)
            waiting = {number for number in waiting if self._next[number] < ends[number]}
        self._consumer.unassign()

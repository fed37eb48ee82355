"""Query streams over a changelog that the test writes itself, and a client that follows them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import redis

from materializing import PARTITIONS, Changelog
from query_bench import COLUMNS
from query_following import Follower, Reading
from tailrace.contracts.catalog import Catalog, Column
from tailrace.contracts.commands import Command, Stream, commands_topic
from tailrace.dev.broker import Broker
from tailrace.kafka.brokers import Brokers
from tailrace.kafka.one_partition import OnePartitionWriter
from tailrace.kafka.topics import COMMANDS, Topics
from tailrace.queries import parse
from tailrace.store.layout.message import unpack_message


def now() -> int:
    return int(time.time() * 1000)


class CommandsWriter(OnePartitionWriter):
    """Writes commands; `flush` says whether Kafka has them."""

    def __init__(self, brokers: Brokers, app: str) -> None:
        super().__init__(brokers, commands_topic(app), "commands")

    def write(self, command: Command) -> None:
        """Write a command, which says what a stream is from now on."""
        self.put(command.stream.id, command.encode())

    def end(self, stream: str) -> None:
        """Write that a stream has ended."""
        self.put(stream, None)


class Streams:
    """Opens and ends streams over the view of a changelog."""

    def __init__(self, broker: Broker, fresh: str, *, topic: bool = True) -> None:
        self.log = Changelog(broker, fresh, COLUMNS)
        self._commands: CommandsWriter | None = None
        self._broker = broker
        if topic:
            self.make_topic()

    def make_topic(self) -> None:
        """Create the commands topic, as a pipeline does."""
        name = commands_topic(self.log.app)
        Topics(Brokers(self._broker.address)).create(name, partitions=1, replication=1, config=COMMANDS)
        self._commands = CommandsWriter(Brokers(self._broker.address), self.log.app)

    @property
    def commands(self) -> CommandsWriter:
        assert self._commands is not None
        return self._commands

    def open(self, stream: str, where: str, *, lasts: int = 600_000) -> None:
        self.commands.write(Command("open", Stream(stream, self.log.view, None, where, True, now() + lasts)))
        self.commands.flush()

    def end(self, stream: str) -> None:
        self.commands.end(stream)
        self.commands.flush()

    def query(self, where: str) -> str:
        return parse(where, (Column("k", "string"), *COLUMNS)).digest


class Following:
    """A client's copy of a query over all partitions."""

    def __init__(self, streams: Streams, url: str, where: str) -> None:
        log, query = streams.log, streams.query(where)
        self._reading = Reading(url, log.prefix, log.view, Catalog(log.app, {}).lineage(log.entry))
        self._client = redis.Redis.from_url(url)
        self._listener = self._client.pubsub(ignore_subscribe_messages=True)  # type: ignore[no-untyped-call]
        self.followers = {}
        for number in range(PARTITIONS):
            channel = self._reading.channel(number, query)
            self.followers[channel] = Follower(self._reading, number, query)
            self._listener.subscribe(channel)

    def copy(self) -> dict[bytes, bytes] | None:
        """The copy after all that has come; None until every partition was ready."""
        for _ in range(10_000):
            message: Any = self._listener.get_message(timeout=0.02)
            if message is None:
                break
            self.followers[message["channel"]].receive(unpack_message(message["data"]))
        if not all(follower.complete for follower in self.followers.values()):
            return None
        return {key: value for follower in self.followers.values() for key, value in follower.copy.items()}

    def resumed(self) -> dict[bytes, bytes] | None:
        """The copy of a client that comes back with its positions; None unless every partition is ready."""
        for follower in self.followers.values():
            follower.read()
        return self.copy()

    @property
    def resets(self) -> int:
        return sum(follower.resets for follower in self.followers.values())

    def close(self) -> None:
        self._listener.close()
        self._client.close()
        self._reading.close()


@contextmanager
def following(streams: Streams, url: str, where: str) -> Iterator[Following]:
    """Follow a query, which the test opens after that."""
    found = Following(streams, url, where)
    try:
        yield found
    finally:
        found.close()

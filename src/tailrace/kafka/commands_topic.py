"""The commands topic, which gateways write and every materializer follows."""

from __future__ import annotations

from tailrace.contracts.commands import commands_topic
from tailrace.kafka.brokers import Brokers
from tailrace.kafka.one_partition import OnePartitionReader

# Each distinct query is parsed when its command is read: few enough at a time not to hold up live changes.
_MOST = 100


class CommandsReader(OnePartitionReader):
    """Follows the commands of an app from the start of their topic. Without such a topic, nothing comes."""

    def __init__(self, brokers: Brokers, app: str) -> None:
        super().__init__(brokers, commands_topic(app), "commands")

    def take(self) -> list[tuple[str, bytes | None]]:
        """What has come since the last call, or a part of it: stream id and value, None if the stream has ended."""
        return self.poll(0, _MOST)

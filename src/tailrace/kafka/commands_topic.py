"""The commands topic: followed by every materializer, written by gateways."""

from __future__ import annotations

from tailrace.contracts.commands import commands_topic
from tailrace.kafka.one_partition import OnePartitionReader

# Each distinct query is parsed when its command is read: so few that live changes are not held up.
_MOST = 100


class CommandsReader(OnePartitionReader):
    """Follows the commands of an app from the start of their topic; nothing comes where there is no such topic."""

    def __init__(self, servers: str, app: str) -> None:
        super().__init__(servers, commands_topic(app), "commands")

    def take(self) -> list[tuple[str, bytes | None]]:
        """What has come since the last call, or a part of it: stream id and value, None where the stream has ended."""
        return self.poll(0, _MOST)

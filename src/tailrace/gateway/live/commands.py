"""Commands that the gateway writes: which streams there are, for materializers and other gateways."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Protocol

from tailrace.contracts.commands import Command
from tailrace.errors import TopicError, Unreachable
from tailrace.gateway.problems import Problem, kafka_away, unavailable

log = logging.getLogger(__name__)


class RecordWriter(Protocol):
    """Where commands go: `tailrace.kafka.async_writer.AsyncWriter`."""

    async def put(self, key: str, value: bytes | None) -> None:
        """Write a record, and return when the brokers have it; raises Unreachable or TopicError."""

    async def close(self) -> None: ...


class CommandWriter:
    """Writes commands, or says why it can't: without Kafka a gateway serves keys and feeds alone."""

    def __init__(self, writer: RecordWriter | None) -> None:
        self._writer = writer
        self._tasks: set[asyncio.Task[None]] = set()

    async def write(self, command: Command) -> None:
        """Write a command. Raises a Problem unless Kafka has it."""
        await self._put(command.stream.id, command.encode())

    async def end(self, stream: str) -> None:
        """Write that a stream has ended. Raises a Problem unless Kafka has it."""
        await self._put(stream, None)

    def later(self, stream: str, command: Command | None, ended: Callable[[], Awaitable[bool]] | None = None) -> None:
        """Write a command, or that a stream has ended, without waiting: the next one makes up for a failure.

        If the stream has `ended` when the command is written, the command may stand behind the end. Then the
        end is written again.
        """
        task = asyncio.create_task(self._try(stream, command, ended))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Wait for what is under way, and write nothing more."""
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._writer is not None:
            await self._writer.close()

    async def _try(self, stream: str, command: Command | None, ended: Callable[[], Awaitable[bool]] | None) -> None:
        try:
            await self._put(stream, None if command is None else command.encode())
            if ended is not None and await ended():
                await self._put(stream, None)
        except Problem as problem:
            log.warning("command=unwritten stream=%s error=%r", stream, problem.body.get("got"))

    async def _put(self, stream: str, value: bytes | None) -> None:
        if self._writer is None:
            raise Problem(
                501,
                "no queries here",
                expected="a gateway that knows Kafka, because queries are asked for over the commands topic",
                got="a gateway without the setting kafka",
                remedy="Start the gateway with --kafka, or follow keys.",
            )
        try:
            await self._writer.put(stream, value)
        except TopicError as error:
            raise unavailable(
                "no commands topic",
                "Start the pipeline: it creates the topic. Then ask again.",
                expected="the commands topic of the app in Kafka",
                got=str(error)[:200],
            ) from None
        except Unreachable as error:
            raise kafka_away(error, expected="Kafka, to ask materializers for the query") from None

"""A writer of one topic for the tasks of an event loop."""

from __future__ import annotations

import asyncio

from tailrace.errors import TopicError, Unreachable
from tailrace.kafka.async_delivery import TIMEOUT, AsyncDelivery, Full, Unwritten
from tailrace.kafka.brokers import Brokers
from tailrace.kafka.delivery import Outgoing


class AsyncWriter:
    """Writes records to the one partition of a topic, in order. `what` names the records in errors."""

    def __init__(self, brokers: Brokers, topic: str, what: str, timeout: float = TIMEOUT) -> None:
        self._brokers = brokers
        self._topic = topic
        self._what = what
        self._delivery = AsyncDelivery(brokers, what, linger=0, timeout=timeout)
        self._checked = False
        self._checking: asyncio.Task[None] | None = None

    async def put(self, key: str, value: bytes | None) -> None:
        """Write a record, and return when the brokers have it. Raises Unreachable or TopicError.

        A cancelled write may still have been made.
        """
        if not self._checked:
            await self._check_once()
        try:
            (found,) = await self._delivery.write([Outgoing(self._topic, 0, key.encode(), value, [])])
        except Full:
            raise self._unreachable("its queue is full") from None
        if isinstance(found, Unwritten):
            # An idempotent producer that has failed may refuse everything from then on.
            self._delivery.renew()
            self._checked = False
            raise self._unreachable(found.error)

    async def close(self) -> None:
        """Write nothing more. What is under way has failed."""
        await asyncio.to_thread(self._delivery.close)

    async def _check_once(self) -> None:
        """Raise TopicError unless the topic is there. Otherwise the client would wait half a minute for it.

        All callers that wait share one answer, so that all learn of an outage after the same time.
        """
        if self._checking is None:
            self._checking = asyncio.create_task(self._check())
        checking = self._checking
        try:
            await asyncio.shield(checking)
            self._checked = True
        finally:
            if checking.done() and self._checking is checking:
                self._checking = None

    async def _check(self) -> None:
        if not await self._delivery.sees(self._topic):
            raise TopicError(f"Kafka at {self._brokers} has no topic {self._topic}; the pipeline creates it")

    def _unreachable(self, why: str) -> Unreachable:
        return Unreachable(f"Kafka at {self._brokers} did not take the {self._what}: {why}")

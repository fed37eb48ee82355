"""Delivery for the tasks of an event loop: nothing in it blocks the loop's thread.

The producer is idempotent, and waits for all replicas. Its queue is bounded: if it is full, nothing of a request is
written. A record that was not acknowledged in time may still have been written; the caller learns that.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from confluent_kafka import KafkaError, KafkaException, Message, Producer, TopicCollection
from confluent_kafka.admin import AclOperation

from tailrace.kafka.brokers import FATAL, Brokers
from tailrace.kafka.delivery import ANY, Outgoing

log = logging.getLogger(__name__)

# A record that was not acknowledged after this many seconds is given up: its client has waited long enough.
TIMEOUT = 5.0
# The bytes of a record that Kafka takes by default, less what its envelope needs.
LARGEST = 990_000
_MOST = 10_000
_MOST_KILOBYTES = 65_536


@dataclass(frozen=True)
class Written:
    """A record is in Kafka, at this place."""

    partition: int
    offset: int


@dataclass(frozen=True)
class Unwritten:
    """A record was not acknowledged: why, whether it may be there nevertheless, and whether to try again."""

    error: str
    unsure: bool
    retry: bool


class Full(Exception):
    """The queue has no room for a request; nothing of it was written."""


class AsyncDelivery:
    """Writes records, and says what the brokers have acknowledged. Opens nothing before its first use.

    `what` names the records in logs. `linger` is how many ms a record waits for others to go with it. The client
    calls back only from `poll`, which runs in a thread of its own.
    """

    def __init__(self, brokers: Brokers, what: str, *, linger: int = 2, timeout: float = TIMEOUT) -> None:
        self._brokers = brokers
        self._revision = -1
        self._what = what
        self._linger = linger
        self._timeout = timeout
        self._producer: Producer | None = None
        self._closing = threading.Event()
        self._serving: threading.Thread | None = None

    @property
    def served(self) -> bool:
        """Whether there is a Kafka to write to."""
        return bool(self._brokers)

    async def write(self, records: Sequence[Outgoing]) -> list[Written | Unwritten]:
        """Write records, in their order, and return what became of each. Raises Full before the first is written."""
        producer = self._open()
        if len(producer) + len(records) > _MOST:
            raise Full
        loop = asyncio.get_running_loop()
        pending = [self._put(producer, record, loop) for record in records]
        if not pending:
            return []
        # A client that has failed for good may forget to report on a record.
        done, _ = await asyncio.wait(pending, timeout=2 * self._timeout)
        return [
            one.result() if one in done else await self._lost(record)
            for one, record in zip(pending, records, strict=True)
        ]

    async def sees(self, topic: str) -> bool:
        """Whether the brokers have a topic. Raises Unreachable, also if this process may not write to it."""
        return await asyncio.to_thread(self._sees, topic)

    def renew(self) -> None:
        """Open another connection for what is written next."""
        self._producer = None

    def close(self) -> None:
        """Close the connection, and give up what was not acknowledged."""
        self._closing.set()
        if self._serving is not None:
            self._serving.join()
        self._producer = self._serving = None

    def _sees(self, topic: str) -> bool:
        asked = TopicCollection([topic])
        (pending,) = (
            self._brokers.admin()
            .describe_topics(asked, include_authorized_operations=True, request_timeout=self._timeout)
            .values()
        )
        try:
            allowed = self._brokers.answer(pending, self._timeout + 1).authorized_operations
            # Not all brokers say what is allowed.
            if allowed and AclOperation.WRITE not in allowed:
                raise KafkaException(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED))
        except KafkaException as error:
            if error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                return False
            self._brokers.refusals.unwritten(error.args[0], topic)
            raise self._brokers.unreachable(error, f", topic {topic}", "allow Write on it") from None
        return True

    def _put(
        self, producer: Producer, record: Outgoing, loop: asyncio.AbstractEventLoop
    ) -> asyncio.Future[Written | Unwritten]:
        future: asyncio.Future[Written | Unwritten] = loop.create_future()

        def settle(result: Written | Unwritten) -> None:
            # The caller may be gone.
            if not future.done():
                future.set_result(result)

        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                self._brokers.refusals.unwritten(error, record.topic)
            result = self._failed(error) if error is not None else Written(message.partition() or 0, _offset(message))
            with suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(settle, result)

        try:
            producer.produce(
                record.topic,
                record.value,
                key=record.key,
                headers=record.headers,  # type: ignore[arg-type]
                on_delivery=delivered,
                partition=ANY if record.partition is None else record.partition,
            )
        except BufferError:
            settle(Unwritten("the queue of the gateway is full", unsure=False, retry=True))
        except KafkaException as error:
            settle(self._failed(error.args[0]))
        return future

    async def _lost(self, record: Outgoing) -> Unwritten:
        refused = await asyncio.to_thread(self._brokers.refusals.unwritable, record.topic)
        late = f"Kafka did not acknowledge it within {2 * self._timeout:.0f} s"
        return Unwritten(self._brokers.why(refused or late), unsure=refused is None, retry=True)

    def _failed(self, error: KafkaError) -> Unwritten:
        if error.fatal():
            # This producer can't write any more: the next request gets a new one.
            self.renew()
        silent = error.code() in (KafkaError._MSG_TIMED_OUT, KafkaError.REQUEST_TIMED_OUT)
        text = self._brokers.why(f"Kafka did not acknowledge it within {self._timeout:.0f} s" if silent else error)
        return Unwritten(text, unsure=silent, retry=silent or error.retriable() or error.fatal())

    def _open(self) -> Producer:
        revision = self._brokers.revision
        if self._producer is None or self._revision != revision:
            # What the one before has under way is still served; see `_serve`.
            fixed = {"delivery.timeout.ms": int(self._timeout * 1000), "queue.buffering.max.messages": _MOST}
            usual = {"linger.ms": self._linger, "queue.buffering.max.kbytes": _MOST_KILOBYTES}
            producer = self._producer = self._brokers.producer(self._what, fixed, usual)
            self._revision = revision
            self._serving = threading.Thread(target=self._serve, args=(producer,), name=self._what, daemon=True)
            self._serving.start()
        return self._producer

    def _serve(self, producer: Producer) -> None:
        """Make the client call back, as long as the producer is in use or has something under way."""
        while not self._closing.is_set() and (self._producer is producer or len(producer)):
            try:
                producer.poll(0.1)
            except FATAL as error:
                log.warning("%s: the producer has failed, and is replaced: %r", self._what, error)
                if self._producer is producer:
                    self.renew()


def _offset(message: Message) -> int:
    found = message.offset()
    return found if found is not None else -1

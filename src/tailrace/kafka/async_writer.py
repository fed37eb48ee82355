"""A writer of one topic for the tasks of an event loop: nothing in it waits on the loop's thread."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from tailrace.errors import TopicError, Unreachable

_TIMEOUT = 5.0
_POLL = 0.2


class AsyncWriter:
    """Writes records to the one partition of a topic, in order. `what` names the topic in errors.

    The client calls back only from `poll`, which a thread of its own is in; it ends with `close`.
    """

    def __init__(self, servers: str, topic: str, what: str, timeout: float = _TIMEOUT) -> None:
        self._servers = servers
        self._topic = topic
        self._what = what
        self._timeout = timeout
        self._producer: Producer | None = None
        self._checked = False
        self._checking: asyncio.Task[None] | None = None
        self._closed = threading.Event()

    async def put(self, key: str, value: bytes | None) -> None:
        """Write a record, and return when the brokers have it; raises Unreachable or TopicError.

        A write that is cancelled may have been made.
        """
        if not self._checked:
            await self._check_once()
        loop = asyncio.get_running_loop()
        done: asyncio.Future[str | None] = loop.create_future()

        def delivered(error: KafkaError | None, _: Message) -> None:
            # The loop may have ended before the last answer.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(_resolve, done, error)

        try:
            self._running().produce(self._topic, value, key=key.encode(), partition=0, on_delivery=delivered)
        except BufferError:
            raise self._unreachable("its queue is full") from None
        except KafkaException as error:
            self._drop()
            raise self._unreachable(str(error.args[0])) from None
        refused = await done
        if refused is not None:
            # An idempotent producer that has failed may refuse everything from then on.
            self._drop()
            raise self._unreachable(refused)

    async def close(self) -> None:
        """Write nothing more; what is under way has failed."""
        self._drop()

    async def _check_once(self) -> None:
        """See that the topic is there: a client would wait half a minute for one that nobody has made.

        All who wait share one answer, so that an outage is told to all of them after the same time.
        """
        if self._checking is None:
            self._checking = asyncio.create_task(asyncio.to_thread(self._check))
        checking = self._checking
        try:
            await asyncio.shield(checking)
            self._checked = True
        finally:
            if checking.done() and self._checking is checking:
                self._checking = None

    def _check(self) -> None:
        try:
            found = self._running().list_topics(timeout=self._timeout).topics
        except KafkaException as error:
            raise self._unreachable(str(error.args[0])) from None
        if self._topic not in found:
            raise TopicError(f"Kafka at {self._servers} has no topic {self._topic}; the pipeline creates it")

    def _running(self) -> Producer:
        if self._producer is None:
            self._producer = Producer(
                {
                    "bootstrap.servers": self._servers,
                    "acks": "all",
                    "enable.idempotence": True,
                    "linger.ms": 0,
                    "message.timeout.ms": int(self._timeout * 1000),
                    "log_level": 0,
                }
            )
            self._closed = threading.Event()
            threading.Thread(target=_poll, args=(self._producer, self._closed), daemon=True, name=self._what).start()
        return self._producer

    def _drop(self) -> None:
        self._closed.set()
        self._producer, self._checked = None, False

    def _unreachable(self, why: str) -> Unreachable:
        return Unreachable(f"Kafka at {self._servers} did not take the {self._what}: {why}")


def _resolve(done: asyncio.Future[str | None], error: KafkaError | None) -> None:
    if not done.done():
        done.set_result(None if error is None else error.str())


def _poll(producer: Producer, closed: threading.Event) -> None:
    while not closed.is_set() or len(producer):
        producer.poll(_POLL)

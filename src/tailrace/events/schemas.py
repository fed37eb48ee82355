"""The schemas that events are written with: those declared in the catalog, and the newest of a registry's subjects.

The gateway keeps a registry's schemas and refreshes them in the background. While the registry is away, it
goes on with those that it has: what an id means never changes. An event waits for the registry only if it is
the first of its topic, or if it does not fit: there may be a newer schema.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

from tailrace.avro.encoding import Encoding
from tailrace.avro.registry import Registry
from tailrace.avro.schema import Unwritable
from tailrace.avro.writer_safety import unusable
from tailrace.contracts.catalog import CatalogTopic
from tailrace.errors import TailraceError, Unreachable
from tailrace.events.codecs import AVRO, TopicCodecs, declared

log = logging.getLogger(__name__)

# A schema is refreshed after so many seconds. Requests make the gateway ask at most once in `_LEAST` seconds.
FRESH = 30.0
_LEAST = 1.0
# How long a client may have to wait for the registry, in seconds.
TIMEOUT = 5.0
_THREADS = 4


class Unregistered(Exception):
    """A topic has its schemas in a registry, but the gateway has no registry."""


class EventSchemas:
    """Knows the codecs of every topic that takes events. `version` rises with every new schema.

    The registry must not wait longer than `TIMEOUT`.
    """

    def __init__(self, registry: Registry | None = None) -> None:
        self.version = 0
        self._registry = registry
        # Threads of its own: a registry that hangs must not occupy those that other work needs.
        self._threads = ThreadPoolExecutor(_THREADS, "registry")
        self._codecs: dict[str, TopicCodecs] = {}
        self._subjects: dict[str, Encoding] = {}
        self._tried: dict[str, float] = {}
        self._asking: dict[str, asyncio.Task[Encoding]] = {}
        self._complaints: dict[str, str] = {}

    def known(self, topic: CatalogTopic) -> TopicCodecs | None:
        """The codecs of a topic, without asking the registry; None if its format can't be written, or no
        schema is known yet.

        Raises Unwritable if nothing can be written with the schema in the catalog.
        """
        if not topic.registry:
            return self._declared(topic)
        if any(subject not in self._subjects for subject in _needed(topic)):
            return None
        value, key = (self._subjects[subject] if subject else None for subject in _subjects(topic))
        return self._of(topic, value, key)

    async def codecs(self, topic: CatalogTopic) -> TopicCodecs | None:
        """The codecs of a topic; None if its format can't be written.

        Raises Unregistered, Unwritable, and what the registry raises: Unreachable or RegistryError.
        """
        found = self.known(topic)
        if found is not None or not topic.registry:
            return found
        for subject in _needed(topic):
            if subject not in self._subjects:
                await self._ask(subject)
        return self.known(topic)

    async def newer(self, than: TopicCodecs) -> TopicCodecs | None:
        """The topic's codecs, if the registry has newer ones; None if it has not, or does not answer."""
        topic = than.topic
        if not topic.registry:
            return None
        try:
            for subject in _needed(topic):
                if time.monotonic() - self._tried[subject] >= _LEAST:
                    await self._ask(subject)
            found = self.known(topic)
        except (TailraceError, Unwritable):
            return None
        return found if found is not than else None

    def keep(self, topics: Iterable[CatalogTopic]) -> None:
        """Ask, in the background, for the schemas of topics that are missing or old."""
        if self._registry is None:
            return
        needed = {subject for topic in topics if topic.accept and topic.registry for subject in _needed(topic)}
        for subject in needed:
            if subject not in self._subjects or time.monotonic() - self._tried[subject] >= FRESH:
                self._begin(self._registry, subject)

    async def close(self) -> None:
        """Ask for nothing more."""
        asking = list(self._asking.values())
        for task in asking:
            task.cancel()
        await asyncio.gather(*asking, return_exceptions=True)
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _declared(self, topic: CatalogTopic) -> TopicCodecs | None:
        known = self._codecs.get(topic.name)
        if known is None or known.topic != topic:
            known = declared(topic)
            if known is not None:
                self._codecs[topic.name] = known
        return known

    def _of(self, topic: CatalogTopic, value: Encoding | None, key: Encoding | None) -> TopicCodecs:
        known = self._codecs.get(topic.name)
        if known is None or known.topic != topic or (known.value.encoding, known.key.encoding) != (value, key):
            known = self._codecs[topic.name] = TopicCodecs.of(topic, value, key)
        return known

    async def _ask(self, subject: str) -> None:
        """Wait for the answer. All waiting callers share one request, which goes on if one of them gives up."""
        if self._registry is None:
            raise Unregistered
        try:
            async with asyncio.timeout(TIMEOUT):
                await asyncio.shield(self._begin(self._registry, subject))
        except TimeoutError:
            raise Unreachable(f"the schema registry did not answer within {TIMEOUT:.0f} s") from None

    def _begin(self, registry: Registry, subject: str) -> asyncio.Task[Encoding]:
        if subject not in self._asking:
            self._tried[subject] = time.monotonic()
            task = self._asking[subject] = asyncio.create_task(self._latest(registry, subject))
            task.add_done_callback(lambda done: self._answered(subject, done))
        return self._asking[subject]

    async def _latest(self, registry: Registry, subject: str) -> Encoding:
        id, text = await asyncio.get_running_loop().run_in_executor(self._threads, registry.latest, subject)
        held = self._subjects.get(subject)
        if held is not None and (held.id, held.schema) == (id, text):
            return held
        reason = unusable(text)
        if reason is not None:
            raise Unwritable(reason)
        return Encoding(text, id)

    def _answered(self, subject: str, done: asyncio.Task[Encoding]) -> None:
        self._asking.pop(subject, None)
        if done.cancelled():
            return
        error = done.exception()
        if error is not None:
            # Logged once, because the gateway goes on asking.
            if self._complaints.get(subject) != str(error):
                self._complaints[subject] = str(error)
                log.warning("schema=unknown subject=%s error=%r", subject, str(error))
            return
        self._complaints.pop(subject, None)
        before = self._subjects.get(subject)
        found = self._subjects[subject] = done.result()
        if found is not before:
            self.version += 1
            log.info("schema=known subject=%s id=%s", subject, found.id)


def _subjects(topic: CatalogTopic) -> tuple[str | None, str | None]:
    """The registry's subjects for the schemas of values and of keys; None for those that are not Avro."""
    return (
        f"{topic.name}-value" if topic.format == AVRO else None,
        f"{topic.name}-key" if topic.key_format == AVRO else None,
    )


def _needed(topic: CatalogTopic) -> list[str]:
    return [subject for subject in _subjects(topic) if subject is not None]

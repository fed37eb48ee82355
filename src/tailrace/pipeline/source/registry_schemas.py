"""The schemas of topics that a registry keeps: what to read a topic with, and what its records were written with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tailrace.avro.registry import Registry
from tailrace.declarations.topics import Topic
from tailrace.errors import RegistryError
from tailrace.pipeline.source import wire
from tailrace.pipeline.source.writer_schemas import WriterSchemas


class RegistrySchemas:
    """Asks the registry once per topic; what it answers stays for the life of the process.

    Methods raise RegistryError or Unreachable as the registry does, and RegistryError if none was given.
    """

    def __init__(self, registry: Registry | None) -> None:
        self._registry = registry
        self._resolved: dict[Topic, Topic] = {}
        self._pins: dict[str, Mapping[str, Sequence[str | None]]] = {}
        self._writers: dict[str, WriterSchemas] = {}

    def pin(self, output: str, schemas: Mapping[str, Sequence[str | None]]) -> None:
        """Have an output read its topics with the schemas, (value, key) by topic, that it was built with."""
        self._pins[output] = schemas

    def resolve(self, topic: Topic, output: str | None = None) -> Topic:
        """The topic with the schemas that it is read with.

        They are those that are declared, or those that an output was built with, or the newest of its subjects.
        """
        if not topic.registry:
            return topic
        if (pin := self._pins.get(output or "", {}).get(topic.name)) is not None:
            value, key = pin
            return replace(topic, schema=topic.schema or value, key_schema=topic.key_schema or key)
        bare = replace(topic, steps=())
        if bare not in self._resolved:
            schema, key_schema = topic.schema, topic.key_schema
            if topic.format == "avro" and schema is None:
                schema = self._asked(topic).latest(f"{topic.name}-value")[1]
            if topic.key_format == "avro" and key_schema is None:
                key_schema = self._asked(topic).latest(f"{topic.name}-key")[1]
            self._resolved[bare] = replace(bare, schema=schema, key_schema=key_schema)
        return replace(self._resolved[bare], steps=topic.steps)

    def writers(self, topic: Topic) -> tuple[WriterSchemas | None, WriterSchemas | None]:
        """What the values and the keys of a topic were written with, as far as is known."""
        value = self._known(topic, f"{topic.name}-value") if topic.format == "avro" else None
        key = self._known(topic, f"{topic.name}-key") if topic.key_format == "avro" else None
        return value, key

    def learn(self, error: str) -> bool:
        """Look up the ids that have ended a query; False if it ended for another reason."""
        ids = wire.unknown_ids(error)
        if self._registry is None or not ids:
            return False
        for writers in self._writers.values():
            writers.learn(self._registry, ids)
        return True

    def _known(self, topic: Topic, subject: str) -> WriterSchemas:
        if subject not in self._writers:
            writers = WriterSchemas(subject)
            writers.refresh(self._asked(topic))
            self._writers[subject] = writers
        return self._writers[subject]

    def _asked(self, topic: Topic) -> Registry:
        if self._registry is None:
            raise RegistryError(
                f"{topic.place}: topic {topic.name!r}: expected the address of its schema registry, got none: "
                "give --registry http://… (TAILRACE_REGISTRY)"
            )
        return self._registry

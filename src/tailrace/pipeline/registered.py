"""Topics whose schemas a registry keeps: what they are read with, and what their records were written with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tailrace.app import App
from tailrace.catalog import Catalog
from tailrace.errors import RegistryError
from tailrace.pipeline import wire
from tailrace.pipeline.registry import Registry
from tailrace.pipeline.writers import Writers
from tailrace.topics import Table, Topic
from tailrace.views import LATEST, Changelog, Feed, Source, View


class Registered:
    """Asks the registry once per topic; what it answers stays for the life of the process.

    Methods raise RegistryError or Unreachable as the registry does, and RegistryError where none was given.
    """

    def __init__(self, url: str) -> None:
        self._registry = Registry(url) if url else None
        self._resolved: dict[Topic, Topic] = {}
        self._writers: dict[str, Writers] = {}

    def resolve(self, topic: Topic) -> Topic:
        """The topic with the schemas that it is read with: those that are declared, or the newest of its subjects."""
        if not topic.registry:
            return topic
        bare = replace(topic, steps=())
        if bare not in self._resolved:
            schema, key_schema = topic.schema, topic.key_schema
            if topic.format == "avro" and schema is None:
                schema = self._asked(topic).latest(f"{topic.name}-value")[1]
            if topic.key_format == "avro" and key_schema is None:
                key_schema = self._asked(topic).latest(f"{topic.name}-key")[1]
            self._resolved[bare] = replace(bare, schema=schema, key_schema=key_schema)
        return replace(self._resolved[bare], steps=topic.steps)

    def writers(self, topic: Topic) -> tuple[Writers | None, Writers | None]:
        """What the values and the keys of a topic were written with, as far as is known."""
        value = self._known(topic, f"{topic.name}-value") if topic.format == "avro" else None
        key = self._known(topic, f"{topic.name}-key") if topic.key_format == "avro" else None
        return value, key

    def learn(self, error: str) -> bool:
        """Look up the ids that have ended a query; False where it ended for another reason."""
        ids = wire.unknown_ids(error)
        if self._registry is None or not ids:
            return False
        for writers in self._writers.values():
            writers.learn(self._registry, ids)
        return True

    def _known(self, topic: Topic, subject: str) -> Writers:
        if subject not in self._writers:
            writers = Writers(subject)
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


def pinned(app: App, known: Catalog | None) -> App:
    """The app with the columns that are built, where all columns of a registry's schema were asked for.

    A field that is added to the schema changes no view by itself: it comes with the next rebuild.
    """
    if known is None:
        return app
    return app.with_outputs([_pinned(output, known) for output in app.outputs])


def _pinned(output: View | Feed, known: Catalog) -> View | Feed:
    entry = known.views.get(output.name) or known.feeds.get(output.name)
    one_event = isinstance(output, Feed) or output.kind == LATEST
    if entry is None or output.columns is not None or not one_event or not follows_registry(output.sources[0][1]):
        return output
    columns: Mapping[str, str] = {column.name: f"`{column.name}`" for column in entry.columns}
    return replace(output, columns=columns)


def follows_registry(source: Source) -> bool:
    """Whether the columns of a source are those of the newest schema in a registry."""
    if isinstance(source, Changelog):
        return False
    topic = source.records if isinstance(source, Table) else source
    return topic.registry and (
        (topic.format == "avro" and topic.schema is None) or (topic.key_format == "avro" and topic.key_schema is None)
    )

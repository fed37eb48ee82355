"""The catalog topic, as the pipeline uses it: what it serves, how far it is, and what operators ask for.

`views` and `feeds` are the entries to be written next; `write` makes them known, all at one moment.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace

from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from tailrace.contracts.catalog import (
    APP_RECORD,
    BUILDING_RECORDS,
    DEAD_LETTER_RECORDS,
    PROGRESS_RECORDS,
    Catalog,
    CatalogFeed,
    CatalogTopic,
    CatalogView,
    Column,
    ViewProgress,
    catalog_topic,
)
from tailrace.contracts.requests import REQUEST_RECORDS, Request, request_for
from tailrace.declarations.app import App
from tailrace.declarations.topics import Table, Topic
from tailrace.kafka.brokers import Brokers
from tailrace.kafka.catalog_topic import CatalogReader, CatalogWriter
from tailrace.pipeline.lifecycle.past import Past
from tailrace.pipeline.source.decoding import avro_key_schema, avro_schema, key_type, value_schema
from tailrace.pipeline.view.events import REASONS


class PipelineCatalog:
    """Reads the whole topic when it is made; `known` is the catalog of the pipeline before."""

    def __init__(self, app: str, brokers: Brokers, topics: Mapping[str, CatalogTopic]) -> None:
        topic = catalog_topic(app)
        self._app = app
        self._topics = topics
        self._reader = CatalogReader(brokers, topic)
        self._records = self._reader.read_whole()
        self._past = Past(app, self._records)
        self.known = self._past.catalog()
        self.views: dict[str, CatalogView] = {}
        self.feeds: dict[str, CatalogFeed] = {}
        self._writer = CatalogWriter(brokers, topic)

    @property
    def set_aside(self) -> Counter[str]:
        """How many records could not be read, or failed, and were passed over, by what they were to be."""
        return self._past.set_aside

    def write(self) -> None:
        """Make the entries known; returns when Kafka has them."""
        catalog = Catalog(app=self._app, views=self.views, feeds=self.feeds, topics=dict(self._topics))
        self._writer.put(APP_RECORD, catalog.encode())
        self._writer.flush()

    def flush(self) -> None:
        """Return when Kafka has all that was reported."""
        self._writer.flush()

    def close(self) -> None:
        """Write what waits, and read no more."""
        self._writer.flush()
        self._reader.close()

    def asked(self) -> Iterator[tuple[str, bytes]]:
        """The views and feeds that an operator has asked something of since the last call, each with the record."""
        for key, value in self._reader.poll(0):
            if key.startswith(REQUEST_RECORDS) and value is not None:
                yield key.removeprefix(REQUEST_RECORDS), value

    def take_request(self, name: str, value: bytes) -> Request | None:
        """Note a record that asks for something; None if it can't be read."""
        self._records[REQUEST_RECORDS + name] = value
        request = self.request(name)
        if request is None:
            self.set_aside["request"] += 1
        return request

    def refuse_request(self, name: str) -> None:
        """Pass a request over that has failed."""
        self.set_aside["request"] += 1
        self._records.pop(REQUEST_RECORDS + name, None)

    def request(self, name: str) -> Request | None:
        """What was asked for last of a view or feed."""
        return request_for(name, self._records)

    def ask(self, name: str, request: Request) -> None:
        """Ask for something as an operator would; it is followed when the record comes back."""
        self._records[REQUEST_RECORDS + name] = request.encode()
        self._writer.put(REQUEST_RECORDS + name, request.encode())

    def report(self, progress: ViewProgress) -> None:
        """Tell how far a query is that readers have."""
        self._put(PROGRESS_RECORDS + progress.view, progress)

    def report_building(self, progress: ViewProgress) -> None:
        """Tell how far a build is that is to take the place of another."""
        self._put(BUILDING_RECORDS + progress.view, progress)

    def forget_building(self, name: str) -> None:
        """A build has taken the place of the other: from now on `report` tells how far it is."""
        self._writer.put(BUILDING_RECORDS + name, None)

    def report_dead_letters(self, progress: ViewProgress) -> None:
        """Tell how far the search of a topic is."""
        self._writer.put(DEAD_LETTER_RECORDS + progress.view, progress.encode())

    def progress(self, name: str, generation: int) -> ViewProgress:
        """The totals of a build so far; a new generation counts from zero."""
        for key in (PROGRESS_RECORDS + name, BUILDING_RECORDS + name):
            progress = self._past.progress(key)
            if progress is not None and progress.generation == generation:
                return replace(progress, degraded=())
        return _nothing(name, generation)

    def dead_letters_of(self, topic: str, topic_id: str) -> ViewProgress:
        """How far the search of a topic is; a topic that was made anew is searched from its beginning."""
        progress = self._past.progress(DEAD_LETTER_RECORDS + topic) or _nothing(topic, 1)
        return progress if progress.topic_id == topic_id else replace(_nothing(topic, 1), topic_id=topic_id)

    def _put(self, key: str, progress: ViewProgress) -> None:
        data = progress.encode()
        self._records[key] = data
        self._writer.put(key, data)


def _nothing(name: str, generation: int) -> ViewProgress:
    return ViewProgress(view=name, generation=generation, batch=-1, inputs=0, skipped=dict.fromkeys(REASONS, 0))


def catalog_topics(app: App, session: SparkSession) -> dict[str, CatalogTopic]:
    """The declared topics and tables of an app, as the gateway must know them to take events for them.

    Only those that accept events have their columns: others need none.
    """
    return {source.name: _topic(source, session) for source in app.topics}


def _topic(source: Topic | Table, session: SparkSession) -> CatalogTopic:
    topic = source.records if isinstance(source, Table) else source
    return CatalogTopic(
        name=topic.name,
        format=topic.format,
        columns=_columns(topic, session),
        key_format=topic.key_format,
        key=_key_columns(topic, session),
        key_columns=source.key if isinstance(source, Table) else (),
        accept=topic.accept,
        schema=_schema_text(avro_schema(topic)) if _written_with(topic, topic.format) else None,
        key_schema=_schema_text(avro_key_schema(topic)) if _written_with(topic, topic.key_format) else None,
        registry=topic.registry,
    )


def _written_with(topic: Topic, format: str) -> bool:
    """Whether a declared schema is what Avro values or keys are written with; a registry's is asked for by its id."""
    return topic.accept and format == "avro" and not topic.registry


def _schema_text(schema: object) -> str:
    return json.dumps(schema, separators=(",", ":"), ensure_ascii=False)


def _columns(topic: Topic, session: SparkSession) -> tuple[Column, ...]:
    # A registry's schema may change while the catalog stands.
    if not topic.accept or (topic.registry and topic.format == "avro"):
        return ()
    return _fields(value_schema(session, topic))


def _key_columns(topic: Topic, session: SparkSession) -> tuple[Column, ...]:
    if not topic.accept or (topic.registry and topic.key_format == "avro"):
        return ()
    found = key_type(session, topic)
    return _fields(found) if isinstance(found, StructType) else (Column("", found.simpleString()),)


def _fields(schema: StructType) -> tuple[Column, ...]:
    return tuple(Column(field.name, field.dataType.simpleString()) for field in schema.fields)

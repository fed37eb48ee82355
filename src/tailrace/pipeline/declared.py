"""Declared topics, as the catalog has them: what the gateway must know to take events for them."""

from __future__ import annotations

from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from tailrace.app import App
from tailrace.catalog import CatalogTopic, Column
from tailrace.pipeline.decoding import key_type, value_schema
from tailrace.topics import Table, Topic


def declared_topics(app: App, session: SparkSession) -> dict[str, CatalogTopic]:
    """The topics and tables of an app, by name. Only those that accept events have their columns: others need none."""
    return {source.name: _entry(source, session) for source in app.topics}


def _entry(source: Topic | Table, session: SparkSession) -> CatalogTopic:
    topic = source.records if isinstance(source, Table) else source
    return CatalogTopic(
        name=topic.name,
        format=topic.format,
        columns=_columns(topic, session),
        key_format=topic.key_format,
        key=_key(topic, session),
        key_columns=source.key if isinstance(source, Table) else (),
        accept=topic.accept,
    )


def _columns(topic: Topic, session: SparkSession) -> tuple[Column, ...]:
    # A registry's schema may change while the catalog stands.
    if not topic.accept or topic.registry:
        return ()
    return _fields(value_schema(session, topic))


def _key(topic: Topic, session: SparkSession) -> tuple[Column, ...]:
    if not topic.accept or topic.registry:
        return ()
    found = key_type(session, topic)
    return _fields(found) if isinstance(found, StructType) else (Column("", found.simpleString()),)


def _fields(schema: StructType) -> tuple[Column, ...]:
    return tuple(Column(field.name, field.dataType.simpleString()) for field in schema.fields)

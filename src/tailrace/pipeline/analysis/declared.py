"""Declared topics, as the catalog has them: what the gateway must know to take events for them."""

from __future__ import annotations

import json

from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from tailrace.contracts.catalog import CatalogTopic, Column
from tailrace.declarations.app import App
from tailrace.declarations.topics import Table, Topic
from tailrace.pipeline.source.decoding import avro_key_schema, avro_schema, key_type, value_schema


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
        schema=_text(avro_schema(topic)) if _written_with(topic, topic.format) else None,
        key_schema=_text(avro_key_schema(topic)) if _written_with(topic, topic.key_format) else None,
        registry=topic.registry,
    )


def _written_with(topic: Topic, format: str) -> bool:
    """Whether a declared schema is what Avro values or keys are written with; a registry's is asked for by its id."""
    return topic.accept and format == "avro" and not topic.registry


def _text(schema: object) -> str:
    return json.dumps(schema, separators=(",", ":"), ensure_ascii=False)


def _columns(topic: Topic, session: SparkSession) -> tuple[Column, ...]:
    # A registry's schema may change while the catalog stands.
    if not topic.accept or (topic.registry and topic.format == "avro"):
        return ()
    return _fields(value_schema(session, topic))


def _key(topic: Topic, session: SparkSession) -> tuple[Column, ...]:
    if not topic.accept or (topic.registry and topic.key_format == "avro"):
        return ()
    found = key_type(session, topic)
    return _fields(found) if isinstance(found, StructType) else (Column("", found.simpleString()),)


def _fields(schema: StructType) -> tuple[Column, ...]:
    return tuple(Column(field.name, field.dataType.simpleString()) for field in schema.fields)

"""The catalog topic: read whole, followed, and written one record at a time."""

from __future__ import annotations

import logging

from tailrace.contracts.catalog import APP_RECORD, Catalog, catalog_topic
from tailrace.errors import NewerFormat
from tailrace.kafka.brokers import Brokers
from tailrace.kafka.one_partition import OnePartitionReader, OnePartitionWriter
from tailrace.kafka.topics import Topics

log = logging.getLogger(__name__)


class CatalogReader(OnePartitionReader):
    """Follows the one partition of the catalog topic from its start."""

    def __init__(self, brokers: Brokers, topic: str) -> None:
        super().__init__(brokers, topic, "catalog", _usable)


def _usable(key: str, value: bytes) -> bool:
    """Whether a record counts. If a catalog can't be read, the one before it does, unless compaction has removed it."""
    try:
        if key == APP_RECORD:
            Catalog.decode(value)
    except NewerFormat:
        return True
    except ValueError as error:
        log.error("a catalog on the catalog topic can't be read, and is passed over: %s", error)
        return False
    return True


def read_records(brokers: Brokers, app: str, topics: Topics) -> dict[str, bytes]:
    """The newest value per record key of an app's catalog topic; empty if there is no such topic."""
    name = catalog_topic(app)
    if not topics.describe([name]):
        return {}
    reader = CatalogReader(brokers, name)
    try:
        return reader.read_whole()
    finally:
        reader.close()


class CatalogWriter(OnePartitionWriter):
    """Writes records of the catalog topic."""

    def __init__(self, brokers: Brokers, topic: str) -> None:
        super().__init__(brokers, topic, "catalog")

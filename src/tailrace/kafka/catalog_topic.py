"""The catalog topic: read whole, followed, and written one record at a time."""

from __future__ import annotations

from tailrace.catalog import catalog_topic
from tailrace.kafka.one_partition import OnePartitionReader, OnePartitionWriter
from tailrace.kafka.topics import Topics


class CatalogReader(OnePartitionReader):
    """Follows the one partition of the catalog topic from its start."""

    def __init__(self, servers: str, topic: str) -> None:
        super().__init__(servers, topic, "catalog")


def read_records(servers: str, app: str, topics: Topics) -> dict[str, bytes]:
    """The newest value per record key of an app's catalog topic; nothing where there is no such topic."""
    name = catalog_topic(app)
    if not topics.describe([name]):
        return {}
    reader = CatalogReader(servers, name)
    try:
        return reader.read_whole()
    finally:
        reader.close()


class CatalogWriter(OnePartitionWriter):
    """Writes records of the catalog topic."""

    def __init__(self, servers: str, topic: str) -> None:
        super().__init__(servers, topic, "catalog")

"""The catalog in Redis: a copy of the catalog topic, put back whenever Redis has lost it."""

from __future__ import annotations

import logging

from tailrace.catalog import APP_RECORD, PROGRESS_RECORDS, Catalog, Progress
from tailrace.kafka.catalog_topic import CatalogReader
from tailrace.store.writer import Writer

log = logging.getLogger(__name__)


class CatalogCopy:
    """Follows the catalog topic; holds its newest records and copies them to the store."""

    def __init__(self, reader: CatalogReader, writer: Writer) -> None:
        self._reader = reader
        self._writer = writer
        self._records: dict[str, bytes] = {}
        self._uncopied: dict[str, bytes | None] = {}
        self.catalog: Catalog | None = None

    def follow(self, timeout: float = 0) -> bool:
        """Take in what has come; True where the catalog itself has changed."""
        changed = False
        for key, value in self._reader.poll(timeout):
            if value is None:
                self._records.pop(key, None)
            else:
                self._records[key] = value
            self._uncopied[key] = value
            changed |= key == APP_RECORD
        if changed:
            found = self._records.get(APP_RECORD)
            self.catalog = None if found is None else Catalog.decode(found)
        return changed

    def finished(self, view: str, generation: int) -> int | None:
        """The last batch of a view's generation that the pipeline has finished; None where it is not known."""
        found = self._records.get(PROGRESS_RECORDS + view)
        progress = Progress.decode(found) if found is not None else None
        return progress.batch if progress is not None and progress.generation == generation else None

    def copy(self) -> None:
        """Bring the store up to date; raises Unavailable and goes on from there at the next call."""
        while self._uncopied:
            key = next(iter(self._uncopied))
            self._writer.put_catalog(key, self._uncopied[key])
            del self._uncopied[key]

    def copy_again(self) -> None:
        """Have every record copied once more: the store has lost them."""
        self._uncopied = {**self._records}

"""The copy of the catalog topic in Redis. It is written again whenever Redis has lost it."""

from __future__ import annotations

import logging

from tailrace.contracts.catalog import APP_RECORD, PROGRESS_RECORDS, Catalog, ViewProgress
from tailrace.errors import NewerFormat
from tailrace.kafka.catalog_topic import CatalogReader
from tailrace.materializer.counters import MaterializerCounters
from tailrace.store.write.writer import StoreWriter

log = logging.getLogger(__name__)


class CatalogCopy:
    """Follows the catalog topic, holds its newest records, and copies them to the store.

    If a part of a new catalog can't be read, the part before it stays, also in the store; `problem` says so.
    """

    def __init__(self, reader: CatalogReader, writer: StoreWriter, counters: MaterializerCounters) -> None:
        self._reader = reader
        self._writer = writer
        self._counters = counters
        self.problem: str | None = None
        self._records: dict[str, bytes] = {}
        self._uncopied: dict[str, bytes | None] = {}
        self.catalog: Catalog | None = None
        self._readable: bytes | None = None

    def follow(self, timeout: float = 0) -> bool:
        """Take in new records. True if the catalog itself has changed."""
        changed = False
        for key, value in self._reader.poll(timeout):
            if value is None:
                self._records.pop(key, None)
            else:
                self._records[key] = value
            self._uncopied[key] = value
            if key == APP_RECORD:
                # Read each of several: if the last can't be read, the one before it counts.
                changed |= self._read(value)
        return changed

    def _read(self, found: bytes | None) -> bool:
        self.problem = None
        try:
            self.catalog = None if found is None else Catalog.decode(found, self.catalog)
        except ValueError as error:
            self._refuse("the catalog can't be read, and stays what it was", str(error))
            if not isinstance(error, NewerFormat):
                self._put_back()
            return False
        self._readable = found
        if self.catalog is not None and self.catalog.refused:
            for name, why in self.catalog.refused.items():
                self._refuse(f"{name[:200]} of the catalog can't be read, and stays what it was", why)
            self._readable = self.catalog.encode()
            self._put_back()
        return True

    def _put_back(self) -> None:
        """Keep what can be read in the store: gateways that start read it there."""
        if self._readable is not None:
            self._records[APP_RECORD] = self._uncopied[APP_RECORD] = self._readable
        else:
            del self._records[APP_RECORD], self._uncopied[APP_RECORD]

    def _refuse(self, what: str, why: str) -> None:
        log.error("%s: %s", what, why)
        self._counters.set_aside.labels("catalog").inc()
        self.problem = self.problem or f"{what}: {why}"

    def finished(self, view: str, generation: int) -> int | None:
        """The last batch of a view's generation that the pipeline has finished; None if that is not known."""
        found = self._records.get(PROGRESS_RECORDS + view)
        try:
            progress = ViewProgress.decode(found) if found is not None else None
        except ValueError as error:
            # This is called often, and the next record replaces this one: it is logged once.
            log.error("the progress of view %s can't be read, and is passed over: %s", view, error)
            self._counters.set_aside.labels("progress").inc()
            del self._records[PROGRESS_RECORDS + view]
            return None
        return progress.batch if progress is not None and progress.generation == generation else None

    def copy(self) -> None:
        """Bring the store up to date. If it raises Unavailable, the next call goes on from there."""
        while self._uncopied:
            key = next(iter(self._uncopied))
            self._writer.put_catalog(key, self._uncopied[key])
            del self._uncopied[key]

    def copy_again(self) -> None:
        """Copy every record once more: the store has lost them."""
        self._uncopied = {**self._records}

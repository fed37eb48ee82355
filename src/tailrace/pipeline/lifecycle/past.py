"""The past: what earlier pipelines have written to the catalog topic, as far as it can be read.

What can't be read is logged, counted and passed over: a view without an entry is built anew, above every generation in
its changelog, and progress begins from nothing.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import MutableMapping

from tailrace.contracts.catalog import APP_RECORD, Catalog, ViewProgress
from tailrace.errors import NewerFormat

log = logging.getLogger(__name__)


class Past:
    """Reads records by their keys; `set_aside` counts those that can't be read, by what they were to be."""

    def __init__(self, app: str, records: MutableMapping[str, bytes]) -> None:
        self._app = app
        self._records = records
        self.set_aside: Counter[str] = Counter()

    def catalog(self) -> Catalog:
        """The catalog; raises NewerFormat, because an older pipeline must not undo what a newer one has done."""
        found = self._records.get(APP_RECORD)
        if found is None:
            return Catalog(self._app, {})
        try:
            catalog = Catalog.decode(found)
        except NewerFormat:
            raise
        except ValueError as error:
            self._refuse("catalog", APP_RECORD, str(error))
            return Catalog(self._app, {})
        for name, why in catalog.refused.items():
            self._refuse("catalog", name, why)
        return catalog

    def progress(self, key: str) -> ViewProgress | None:
        """The progress in the record of a key; None if there is none."""
        found = self._records.get(key)
        try:
            return None if found is None else ViewProgress.decode(found)
        except ValueError as error:
            self._refuse("progress", key, str(error))
            del self._records[key]
            return None

    def _refuse(self, what: str, key: str, why: str) -> None:
        log.error("%s on the catalog topic can't be read, and is passed over: %s", key[:200], why)
        self.set_aside[what] += 1

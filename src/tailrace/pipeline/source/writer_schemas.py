"""The schemas that the records of a topic were written with, learned from the registry by id."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Protocol

from tailrace.avro.writer_safety import unusable
from tailrace.errors import SchemaRefused

log = logging.getLogger(__name__)

# Each id that the registry does not have has cost a start of the query.
MOST_MISSING = 100


class SchemaSource(Protocol):
    """Where schemas come from: a `Registry`."""

    def versions(self, subject: str) -> dict[int, str]:
        """All schemas of a subject by id."""

    def by_id(self, id: int) -> str | None:
        """The schema of an id; None if there is none."""


class WriterSchemas:
    """What is known of the ids under one subject, such as `ratings-value`.

    `known` are the schemas by id, `malformed` the ids whose records can't be read: the registry does not have them, or
    has something for them that can't be used. An id in neither is to be learned. After `MOST_MISSING` ids that the
    registry does not have, `lenient` is True: the topic holds something else, and no further id is worth a start.
    """

    def __init__(self, subject: str) -> None:
        self.subject = subject
        self._known: dict[int, str] = {}
        self._missing: set[int] = set()
        self._refused: set[int] = set()

    @property
    def known(self) -> Mapping[int, str]:
        """Usable schemas by id."""
        return MappingProxyType(self._known)

    @property
    def malformed(self) -> frozenset[int]:
        """Ids whose records are malformed."""
        return frozenset(self._missing | self._refused)

    @property
    def lenient(self) -> bool:
        """Whether records with an id that was never looked up are malformed, too."""
        return len(self._missing) >= MOST_MISSING

    def refresh(self, source: SchemaSource) -> None:
        """Take all versions of the subject; raises as the registry does."""
        for id, schema in source.versions(self.subject).items():
            self._take(id, schema)

    def learn(self, source: SchemaSource, ids: Iterable[int]) -> None:
        """Look ids up, each once; raises as the registry does if it can't be asked, and keeps what came before."""
        for id in sorted(set(ids) - self._known.keys() - self._missing - self._refused):
            try:
                schema = source.by_id(id)
            except SchemaRefused as error:
                self._refuse(id, str(error))
                continue
            if schema is not None:
                self._take(id, schema)
            else:
                self._miss(id)

    def _take(self, id: int, schema: str) -> None:
        if (reason := unusable(schema)) is not None:
            self._refuse(id, f"its schema can't be used: {reason}")
        else:
            self._known[id] = schema

    def _refuse(self, id: int, reason: str) -> None:
        if id not in self._refused:
            self._refused.add(id)
            log.error("%s: records with the schema id %d are malformed: %s", self.subject, id, reason)

    def _miss(self, id: int) -> None:
        self._missing.add(id)
        log.warning("%s: the registry has no schema of id %d; records with it are malformed", self.subject, id)
        if len(self._missing) == MOST_MISSING:
            log.error(
                "%s: expected records with ids of the registry, got %d ids that it does not have; from now on an id is "
                "no longer looked up, and records with a new one are malformed. Correct --registry or the producer, "
                "then start the pipeline again",
                self.subject,
                MOST_MISSING,
            )

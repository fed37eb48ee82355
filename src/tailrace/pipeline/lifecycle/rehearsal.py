"""A rehearsal: the boundary of a batch, gone through many times before the first one that counts.

Between two real-time batches Spark plans and launches the query anew, with code that the JVM has hardly compiled yet:
the first boundaries of a process take a second and more, those after some thirty a quarter of that. So the plan of each
view is run once more beside the live query, on a checkpoint in the scratch directory, with batches of a fraction of a
second. It reads the newest records and writes none. Live rows go on meanwhile. A rehearsal that fails is dropped.
"""

from __future__ import annotations

import logging
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tailrace.pipeline.changelog.changelog import QueryContext, changelog_writer, real_time
from tailrace.pipeline.lifecycle.generations import Build

log = logging.getLogger(__name__)

BATCHES = 30
_FEWEST = 3
_BATCH_SECONDS = 0.2


class Rehearsal:
    """Rehearses the views one after the other; `watch` is to be called about once a second."""

    def __init__(self, session: SparkSession, builds: list[Build], context: QueryContext, scratch: Path) -> None:
        self._session = session
        self._waiting = list(builds)
        self._batches = max(_FEWEST, BATCHES // max(1, len(builds)))
        self._context = QueryContext(
            context.kafka, f"{context.group}.rehearsal", _BATCH_SECONDS, context.types, context.registry_schemas
        )
        self._query: StreamingQuery | None = None
        self._scratch = scratch

    def watch(self) -> None:
        """Start the next view's rehearsal, or end one that has had its batches."""
        try:
            if self._query is not None:
                self._look(self._query)
            elif self._waiting:
                self._start(self._waiting.pop(0))
        except PySparkException as error:
            log.debug("a rehearsal was dropped: %s", error)
            self.stop()

    def stop(self) -> None:
        """End the rehearsal that is under way."""
        if self._query is not None:
            self._query.stop()
            self._query = None

    def _start(self, build: Build) -> None:
        checkpoint = self._scratch / f"rehearsal-{build.output.name}"
        rehearsed = Build(build.output, 0, checkpoint, ground=build.ground, partitions=build.partitions)
        writer = changelog_writer(self._session, rehearsed, self._context, rehearsal=True)
        self._query = real_time(writer, self._context.batch_seconds).start()

    def _look(self, query: StreamingQuery) -> None:
        newest = query.lastProgress
        if not query.isActive or (newest is not None and newest.batchId >= self._batches):
            log.debug("rehearsed %s", query.name)
            self.stop()

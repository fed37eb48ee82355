"""One view's streaming query: started, watched, started again after a failure, stopped.

Real-time mode saves offsets and state at the end of each batch. A crash or a stop repeats the open batch: its
changes are written again with the same versions at newer offsets, and everything downstream skips them.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from tailrace.catalog import Progress
from tailrace.pipeline import plans
from tailrace.pipeline.builds import Build

log = logging.getLogger(__name__)

_FIRST_BACKOFF = 1.0
_LONGEST_BACKOFF = 60.0


@dataclass(frozen=True)
class Reach:
    """What a query needs to know of the world: brokers, consumer group prefix, length of a batch."""

    servers: str
    group: str
    batch_seconds: float


class ViewQuery:
    """The query of one build of a view. `watch` is to be called about once a second."""

    def __init__(
        self,
        session: SparkSession,
        build: Build,
        reach: Reach,
        progress: Progress,
        report: Callable[[Progress], None],
    ) -> None:
        self.build = build
        self.restarts = 0
        self.progress = progress
        self._session = session
        self._reach = reach
        self._report = report
        self._query: StreamingQuery | None = None
        self._failure: str | None = None
        self._start_at = 0.0
        self._backoff = _FIRST_BACKOFF

    @property
    def started(self) -> bool:
        """Whether the query has been started, or waits to be started again after a failure."""
        return self._query is not None or self._failure is not None

    def watch(self) -> None:
        """Start the query where it is due, report finished batches, notice a failure."""
        if self._query is None:
            if time.monotonic() >= self._start_at:
                self._start()
            return
        self._take_progress(self._query)
        if not self._query.isActive:
            error = self._query.exception()
            self._fail(str(error) if error is not None else "the query ended")

    def reasons(self) -> list[str]:
        """Why the view is not live; empty where it is."""
        name = self.build.view.name
        if self._failure is not None and self._query is None:
            return [f"view {name}: failed and will be started again: {self._failure}"]
        if self._query is None or not self._query.status["isTriggerActive"]:
            return [f"view {name}: is starting"]
        return []

    def stop(self) -> None:
        """Stop the query; what the open batch has read is repeated at the next start."""
        if self._query is not None:
            self._take_progress(self._query)
            self._query.stop()
            self._query = None

    def _start(self) -> None:
        view = self.build.view
        try:
            self._query = changelog_writer(self._session, self.build, self._reach).start()
            self._failure = None
            log.info("view %s: generation %d started on %s", view.name, self.build.generation, view.source.name)
        except PySparkException as error:
            self._fail(str(error))

    def _fail(self, text: str) -> None:
        self._query = None
        self._failure = text.splitlines()[0] if text else "unknown"
        self.restarts += 1
        self._start_at = time.monotonic() + self._backoff
        log.error("view %s failed, next start in %.0f s: %s", self.build.view.name, self._backoff, text)
        self._backoff = min(self._backoff * 2, _LONGEST_BACKOFF)

    def _take_progress(self, query: StreamingQuery) -> None:
        """Add the batches that have ended since the last call to the totals, each once."""
        newest = query.lastProgress
        if newest is None or newest.batchId <= self.progress.batch:
            return
        for batch in query.recentProgress:
            observed = batch.observedMetrics.get(self.build.view.name)
            if batch.batchId <= self.progress.batch or observed is None:
                continue
            skipped = {reason: self.progress.skipped.get(reason, 0) + observed[reason] for reason in plans.REASONS}
            self.progress = Progress(
                view=self.progress.view,
                generation=self.progress.generation,
                batch=batch.batchId,
                inputs=self.progress.inputs + observed["inputs"],
                skipped=skipped,
            )
            self._backoff = _FIRST_BACKOFF
            log.debug("view %s: batch %d: %s", self.build.view.name, batch.batchId, batch.durationMs)
        self._report(self.progress)


def changelog_writer(session: SparkSession, build: Build, reach: Reach, *, rehearsal: bool = False) -> DataStreamWriter:
    """The whole plan of a view, from the source topic to the changelog; a rehearsal writes nothing."""
    view = build.view
    name = f"rehearsal of {view.name}" if rehearsal else view.name
    records = plans.read(session, reach.servers, view.source, f"{reach.group}.{view.name}", newest=rehearsal)
    schema = plans.value_schema(session, view.source)
    decoded = plans.observe(plans.decode(records, schema, view), name)
    view_rows = plans.rows(plans.events(decoded, view.source), view)
    if rehearsal:
        view_rows = view_rows.where(plans.never())
    changes = plans.changes(view_rows, view, build.generation)
    writer = plans.write(changes, reach.servers, view.changelog).option("checkpointLocation", str(build.checkpoint))
    interval = f"{round(reach.batch_seconds * 1000)} milliseconds"
    # PySpark takes this keyword; its types do not know it yet.
    return writer.queryName(name).trigger(realTime=interval)  # type: ignore[call-overload, no-any-return]

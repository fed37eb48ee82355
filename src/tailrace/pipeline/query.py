"""One view's streaming query: started, watched, switched between its two modes, started again after a failure.

Catching up: micro-batches on everything that is there, several times faster than real time. Live: real-time mode, every
row within milliseconds. Both run on the same checkpoint, and a view goes from one to the other by its backlog.

Real-time mode saves offsets and state at the end of each batch. A crash, a stop or a switch repeats the open batch: its
changes are written again with the same versions at newer offsets, and everything downstream skips them.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tailrace.catalog import Progress
from tailrace.errors import Unreachable
from tailrace.kafka.groups import Group
from tailrace.pipeline import plans
from tailrace.pipeline.backlog import MANY, backlog, lost
from tailrace.pipeline.builds import Build
from tailrace.pipeline.changelog import Reach, changelog_writer

log = logging.getLogger(__name__)

_FIRST_BACKOFF = 1.0
_LONGEST_BACKOFF = 60.0
# A stop waits for the end of a batch that is this near, in seconds and as a share of the batch's length.
_NEAR = 5.0
_NEAR_SHARE = 0.1
_BOUNDARY = 2.0

CATCHING_UP = "catching-up"
LIVE = "live"
FAILED = "failed"


@dataclass(frozen=True)
class Survey:
    """What waits to be processed, and what can't be any more."""

    waiting: int
    lost: int

    @property
    def behind(self) -> bool:
        """Whether to catch up first; also where records are gone: real-time mode would wait for them in silence."""
        return self.waiting > MANY or self.lost > 0


class ViewQuery:
    """The query of one build of a view. `watch` is to be called about once a second."""

    def __init__(
        self,
        session: SparkSession,
        build: Build,
        reach: Reach,
        partitions: Mapping[str, int],
        progress: Progress,
        report: Callable[[Progress], None],
    ) -> None:
        self.build = build
        self.restarts = 0
        self.progress = replace(progress, mode="")
        self._session = session
        self._reach = reach
        self._partitions = partitions
        self._group = Group(reach.servers, f"{reach.group}.{build.view.name}")
        self._report = report
        self._query: StreamingQuery | None = None
        self._failure: str | None = None
        self._start_at = 0.0
        self._batch_began = 0.0
        self._backoff = _FIRST_BACKOFF

    @property
    def started(self) -> bool:
        """Whether the query has been started, or waits to be started again after a failure."""
        return self._query is not None or self._failure is not None

    @property
    def live(self) -> bool:
        """Whether rows flow in real time."""
        return self.progress.mode == LIVE and not self.reasons()

    def watch(self) -> None:
        """Start the query where it is due, report finished batches, switch modes, notice a failure."""
        try:
            if self._query is None:
                if time.monotonic() >= self._start_at:
                    self._start()
                return
            ended = not self._query.isActive
            advanced = self._take_progress(self._query)
            if ended:
                self._end(self._query)
            elif advanced and self.progress.mode == LIVE and self._survey().behind:
                log.warning("view %s: has fallen behind, and catches up in micro-batches", self.build.view.name)
                self._query.stop()
                self._query = None
        except (PySparkException, Unreachable) as error:
            self._fail(str(error))

    def reasons(self) -> list[str]:
        """Why the view is not current; empty where it is."""
        name = self.build.view.name
        if self._failure is not None and self._query is None:
            return [f"view {name}: failed and will be started again: {self._failure}"]
        if self.progress.mode == CATCHING_UP:
            return [f"view {name}: is catching up"]
        if self._query is None or not self._query.status["isTriggerActive"]:
            return [f"view {name}: is starting"]
        return []

    def near_boundary(self) -> bool:
        """Whether the open batch is about to end: a stop just after it repeats little."""
        if self._query is None or self.progress.mode != LIVE or self._take_progress(self._query):
            return False
        length = self._reach.batch_seconds
        left = self._batch_began + length - time.monotonic()
        return -_BOUNDARY < left < min(_NEAR, length * _NEAR_SHARE)

    def stop(self) -> None:
        """Stop the query; what the open batch has read is repeated at the next start."""
        if self._query is not None:
            self._take_progress(self._query)
            self._query.stop()
            self._query = None
        self._group.close()

    def _start(self) -> None:
        """Start in the mode that the backlog asks for."""
        survey = self._survey()
        mode = CATCHING_UP if survey.behind else LIVE
        writer = changelog_writer(self._session, self.build, self._reach, catch_up=survey.behind)
        self._query = writer.start()
        self._batch_began = time.monotonic()
        self._failure = None
        name, generation = self.build.view.name, self.build.generation
        log.info("view %s: generation %d is %s, %d records behind", name, generation, mode, survey.waiting)
        self._tell(replace(self.progress, mode=mode))

    def _end(self, query: StreamingQuery) -> None:
        """A query that has caught up ends by itself; any other end is a failure."""
        error = query.exception()
        self._query = None
        if error is not None or self.progress.mode != CATCHING_UP:
            self._fail(str(error) if error is not None else "the query ended")

    def _survey(self) -> Survey:
        """Compare what is processed with what the topics hold; records that are gone are told loudly, once."""
        processed = {t: {int(p): o for p, o in found.items()} for t, found in self.progress.offsets.items()}
        bounds = self._group.bounds(self._partitions)
        survey = Survey(backlog(processed, bounds), lost(processed, bounds))
        if survey.lost:
            log.error(
                "view %s: %d records were removed from %s by retention before they were read; the view lacks them",
                self.build.view.name,
                survey.lost,
                ", ".join(bounds),
            )
            self._tell(
                replace(
                    self.progress,
                    lost=self.progress.lost + survey.lost,
                    offsets={
                        topic: {
                            str(p): max(first, processed.get(topic, {}).get(p, first)) for p, (first, _) in of.items()
                        }
                        for topic, of in bounds.items()
                    },
                )
            )
        return survey

    def _fail(self, text: str) -> None:
        self._query = None
        self._failure = text.splitlines()[0] if text else "unknown"
        self.restarts += 1
        self._start_at = time.monotonic() + self._backoff
        log.error("view %s failed, next start in %.0f s: %s", self.build.view.name, self._backoff, text)
        self._backoff = min(self._backoff * 2, _LONGEST_BACKOFF)
        self._tell(replace(self.progress, mode=FAILED))

    def _tell(self, progress: Progress) -> None:
        self.progress = progress
        self._report(progress)

    def _take_progress(self, query: StreamingQuery) -> bool:
        """Add the batches that have ended since the last call to the totals, each once; True where there were any."""
        newest = query.lastProgress
        if newest is None or newest.batchId <= self.progress.batch:
            return False
        progress = self.progress
        for batch in query.recentProgress:
            observed = batch.observedMetrics.get(self.build.view.name)
            if batch.batchId <= progress.batch or observed is None:
                continue
            progress = replace(
                progress,
                batch=batch.batchId,
                inputs=progress.inputs + observed["inputs"],
                skipped={reason: progress.skipped.get(reason, 0) + observed[reason] for reason in plans.REASONS},
                offsets=json.loads(batch.sources[0].endOffset),
            )
            self._backoff = _FIRST_BACKOFF
            log.debug("view %s: batch %d: %s", self.build.view.name, batch.batchId, batch.durationMs)
        if progress is self.progress:
            return False
        self._batch_began = time.monotonic()
        self._tell(progress)
        try:
            self._group.commit({t: {int(p): o for p, o in found.items()} for t, found in progress.offsets.items()})
        except Unreachable as error:
            # Only lag tools read them; the next batch brings newer ones.
            log.warning("view %s: offsets were not committed: %s", self.build.view.name, error)
        return True

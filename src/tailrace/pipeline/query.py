"""One streaming query: started, watched, switched between its two modes, started again after a failure.

Catching up: micro-batches on everything that is there, several times faster than real time. Live: real-time mode, every
row within milliseconds; or micro-batches one after the other, where that is what was declared. All run on the same
checkpoint, and a view goes from one to the other by its backlog.

Real-time mode saves offsets and state at the end of each batch. A crash, a stop or a switch repeats the open batch: its
changes are written again with the same versions at newer offsets, and everything downstream skips them.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace

from pyspark.errors import PySparkException
from pyspark.sql.streaming.listener import StreamingQueryProgress
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from tailrace.catalog import Progress
from tailrace.errors import Unreachable
from tailrace.kafka.groups import Group
from tailrace.pipeline import events
from tailrace.pipeline.backlog import MANY, backlog, lost

log = logging.getLogger(__name__)

_FIRST_BACKOFF = 1.0
_LONGEST_BACKOFF = 60.0
# So many failures without a batch in between are not an accident any more.
_POISONED = 5
# A stop waits for the end of a batch that is this near, in seconds and as a share of the batch's length.
_NEAR = 5.0
_NEAR_SHARE = 0.1
_BOUNDARY = 2.0

CATCHING_UP = "catching-up"
LIVE = "live"
BATCHES = "micro-batch"
FAILED = "failed"
MODES = (CATCHING_UP, LIVE, BATCHES, FAILED)


@dataclass(frozen=True)
class Survey:
    """What waits to be processed, and what can't be any more."""

    waiting: int
    lost: int

    @property
    def behind(self) -> bool:
        """Whether to catch up first; also where records are gone: real-time mode would wait for them in silence."""
        return self.waiting > MANY or self.lost > 0


@dataclass(frozen=True)
class Task:
    """What a query is to do.

    `writer` gives the query for a mode, ready to be started. `live` is the mode that it runs in when it has caught up.
    `group` is the consumer group for lag tools, `partitions` those of each topic, `starts` the offsets that it began at
    where those were not the earliest. `building`: it must catch up in any
    case, and says so by `caught_up`, because readers wait for it. `learn` is asked what to do about a failure: True
    where its cause is removed, and the query may start again at once.
    """

    name: str
    subject: str
    writer: Callable[[str], DataStreamWriter]
    live: str
    batch_seconds: float
    servers: str
    group: str
    partitions: Mapping[str, int]
    starts: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    building: bool = False
    caught_up: Callable[[], None] = lambda: None
    learn: Callable[[str], bool] = lambda _: False


class Query:
    """The query of a task. `watch` is to be called about once a second."""

    def __init__(self, task: Task, progress: Progress, report: Callable[[Progress], None]) -> None:
        self.task = task
        self.restarts = 0
        self.progress = replace(progress, mode="")
        self._group = Group(task.servers, task.group)
        self._report = report
        self._query: StreamingQuery | None = None
        self._building = task.building
        self._failure: str | None = None
        self._failures = 0
        self._start_at = 0.0
        self._batch_began = 0.0
        self._backoff = _FIRST_BACKOFF

    @property
    def started(self) -> bool:
        """Whether the query has been started, or waits to be started again after a failure."""
        return self._query is not None or self._failure is not None

    @property
    def live(self) -> bool:
        """Whether rows flow as they should."""
        return self.progress.mode == self.task.live and not self.reasons()

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
            elif advanced and self.progress.mode == LIVE and self._fallen_behind():
                log.warning("%s: has fallen behind, and catches up in micro-batches", self.task.subject)
                self._query.stop()
                self._query = None
        except (PySparkException, Unreachable) as error:
            self._fail(str(error))

    def reasons(self) -> list[str]:
        """Why the query is not current; empty where it is."""
        subject = self.task.subject
        if self._failure is not None and self._query is None:
            again = "will be started again"
            if self._failures >= _POISONED:
                again = f"has failed {self._failures} times in a row: correct its declaration or its data"
            return [f"{subject}: failed and {again}: {self._failure}"]
        if self.progress.mode == CATCHING_UP:
            return [f"{subject}: is catching up"]
        if self._query is None:
            return [f"{subject}: is starting"]
        if self.progress.mode == LIVE and not self._query.status["isTriggerActive"]:
            return [f"{subject}: is starting"]
        return []

    def near_boundary(self) -> bool:
        """Whether the open batch is about to end: a stop just after it repeats little."""
        if self._query is None or self.progress.mode != LIVE or self._take_progress(self._query):
            return False
        length = self.task.batch_seconds
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
        behind = self._building or (survey.behind and self.task.live == LIVE)
        mode = CATCHING_UP if behind else self.task.live
        self._query = self.task.writer(mode).start()
        self._batch_began = time.monotonic()
        self._failure = None
        generation = self.progress.generation
        log.info("%s: generation %d is %s, %d records behind", self.task.subject, generation, mode, survey.waiting)
        self._tell(replace(self.progress, mode=mode))

    def _end(self, query: StreamingQuery) -> None:
        """A query that has caught up ends by itself; any other end is a failure."""
        error = query.exception()
        self._query = None
        if error is not None or self.progress.mode != CATCHING_UP:
            self._fail(str(error) if error is not None else "the query ended")
        elif self._building:
            self.task.caught_up()
            self._building = False

    def _fallen_behind(self) -> bool:
        """Whether a live query should catch up; a broker that does not answer now is asked after the next batch."""
        try:
            return self._survey().behind
        except Unreachable as error:
            log.warning("%s: can't tell how far it is behind: %s", self.task.subject, error)
            return False

    def _survey(self) -> Survey:
        """Compare what is processed with what the topics hold; records that are gone are told loudly, once."""
        processed = self.progress.processed
        bounds = self._group.bounds(self.task.partitions)
        survey = Survey(backlog(processed, bounds), lost(processed, bounds))
        if survey.lost:
            log.error(
                "%s: %d records were removed from %s by retention before they were read, and are missing here",
                self.task.subject,
                survey.lost,
                ", ".join(bounds),
            )
            offsets = {
                topic: {str(p): max(first, processed.get(topic, {}).get(p, first)) for p, (first, _) in of.items()}
                for topic, of in bounds.items()
            }
            self._tell(replace(self.progress, lost=self.progress.lost + survey.lost, offsets=offsets))
        return survey

    def _fail(self, text: str) -> None:
        if self._query is not None:
            # Where only a question about it has failed, it still runs, and nobody would watch it.
            with suppress(PySparkException):
                self._query.stop()
            self._query = None
        self._failure = text.splitlines()[0] if text else "unknown"
        self.restarts += 1
        if self.task.learn(text):
            self._start_at = 0.0
            log.warning("%s: starts again with what it has learned: %s", self.task.subject, self._failure)
            return
        self._failures += 1
        self._start_at = time.monotonic() + self._backoff
        log.error("%s failed, next start in %.0f s: %s", self.task.subject, self._backoff, text)
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
            # A query that waits for records says so under the number of the batch to come.
            ran = "addBatch" in batch.durationMs
            if ran and batch.batchId > progress.batch and any(source.endOffset for source in batch.sources):
                progress = _with_batch(progress, batch, self.task.name)
                log.debug("%s: batch %d: %s", self.task.subject, batch.batchId, batch.durationMs)
        if progress is self.progress:
            return False
        self._backoff, self._failures = _FIRST_BACKOFF, 0
        self._batch_began = time.monotonic()
        self._tell(progress)
        try:
            self._group.commit(progress.processed)
        except Unreachable as error:
            # Only lag tools read them; the next batch brings newer ones.
            log.warning("%s: offsets were not committed: %s", self.task.subject, error)
        return True


def _with_batch(progress: Progress, batch: StreamingQueryProgress, name: str) -> Progress:
    """The totals with one more batch; what is observed has the query's name, with a suffix for all but the first."""
    inputs, skipped = progress.inputs, dict(progress.skipped)
    for observed_as, observed in batch.observedMetrics.items():
        if observed_as != name and not observed_as.startswith(f"{name}/"):
            continue
        if observed_as != f"{name}/transformed":
            inputs += observed["inputs"]
        for reason in events.REASONS:
            skipped[reason] = skipped.get(reason, 0) + observed[reason]
    late = sum(operator.numRowsDroppedByWatermark for operator in batch.stateOperators)
    if late:
        skipped[events.LATE] = skipped.get(events.LATE, 0) + late
    offsets = dict(progress.offsets)
    for source in batch.sources:
        if source.endOffset:
            offsets.update(json.loads(source.endOffset))
    # A crash just after the end of a batch takes its report away; the query goes on with the next one.
    unseen = progress.unseen + (batch.batchId > progress.batch + 1)
    return replace(progress, batch=batch.batchId, inputs=inputs, skipped=skipped, offsets=offsets, unseen=unseen)

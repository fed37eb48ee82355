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
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from pyspark.errors import PySparkException
from pyspark.sql.streaming.listener import StateOperatorProgress, StreamingQueryProgress
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from tailrace.contracts.catalog import ViewProgress
from tailrace.errors import TailraceError, TopicError, Unreachable
from tailrace.kafka.brokers import Brokers
from tailrace.kafka.groups import Group
from tailrace.pipeline.lifecycle.backlog import MANY, Bounds, lost, reached, waiting
from tailrace.pipeline.lifecycle.replays import Replays, raised
from tailrace.pipeline.view import events

log = logging.getLogger(__name__)

_FIRST_BACKOFF = 1.0
_LONGEST_BACKOFF = 60.0
# So many failures without a batch in between are not an accident any more.
_POISONED = 5
# A stop waits for the end of a batch that is this near, in seconds and as a share of the batch's length.
_NEAR = 5.0
_NEAR_SHARE = 0.1
_BOUNDARY = 2.0
# A round of a build that takes less leaves little for the next one, however much comes in, in seconds.
_SHORT_ROUND = 3.0
# How often the ends of topics are asked for that a view in micro-batches is to reach, in seconds.
_MARK_EVERY = 10.0

CATCHING_UP = "catching-up"
LIVE = "live"
BATCHES = "micro-batch"
FAILED = "failed"
MODES = (CATCHING_UP, LIVE, BATCHES, FAILED)


@dataclass(frozen=True)
class Survey:
    """What waits to be processed, by topic, and what can't be any more; where the topics begin and end."""

    waiting_by_topic: Mapping[str, int]
    gap: bool
    bounds: Bounds

    @property
    def waiting(self) -> int:
        """What waits in all topics."""
        return sum(self.waiting_by_topic.values())

    @property
    def behind(self) -> bool:
        """Whether to catch up first; also if records are gone: real-time mode would wait for them in silence."""
        return self.waiting > MANY or self.gap


@dataclass(frozen=True)
class Task:
    """What a query is to do.

    writer: gives the query for a mode and a base of versions, ready to be started.
    live: the mode that the query runs in once it has caught up.
    group: the consumer group for lag tools.
    partitions: says how many partitions each topic has now.
    starts: the offsets that the query began at, if those were not the earliest.
    building: the query is a build that catches up in rounds, until it is promoted.
    replays: what may differ when records are read again.
    outdated: called with the reason if rows may be stale because tombstones are gone.
    durable: returns when everything that was reported is safe.
    learn: called with the text of a failure; True if it has removed the cause, so that the query may start at once.
    """

    name: str
    subject: str
    writer: Callable[[str, int], DataStreamWriter]
    live: str
    batch_seconds: float
    brokers: Brokers
    group: str
    partitions: Callable[[], Mapping[str, int]]
    starts: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    building: bool = False
    replays: Replays = field(default_factory=Replays)
    outdated: Callable[[str], None] = lambda _: None
    durable: Callable[[], None] = lambda: None
    learn: Callable[[str], bool] = lambda _: False


class Query:
    """The query of a task. `watch` is to be called about once a second."""

    def __init__(self, task: Task, progress: ViewProgress, report: Callable[[ViewProgress], None]) -> None:
        self.task = task
        self.restarts = 0
        self.progress = replace(progress, mode="")
        # A build that waits: it has read what was there, and nobody has asked it to go on.
        self.resting = False
        self.building = task.building
        self.waiting = 0
        self._group = Group(task.brokers, task.group)
        self._report = report
        self._query: StreamingQuery | None = None
        self._ran = progress.mode
        self._begun = False
        self._failure: str | None = None
        self._failures = 0
        self._start_at = 0.0
        self._batch_began = 0.0
        self._round_began = 0.0
        self._backoff = _FIRST_BACKOFF
        # Ends of the topics at a time in ms, to be reached.
        self._mark: tuple[Bounds, int] | None = None
        self._mark_at = 0.0

    @property
    def started(self) -> bool:
        """Whether the query has been started, or waits to be started again after a failure."""
        return self._begun or self._failure is not None

    @property
    def running(self) -> bool:
        """Whether Spark runs it now."""
        return self._query is not None

    @property
    def live(self) -> bool:
        """Whether rows flow as they should."""
        return self.progress.mode == self.task.live and not self.reasons()

    def watch(self) -> None:
        """Start the query if it is due, report finished batches, switch modes, notice a failure."""
        try:
            if self._query is None:
                if not self.resting and time.monotonic() >= self._start_at:
                    self._start()
                return
            ended = not self._query.isActive
            advanced = self._take_progress(self._query)
            if ended:
                self._end(self._query)
            elif advanced and self._fallen_behind() and self.progress.mode == LIVE:
                log.warning("%s: has fallen behind, and catches up in micro-batches", self.task.subject)
                self._pause()
        except (PySparkException, Unreachable, TopicError) as error:
            self._fail(str(error))
        except TailraceError:
            raise
        except Exception as error:
            # Other views go on.
            log.exception("%s: failed in a way that nobody foresaw", self.task.subject)
            self._fail(repr(error))

    @property
    def failed(self) -> bool:
        """Whether it waits to be started again after a failure."""
        return self._query is None and self._failure is not None

    def rest(self) -> None:
        """Stop until `go_on`; what the open batch has read is repeated then."""
        if not self.resting:
            if self._query is not None:
                self._take_progress(self._query)
            self._pause()
            self.resting = True

    def go_on(self) -> None:
        """Read on: a query that rests, or one more round of a build."""
        self.resting = False

    def promote(self) -> None:
        """A build takes the place of the one that was served: from now on it runs as any other query."""
        self.building = self.resting = False

    def reported_by(self, report: Callable[[ViewProgress], None], group: str) -> None:
        """Report elsewhere from now on, and note offsets in another consumer group."""
        self._report = report
        self._group.close()
        self._group = Group(self.task.brokers, group)
        self._report(self.progress)

    def again(self, why: str) -> None:
        """Have a query started again, so that it takes in what has changed: now, also if it waits after a failure."""
        self._start_at = 0.0
        if self._query is not None:
            log.info("%s: starts again, because %s", self.task.subject, why)
            self._take_progress(self._query)
            self._pause()

    def degrade(self, reasons: Sequence[str]) -> None:
        """Tell why some rows may be stale; nothing if they are not."""
        if tuple(self.progress.degraded) != tuple(reasons):
            self._tell(replace(self.progress, degraded=tuple(reasons)))

    def _pause(self) -> None:
        if self._query is not None:
            self._query.stop()
            self._query = None

    def reasons(self) -> list[str]:
        """Why the query is not current; empty if it is."""
        subject = self.task.subject
        if self._failure is not None and self._query is None:
            again = "will be started again"
            if self._failures >= _POISONED:
                again = f"has failed {self._failures} times in a row: correct its declaration or its data"
            return [f"{subject}: failed and {again}: {self._failure}"]
        if self.progress.mode == CATCHING_UP or self.building:
            return [f"{subject}: is catching up"]
        if self.resting:
            return [f"{subject}: is about to hand over to its next generation"]
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
        differs = self._prepare(survey)
        behind = self.building or ((survey.behind or differs) and self.task.live == LIVE)
        mode = CATCHING_UP if behind else self.task.live
        self._query = self.task.writer(mode, self.progress.base).start()
        self._batch_began = self._round_began = time.monotonic()
        self._failure = None
        self._begun = True
        self._ran = mode
        generation = self.progress.generation
        log.info("%s: generation %d is %s, %d records behind", self.task.subject, generation, mode, survey.waiting)
        self._tell(replace(self.progress, mode=mode))

    def _prepare(self, survey: Survey) -> bool:
        """See that what is read again does no harm; True if it may differ from what was served."""
        replays, progress = self.task.replays, self.progress
        if not progress.offsets:
            # Where the first batch begins: should it be cut off, what is missing from it can be reported.
            firsts = {t: {str(p): first for p, (first, _) in of.items()} for t, of in survey.bounds.items()}
            begun = {t: {**of, **self.task.starts.get(t, {})} for t, of in firsts.items()}
            # Spark's own spelling of the earliest.
            offsets = {t: {p: at if at >= 0 else firsts[t][p] for p, at in of.items()} for t, of in begun.items()}
            self._tell(replace(progress, offsets=offsets))
            return False
        if why := replays.outdated(progress.as_of, survey.waiting_by_topic, _milliseconds()):
            self.task.outdated(why)
        cut = self.task.live == LIVE and self._ran in (LIVE, FAILED)
        differs = replays.differ(waiting=survey.waiting_by_topic, cut=cut)
        if differs:
            self._tell(replace(self.progress, base=raised(self.progress.base, survey.bounds)))
        if self.progress.base:
            # Rows with a base may be written as soon as it is safe, and not before.
            self.task.durable()
        return differs

    def _end(self, query: StreamingQuery) -> None:
        """A query that has caught up ends by itself; any other end is a failure."""
        error = query.exception()
        self._query = None
        if error is not None or self.progress.mode != CATCHING_UP:
            self._fail(str(error) if error is not None else "the query ended")
            return
        if self.progress.gap >= 0:
            # It has read up to the end, also if no batch was needed for that.
            self._tell(replace(self.progress, gap=-1))
        if self.building:
            self.waiting = self._survey().waiting
            self.resting = True

    @property
    def near(self) -> bool:
        """Whether a build that rests is about to be complete: what is left takes a moment."""
        return self.resting and (self.waiting <= MANY or time.monotonic() - self._round_began < _SHORT_ROUND)

    def _fallen_behind(self) -> bool:
        """Whether a live query should catch up; a broker that does not answer now is asked after the next batch."""
        if self.progress.mode != LIVE and time.monotonic() < self._mark_at:
            return False
        try:
            return self._survey().behind
        except Unreachable as error:
            log.warning("%s: can't tell how far it is behind: %s", self.task.subject, error)
            return False

    def _survey(self) -> Survey:
        """Compare what is processed with what the topics hold; records that are gone are logged as an error, once."""
        now = _milliseconds()
        processed = self.progress.processed
        bounds = self._group.bounds(self.task.partitions())
        if self._mark is None or reached(processed, self._mark[0]):
            as_of = self._mark[1] if self._mark is not None else now if reached(processed, bounds) else 0
            if processed and as_of > self.progress.as_of:
                self._tell(replace(self.progress, as_of=as_of))
            self._mark = (bounds, now)
        self._mark_at = time.monotonic() + _MARK_EVERY
        if gone := lost(processed, bounds):
            self._tell_lost(gone, bounds)
        gap = self.progress.gap > self.progress.batch
        return Survey(waiting(processed, bounds), gap, bounds)

    def _tell_lost(self, gone: int, bounds: Bounds) -> None:
        processed, progress = self.progress.processed, self.progress
        log.error(
            "%s: %d records were removed from %s by retention before they were read, and are missing here",
            self.task.subject,
            gone,
            ", ".join(bounds),
        )
        offsets = {
            topic: {str(p): max(first, processed.get(topic, {}).get(p, first)) for p, (first, _) in of.items()}
            for topic, of in bounds.items()
        }
        # Rows that have absorbed them were served with versions that are not reached again.
        base = raised(progress.base, bounds) if self.task.replays.accumulates else progress.base
        told = replace(progress, lost=progress.lost + gone, offsets=offsets, base=base, gap=progress.batch + 1)
        self._tell(told)

    def _fail(self, text: str) -> None:
        if self._query is not None:
            # Where only a question about it has failed, it still runs, and nobody would watch it.
            with suppress(PySparkException):
                self._query.stop()
            self._query = None
        # Of what Kafka refuses, Spark tells where in its code it noticed that; nobody needs to read it.
        text = self.task.brokers.refused(text) or text
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

    def _tell(self, progress: ViewProgress) -> None:
        self.progress = progress
        self._report(progress)

    def _take_progress(self, query: StreamingQuery) -> bool:
        """Add the batches that have ended since the last call to the totals, each once; True if there were any."""
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


def _milliseconds() -> int:
    return int(time.time() * 1000)


def _with_batch(progress: ViewProgress, batch: StreamingQueryProgress, name: str) -> ViewProgress:
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
    totals = replace(progress, batch=batch.batchId, inputs=inputs, skipped=skipped, offsets=offsets, unseen=unseen)
    return replace(totals, state=_state(batch.stateOperators))


def _state(operators: Sequence[StateOperatorProgress]) -> dict[str, dict[str, int]]:
    """The bytes of a query's state, by what it is for."""
    found: dict[str, dict[str, int]] = {}
    for operator in operators:
        part = found.setdefault("dedupe" if operator.operatorName.startswith("dedupe") else "rows", {})
        part["disk"] = part.get("disk", 0) + operator.customMetrics.get("rocksdbSstFileSize", 0)
        part["memory"] = part.get("memory", 0) + operator.memoryUsedBytes
    return found

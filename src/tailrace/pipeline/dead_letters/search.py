"""The search for the dead letters of one topic, beside the views: only where there may be any.

After each batch, the ranges are searched in which some view or feed has skipped a record; see `search_plan`. A search
is planned anew each time, which takes about a second of the processor's time: good records are not worth that. How far
the search is stands on the catalog topic. A crash between writing dead letters and the report repeats them.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from pyspark.errors import PySparkException

from tailrace.contracts.catalog import ViewProgress
from tailrace.errors import Unreachable
from tailrace.kafka.brokers import Brokers
from tailrace.kafka.groups import Group
from tailrace.pipeline.dead_letters.search_plan import Offsets, Passing, SearchPlan, SkipReport

log = logging.getLogger(__name__)

_EVERY = 5.0
_FIRST_BACKOFF = 1.0
_LONGEST_BACKOFF = 60.0
# Added to two batches: by then an output that is not behind has told how far it is.
_PATIENCE = 30.0


@dataclass(frozen=True)
class SearchResult:
    """What one search found: how many records it read, and of those that can't be used, how many by reason."""

    inputs: int
    letters: Mapping[str, int]


@dataclass(frozen=True)
class SearchedTopic:
    """The topic of a search, and the consumer group that lag tools see the search by."""

    name: str
    partitions: Callable[[], int]
    brokers: Brokers
    group: str


class Search:
    """Searches one topic. `watch` is to be called about once a second; a search itself runs in a thread.

    `search` reads from the first offsets up to the second and writes the dead letters; `cancel` ends it early.
    `skip_reports` gives what each output says; `learn` is called with a failure, as for a query.
    """

    def __init__(
        self,
        topic: SearchedTopic,
        progress: ViewProgress,
        *,
        search: Callable[[Offsets, Offsets], SearchResult],
        cancel: Callable[[], None],
        skip_reports: Callable[[], Mapping[str, SkipReport]],
        learn: Callable[[str], bool],
        report: Callable[[ViewProgress], None],
        batch_seconds: float,
    ) -> None:
        self.progress = progress
        self._topic = topic
        self._search, self._cancel, self._skip_reports = search, cancel, skip_reports
        self._learn, self._report = learn, report
        self._patience = 2 * batch_seconds + _PATIENCE
        self._group = Group(topic.brokers, topic.group)
        self._plan = SearchPlan()
        self._thread: threading.Thread | None = None
        self._outcome: tuple[Offsets, SearchResult | str] | None = None
        self._failure: str | None = None
        self._backoff = _FIRST_BACKOFF
        self._look_at = 0.0
        self._moved_at = time.monotonic()

    def watch(self) -> None:
        """Take in what a search has found, or see whether one is due."""
        for output, skips in self._skip_reports().items():
            self._plan.hear(output, skips)
        if self._thread is not None:
            if self._thread.is_alive():
                return
            self._thread = None
            self._take_outcome()
        if time.monotonic() < self._look_at:
            return
        self._look_at = time.monotonic() + _EVERY
        try:
            self._look()
        except Unreachable as error:
            self._fail(str(error))

    def reasons(self) -> list[str]:
        """Why dead letters are not found now; empty if they are."""
        if self._failure is None:
            return []
        return [f"dead letters of {self._topic.name}: the search failed and will be repeated: {self._failure}"]

    def stop(self) -> None:
        """End a search under way; its records are searched again at the next start."""
        if self._thread is not None and self._thread.is_alive():
            self._cancel()
            self._thread.join(10)
        self._group.close()

    def _look(self) -> None:
        topic = self._topic.name
        bounds = self._group.bounds({topic: self._topic.partitions()})[topic]
        before = self.progress.processed.get(topic, {})
        searched = {p: max(first, min(before.get(p, 0), end)) for p, (first, end) in bounds.items()}
        ends = {p: end for p, (_, end) in bounds.items()}
        impatient = time.monotonic() - self._moved_at > self._patience
        due = self._plan.decide(searched, ends, impatient=impatient)
        if due is None:
            if searched == ends:
                # Nothing is left to be searched, so that nothing that failed is to be repeated.
                self._failure, self._backoff = None, _FIRST_BACKOFF
                self._moved_at = time.monotonic()
        elif isinstance(due, Passing):
            passed = sum(end - searched[p] for p, end in due.target.items())
            self._reached(due.target, SearchResult(passed, {}))
        else:
            self._thread = threading.Thread(target=self._run, args=(searched, due.target), daemon=True)
            self._thread.start()

    def _run(self, searched: Offsets, target: Offsets) -> None:
        try:
            self._outcome = (target, self._search(searched, target))
        except (PySparkException, Unreachable) as error:
            self._outcome = (target, str(error))
        except Exception as error:  # the JVM may have ended; the pipeline finds that out by itself
            self._outcome = (target, repr(error))

    def _take_outcome(self) -> None:
        if self._outcome is None:
            return
        (target, found), self._outcome = self._outcome, None
        if isinstance(found, str):
            self._fail(found)
            return
        self._look_at = 0.0
        self._reached(target, found)

    def _reached(self, target: Offsets, found: SearchResult) -> None:
        self._failure, self._backoff = None, _FIRST_BACKOFF
        self._moved_at = time.monotonic()
        known = self.progress.skipped
        skipped = {reason: known.get(reason, 0) + found.letters.get(reason, 0) for reason in {**known, **found.letters}}
        offsets = {self._topic.name: {str(p): offset for p, offset in target.items()}}
        self.progress = replace(
            self.progress,
            batch=self.progress.batch + 1,
            inputs=self.progress.inputs + found.inputs,
            skipped=skipped,
            offsets=offsets,
        )
        self._report(self.progress)
        try:
            self._group.commit(self.progress.processed)
        except Unreachable as error:
            # Only lag tools read them; the next search brings newer ones.
            log.warning("dead letters of %s: offsets were not committed: %s", self._topic.name, error)

    def _fail(self, text: str) -> None:
        text = self._topic.brokers.refused(text) or text
        self._failure = text.splitlines()[0] if text else "unknown"
        if self._learn(text):
            self._look_at = 0.0
            return
        self._look_at = time.monotonic() + self._backoff
        log.error("dead letters of %s: the search failed, next in %.0f s: %s", self._topic.name, self._backoff, text)
        self._backoff = min(self._backoff * 2, _LONGEST_BACKOFF)

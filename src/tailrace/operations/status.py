"""`tailrace status`: how far each view is, from its topics to the store."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tailrace.contracts.catalog import (
    APP_RECORD,
    DEAD_LETTER_RECORDS,
    PROGRESS_RECORDS,
    Catalog,
    CatalogFeed,
    CatalogView,
    ViewProgress,
    catalog_topic,
)
from tailrace.contracts.freshness import Delay, Report, freshness, why_stale
from tailrace.errors import TopicError
from tailrace.kafka.brokers import Brokers
from tailrace.kafka.catalog_topic import read_records
from tailrace.kafka.dead_letters import dead_letter_topic
from tailrace.kafka.groups import Group, Offsets
from tailrace.kafka.topics import Topics
from tailrace.operations.served import after, can_be_estimated, counted_until, ends_at, estimated
from tailrace.operations.store_status import StoredPartition, stored_partitions
from tailrace.pipeline.lifecycle.backlog import backlog
from tailrace.settings import Settings
from tailrace.store.connection.outages import Unavailable
from tailrace.store.layout.keys import default_prefix
from tailrace.store.write.reports import Reports
from tailrace.store.write.writer import StoreWriter

log = logging.getLogger(__name__)

# Why a record of a changelog is a dead letter.
NOT_APPLIED = "not-applied"


@dataclass(frozen=True)
class ViewStatus:
    """How far one view is.

    `behind` counts source records that are in no row of the store yet, and `behind_seconds` is the age of the oldest
    of them. If `behind_estimated`, timestamps show what was served since the last batch: see `served`. If not, it
    counts what no finished batch has processed. `inputs`, `skipped` and `lost` move when a batch ends.
    `delay` is how long rows took to reach the store in the last minute; None if none came. `newest` is the highest
    source timestamp in the store, in ms; None if it is not known. `degraded` says why rows may be stale.
    `state` is how large the state was when the last batch ended, as in `ViewProgress`; `remembers` says what a `dedupe`
    keeps of events, a text for each.
    `store` says how far Redis is with each partition of the changelog; None if it can't be asked. `store_behind`
    sums up the records that are not in Redis; None if it holds nothing of a partition.
    """

    view: str
    generation: int
    mode: str
    inputs: int
    skipped: Mapping[str, int]
    lost: int
    behind: int
    behind_seconds: float
    store_behind: int | None
    building: int | None = None
    store: list[StoredPartition] | None = None
    behind_estimated: bool = False
    delay: Delay | None = None
    newest: int | None = None
    degraded: Sequence[str] = ()
    state: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    remembers: Sequence[str] = ()


@dataclass(frozen=True)
class DeadLetterCounts:
    """How many records of a topic could not be used, by reason; up to `behind` records before its end.

    For a changelog, `letters` counts the records that its dead-letter topic still holds.
    """

    topic: str
    letters: Mapping[str, int]
    behind: int


@dataclass(frozen=True)
class Status:
    """Every view and feed of an app, and the dead letters of its topics."""

    views: list[ViewStatus]
    dead_letters: list[DeadLetterCounts]


def status(app: str, settings: Settings) -> Status:
    """The status of an app. Raises TopicError if no pipeline has run for it."""
    brokers = Brokers.of(settings)
    topics = Topics(brokers)
    name = catalog_topic(app)
    records = read_records(brokers, app, topics)
    if APP_RECORD not in records:
        raise TopicError(
            f"app {app!r}: expected its catalog on topic {name} at {brokers}, found none: start the pipeline"
        )
    catalog = Catalog.decode(records[APP_RECORD])
    writer = StoreWriter(settings.redis(), settings.text("prefix") or default_prefix(app))
    try:
        outputs: list[CatalogView | CatalogFeed] = [*catalog.views.values(), *catalog.feeds.values()]
        reports = _reports(writer)
        return Status(
            [_view_status(catalog, output, records, reports, topics, writer, brokers) for output in outputs],
            _dead_letters(catalog, records, topics, brokers),
        )
    finally:
        writer.close()


def _view_status(
    catalog: Catalog,
    view: CatalogView | CatalogFeed,
    records: Mapping[str, bytes],
    reports: Mapping[str, Sequence[Report]],
    topics: Topics,
    writer: StoreWriter,
    brokers: Brokers,
) -> ViewStatus:
    found = records.get(PROGRESS_RECORDS + view.name)
    progress = ViewProgress.decode(found) if found is not None else ViewProgress(view.name, view.generation, -1, 0)
    group = Group(brokers, f"tailrace.{catalog.app}.{view.name}")
    try:
        sources = {name: topic.partitions for name, topic in topics.describe(sorted(view.sources)).items()}
        bounds = group.bounds(sources)
        lineage = catalog.lineage(view)
        fresh = freshness(reports.get(view.name, ()), lineage, view.generation, int(time.time() * 1000))
        served: Offsets = progress.processed
        by_time = fresh.newest is not None and can_be_estimated(progress.mode, progress.generation, view.generation)
        if by_time and fresh.newest is not None:
            served = estimated(served, group.at_time(sources, after(fresh.newest)), bounds)
            if (until := counted_until(fresh.newest, fresh.at)) is not None:
                bounds = ends_at(bounds, group.at_time(sources, after(until)))
        building = view.next.generation if isinstance(view, CatalogView) and view.next is not None else None
        store = stored_partitions(group, writer, view.name, lineage, view.changelog, view.partitions)
        return ViewStatus(
            view=view.name,
            generation=view.generation,
            mode=progress.mode or "starting",
            inputs=progress.inputs,
            skipped=progress.skipped,
            lost=progress.lost,
            behind=backlog(served, bounds),
            behind_seconds=_age(group, served, bounds),
            store_behind=_behind(store),
            building=building,
            store=store,
            behind_estimated=by_time,
            delay=fresh.delay,
            newest=fresh.newest,
            degraded=why_stale(progress.mode, progress.degraded, fresh),
            state=progress.state,
            remembers=remembered(view.definition),
        )
    finally:
        group.close()


def remembered(definition: Mapping[str, object]) -> list[str]:
    """What each `dedupe` of a definition keeps of events, and for how long."""
    found = []
    for name, value in definition.items():
        if name == "sources" and isinstance(value, Mapping):
            found += [text for source in value.values() for text in remembered(source)]
        elif name == "steps" and isinstance(value, Sequence):
            found += [_kept(*step[1:]) for step in value if step[0] == "dedupe" and len(step) > 1]
    return [text for text in found if text]


def _kept(columns: Sequence[str], more: Mapping[str, str] | None = None) -> str:
    more = more or {}
    what = f"header {more['header']}" if "header" in more else ", ".join(columns)
    if not what:
        return ""
    return f"every {what} of the last {more['within']}" if "within" in more else f"every {what} for ever"


def _dead_letters(
    catalog: Catalog, records: Mapping[str, bytes], topics: Topics, brokers: Brokers
) -> list[DeadLetterCounts]:
    found = [ViewProgress.decode(value) for key, value in records.items() if key.startswith(DEAD_LETTER_RECORDS)]
    counts = {name: topic.partitions for name, topic in topics.describe([one.view for one in found]).items()}
    known = {one.view for one in found}
    outputs: list[CatalogView | CatalogFeed] = [*catalog.views.values(), *catalog.feeds.values()]
    kept = {output.changelog: dead_letter_topic(output.changelog) for output in outputs}
    made = topics.describe([name for changelog, name in kept.items() if changelog not in known])
    group = Group(brokers, f"tailrace.{catalog.app}.status")
    try:
        bounds = group.bounds(counts)
        letters = group.bounds({name: topic.partitions for name, topic in made.items()})
    finally:
        group.close()
    of_topics = [
        DeadLetterCounts(
            one.view,
            {reason: count for reason, count in one.skipped.items() if count},
            backlog(one.processed, {one.view: bounds[one.view]}),
        )
        for one in sorted(found, key=lambda one: one.view)
        if one.view in bounds
    ]
    of_changelogs = [
        DeadLetterCounts(changelog, {NOT_APPLIED: sum(end - first for first, end in letters[name].values())}, 0)
        for changelog, name in sorted(kept.items())
        if name in letters
    ]
    return of_topics + of_changelogs


def _reports(writer: StoreWriter) -> dict[str, list[Report]]:
    try:
        return Reports(writer).all()
    except Unavailable as error:
        log.warning("%s. %s", error, error.remedy)
        return {}


def _age(group: Group, served: Offsets, bounds: Mapping[str, Mapping[int, tuple[int, int]]]) -> float:
    """The age in seconds of the oldest record that is not served."""
    now, oldest = time.time(), 0.0
    for topic, partitions in bounds.items():
        for number, (first, end) in partitions.items():
            at = max(first, served.get(topic, {}).get(number, first))
            if at < end:
                oldest = max(oldest, group.age(topic, number, at, now) or 0.0)
    return oldest


def _behind(store: Sequence[StoredPartition] | None) -> int | None:
    if store is None or any(one.offset is None for one in store):
        return None
    return sum(one.behind for one in store)

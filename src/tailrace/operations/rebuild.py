"""`tailrace rebuild` and `tailrace reset`: the plan of a new generation, and the request for it.

Nothing changes before `execute`, which puts a request on the catalog topic. A running pipeline begins at once, any
other at its next start. Readers keep the old rows until the new ones are complete. Views that read the view are built
anew with it. A feed sends its events again, from the chosen place on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from tailrace.contracts.catalog import (
    APP_RECORD,
    PROGRESS_RECORDS,
    Catalog,
    CatalogFeed,
    CatalogView,
    ViewProgress,
    catalog_topic,
)
from tailrace.contracts.requests import REQUEST_RECORDS, Request
from tailrace.errors import TopicError
from tailrace.kafka.brokers import Brokers
from tailrace.kafka.catalog_topic import CatalogWriter, read_records
from tailrace.kafka.groups import Group
from tailrace.kafka.topics import Topics
from tailrace.operations.resets import Bounds, Target, starts
from tailrace.settings import Settings


@dataclass(frozen=True)
class PartitionPlan:
    """One partition: the offset that the view is at now, the one that it begins anew at, and the end of the topic."""

    topic: str
    partition: int
    now: int
    start: int
    end: int


@dataclass(frozen=True)
class Plan:
    """What would be done. `also` are the views that read this one, and those that read them."""

    view: str
    generation: int
    target: str
    partitions: tuple[PartitionPlan, ...]
    also: tuple[str, ...] = ()
    feed: bool = False

    @property
    def records(self) -> int:
        return sum(one.end - one.start for one in self.partitions)


def plan(app: str, view: str, target: Target, settings: Settings) -> Plan:
    """What a rebuild or reset of a view or feed would do. Raises TopicError if no view or feed has the name."""
    brokers = Brokers.of(settings)
    topics = Topics(brokers)
    records = read_records(brokers, app, topics)
    catalog = _catalog(app, records, brokers)
    entry = _entry(catalog, view)
    newest = (entry.next or entry) if isinstance(entry, CatalogView) else entry
    found = records.get(PROGRESS_RECORDS + view)
    processed = ViewProgress.decode(found).processed if found is not None else {}
    group = Group(brokers, f"tailrace.{app}.{view}.reset")
    try:
        counts = {name: topic.partitions for name, topic in topics.describe(sorted(newest.sources)).items()}
        bounds: Bounds = group.bounds(counts)
        chosen = starts(target, bounds, processed, lambda at: group.at_time(counts, at), datetime.now(UTC))
    finally:
        group.close()
    return Plan(
        view,
        newest.generation,
        str(target),
        tuple(
            PartitionPlan(topic, p, processed.get(topic, {}).get(p, first), chosen[topic][p], end)
            for topic, of in bounds.items()
            for p, (first, end) in of.items()
        ),
        readers(catalog, view),
        isinstance(entry, CatalogFeed),
    )


def readers(catalog: Catalog, name: str) -> tuple[str, ...]:
    """The views that read a view, and those that read them."""
    found = {name}
    while more := {view.name for view in catalog.views.values() if found & (view.next or view).parents.keys()} - found:
        found |= more
    return tuple(sorted(found - {name}))


def execute(app: str, planned: Plan, settings: Settings) -> None:
    """Ask the pipeline for what was planned."""
    offsets: dict[str, dict[str, int]] = {}
    if planned.target != "earliest":
        for one in planned.partitions:
            offsets.setdefault(one.topic, {})[str(one.partition)] = one.start
    request = Request(planned.generation, offsets, f"a rebuild from {planned.target} was asked for")
    writer = CatalogWriter(Brokers.of(settings), catalog_topic(app))
    writer.put(REQUEST_RECORDS + planned.view, request.encode())
    writer.flush()


def _catalog(app: str, records: Mapping[str, bytes], brokers: Brokers) -> Catalog:
    if APP_RECORD not in records:
        raise TopicError(
            f"app {app!r}: expected its catalog on topic {catalog_topic(app)} at {brokers}, found none: "
            "start the pipeline, or correct the name or --kafka"
        )
    return Catalog.decode(records[APP_RECORD])


def _entry(catalog: Catalog, name: str) -> CatalogView | CatalogFeed:
    found: dict[str, CatalogView | CatalogFeed] = {**catalog.views, **catalog.feeds}
    if name not in found:
        raise TopicError(
            f"app {catalog.app!r}: expected one of the views and feeds {', '.join(sorted(found))}, got {name!r}"
        )
    return found[name]

"""Choosing builds: what Kafka, the catalog and the declarations say together of each view and feed.

The rules are those of `generations`, which decide without I/O; here is what they are asked with.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from tailrace.contracts.catalog import CatalogFeed, CatalogView, Column
from tailrace.contracts.position import lineage
from tailrace.declarations import durations
from tailrace.declarations.views import Feed, View
from tailrace.kafka.generations import highest_generation
from tailrace.kafka.topics import TopicOnBroker
from tailrace.pipeline.analysis.analysis import Analysis
from tailrace.pipeline.analysis.definitions import definition
from tailrace.pipeline.changelog.changelog import QueryContext
from tailrace.pipeline.lifecycle.catalog import PipelineCatalog
from tailrace.pipeline.lifecycle.generations import (
    Build,
    Chosen,
    choose_build,
    choose_feed,
    parents_of,
    starts_within,
)
from tailrace.pipeline.source.reading import Reading, readings
from tailrace.pipeline.view.plan import ordered, ordered_topics, versioning, versions_are_offsets
from tailrace.settings import Settings

log = logging.getLogger(__name__)


class BuildChoice:
    """Chooses the build of a view or feed, and puts its entry into the catalog, which is written by somebody else.

    `on_broker` has the topics as they are now.
    """

    def __init__(
        self,
        app: str,
        analysis: Analysis,
        settings: Settings,
        on_broker: Mapping[str, TopicOnBroker],
        checkpoints: Path,
        context: QueryContext,
        catalog: PipelineCatalog,
    ) -> None:
        self._app = app
        self._analysis = analysis
        self._settings = settings
        self._on_broker = on_broker
        self._checkpoints = checkpoints
        self._context = context
        self._catalog = catalog

    def view(self, view: View, known: CatalogView | None) -> Chosen:
        """The build of a view; those of the views that it reads must be in the catalog."""
        described = self._analysis.described[view.name]
        changelog = self._on_broker[view.changelog]
        state = self._settings.number("state-partitions")
        found = self._readings(view)
        parents = parents_of(view)
        wanted = CatalogView(
            name=view.name,
            changelog=view.changelog,
            topic_id=changelog.id,
            partitions=changelog.partitions,
            generation=0,
            key=described.key,
            columns=described.columns,
            definition=definition(view, state, described.texts),
            sources={source.name: self._on_broker[source.name].id for _, source in view.sources},
            schemas=_schemas(found),
            by_offset=versions_are_offsets(view, found),
            parents={name: newest(self._catalog.views[name]).generation for name in parents},
            reads={name: _columns(self._context.types[name]) for name in parents},
            counts={name: self._on_broker[name].partitions for name in ordered_topics(view, found)},
            versioning=versioning(view, found),
        )
        request = self._catalog.request(view.name)
        if request is not None:
            read = {source.name for _, source in view.sources}
            counts = {name: topic.partitions for name, topic in self._on_broker.items() if name in read}
            request = replace(request, starts=starts_within(request.starts, counts))
        chosen = choose_build(
            self._app,
            view,
            known,
            wanted,
            self._checkpoints,
            request,
            above=self._held(changelog) if known is None else 0,
            keep_moved=self._settings.text("new-partitions") == "refuse",
        )
        self._catalog.views[view.name] = chosen.entry
        if changelog.partitions > chosen.entry.partitions:
            log.warning(
                "view %s: its changelog %s has %d partitions, and %d of them are used: rows stay where they are",
                view.name,
                view.changelog,
                changelog.partitions,
                chosen.entry.partitions,
            )
        return chosen

    def feed(self, feed: Feed, known: CatalogFeed | None) -> Build:
        """The build of a feed."""
        described = self._analysis.described[feed.name]
        changelog, source = self._on_broker[feed.changelog], self._on_broker[feed.source.name]
        found = self._readings(feed)
        wanted = CatalogFeed(
            name=feed.name,
            changelog=feed.changelog,
            topic_id=changelog.id,
            partitions=changelog.partitions,
            generation=0,
            key=described.key,
            columns=described.columns,
            definition=definition(feed, self._settings.number("state-partitions"), described.texts),
            sources={feed.source.name: source.id},
            schemas=_schemas(found),
            hold=durations.seconds(feed.hold),
            retain=feed.retain,
            length=feed.length,
            age=durations.seconds(feed.age),
            ordered=ordered(feed, found),
        )
        above = self._held(changelog) if known is None else 0
        request = self._catalog.request(feed.name)
        build, entry = choose_feed(self._app, feed, known, wanted, self._checkpoints, request, above=above)
        if known is not None and known.sources == entry.sources and known.reset == entry.reset:
            # A feed that is declared differently goes on where it was: what was sent is not sent again. A checkpoint
            # that holds offsets already goes by these, one that was made just before a crash does not.
            processed = self._catalog.progress(feed.name, known.generation).offsets
            build = replace(build, starts=starts_within(processed, {feed.source.name: source.partitions}))
        # After a reset, events are told from those that were sent before.
        origin = lineage(self._app, feed.name, f"{source.id} {entry.reset}" if entry.reset else source.id)
        self._catalog.feeds[feed.name] = entry
        return replace(build, origin=origin)

    def _readings(self, output: View | Feed) -> list[tuple[str, Reading]]:
        return readings(output, self._context.types, self._context.registry_schemas)

    def _held(self, changelog: TopicOnBroker) -> int:
        """The highest generation in a changelog that the catalog does not know: its rows must not outrank new ones."""
        brokers, group = self._context.kafka.brokers, f"{self._context.group}.generations"
        return highest_generation(brokers, changelog.name, changelog.partitions, group)


def newest(entry: CatalogView) -> CatalogView:
    """The build that is being made, or else the one that is served."""
    return entry.next or entry


def _schemas(found: Sequence[tuple[str, Reading]]) -> dict[str, tuple[str | None, str | None]]:
    topics = [one.topic for _, one in found]
    return {topic.name: (topic.schema, topic.key_schema) for topic in topics if topic.registry}


def _columns(columns: Sequence[Column]) -> str:
    return ", ".join(f"{column.name} {column.type}" for column in columns)

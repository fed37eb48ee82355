"""The pipeline: every query of an app, from what the catalog knows to what runs.

Order of a start: create topics → choose generations → write the catalog → start the queries. While it runs it watches
them, hands over new generations, and follows requests on the catalog topic.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from tailrace import durations
from tailrace.app import App
from tailrace.catalog import (
    APP_RECORD,
    DEAD_LETTER_RECORDS,
    PROGRESS_RECORDS,
    Catalog,
    CatalogFeed,
    CatalogView,
    Progress,
    catalog_topic,
)
from tailrace.errors import DefinitionChanged, Unreachable
from tailrace.kafka.catalog_topic import CatalogReader, CatalogWriter
from tailrace.kafka.dead_letters import dead_letter_topic
from tailrace.kafka.generations import highest_generation
from tailrace.kafka.groups import Group
from tailrace.kafka.topics import TopicOnBroker, Topics
from tailrace.pipeline.analysis import Analysis
from tailrace.pipeline.builds import Build, Chosen, choose_build, choose_feed, feed_starts, remove_older
from tailrace.pipeline.changelog import Reach, changelog_writer, real_time
from tailrace.pipeline.checkpoint import forget_unfinished
from tailrace.pipeline.dead_letters import write_dead_letters
from tailrace.pipeline.declared import declared_topics
from tailrace.pipeline.definitions import definition
from tailrace.pipeline.events import REASONS, dedupe
from tailrace.pipeline.evidence import Account, Offsets
from tailrace.pipeline.needs import used
from tailrace.pipeline.plan import ordered, versions_are_offsets
from tailrace.pipeline.query import BATCHES, CATCHING_UP, LIVE, Query, Task
from tailrace.pipeline.reading import reading, readings
from tailrace.pipeline.registered import Registered
from tailrace.pipeline.rehearsal import Rehearsal
from tailrace.pipeline.search import Found, Place, Search
from tailrace.position import lineage
from tailrace.requests import REQUEST_RECORDS, request_for
from tailrace.settings import Settings
from tailrace.topics import Table, Topic
from tailrace.views import REAL_TIME, Feed, View

log = logging.getLogger(__name__)

_ALLOWLIST = "spark.sql.streaming.realTimeMode.allowlistCheck"


class Pipeline:
    """The running queries. `watch` is to be called about once a second, `stop` at the end."""

    def __init__(
        self,
        app: App,
        session: SparkSession,
        analysis: Analysis,
        settings: Settings,
        on_broker: dict[str, TopicOnBroker],
        registered: Registered,
        scratch: Path,
    ) -> None:
        self._app = app
        self._session = session
        self._analysis = analysis
        self._settings = settings
        self._on_broker = on_broker
        self._on_kafka = Topics(settings.text("kafka"))
        self._checkpoints = scratch.parent
        servers, topic = settings.text("kafka"), catalog_topic(app.name)
        group, length = f"tailrace.{app.name}", settings.seconds("batch-interval")
        self._registered = registered
        self._reach = Reach(servers, group, length, dict(analysis.types), registered)
        self._reader = CatalogReader(servers, topic)
        self._records = self._reader.read_whole()
        known = Catalog.decode(self._records[APP_RECORD]) if APP_RECORD in self._records else Catalog(app.name, {})
        self._views: dict[str, CatalogView] = {}
        self._feeds: dict[str, CatalogFeed] = {}
        self._topics = declared_topics(app, session)
        chosen = [self._choose(view, known.views.get(view.name)) for view in app.views]
        feeds = [self._choose_feed(feed, known.feeds.get(feed.name)) for feed in app.feeds]
        self._writer = CatalogWriter(servers, topic)
        self._write_catalog()
        # Spark's list for real-time mode lacks the dedupe that forgets; that it works there is tested. A query looks at
        # the setting some time after its start, so it is the same for all.
        session.conf.set(_ALLOWLIST, "false" if any(map(self._forgets, app.outputs)) else "true")
        self.queries = {one.build.output.name: self._view_query(one) for one in chosen}
        self.queries.update({build.output.name: self._query(build) for build in feeds})
        self.dead_letters = {source.name: self._dead_letters(source) for source in used(app)}
        for query in self.queries.values():
            self._report(query.progress)
        rehearsed = [build for build in (*(one.build for one in chosen), *feeds) if build.output.mode == REAL_TIME]
        if settings.text("rehearse") == "no":
            rehearsed = []
        self._rehearsal = Rehearsal(session, rehearsed, self._reach, scratch)

    @property
    def started(self) -> bool:
        """Whether every query has been started."""
        return all(query.started for query in self.queries.values())

    def watch(self) -> None:
        """Watch every query, and do what was asked for."""
        for key, value in self._reader.poll(0):
            if key.startswith(REQUEST_RECORDS) and value is not None:
                self._asked(key.removeprefix(REQUEST_RECORDS), value)
        for query in self.queries.values():
            query.watch()
        if self.started:
            for search in self.dead_letters.values():
                search.watch()
        if all(query.live for query in self.queries.values()):
            self._rehearsal.watch()

    def reasons(self) -> list[str]:
        """Why the pipeline is not current; empty where it is."""
        parts: list[Query | Search] = [*self.queries.values(), *self.dead_letters.values()]
        return [reason for part in parts for reason in part.reasons()]

    def near_boundary(self) -> bool:
        """Whether some open batch is about to end."""
        return any(query.near_boundary() for query in self.queries.values())

    def rest(self) -> None:
        """Stop what only warms up."""
        self._rehearsal.stop()

    def stop(self) -> None:
        """Stop every query."""
        self.rest()
        for search in self.dead_letters.values():
            search.stop()
        for query in reversed(self.queries.values()):
            query.stop()
        self._writer.flush()
        self._reader.close()

    def _choose(self, view: View, known: CatalogView | None) -> Chosen:
        described = self._analysis.described[view.name]
        changelog = self._on_broker[view.changelog]
        state = self._settings.number("state-partitions")
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
            schemas=self._schemas(view),
            by_offset=versions_are_offsets(view, readings(view, self._reach.types, self._registered)),
        )
        request = request_for(view.name, self._records)
        above = self._held(changelog) if known is None else 0
        chosen = choose_build(self._app.name, view, known, wanted, self._checkpoints, request, above=above)
        self._views[view.name] = chosen.entry
        return chosen

    def _choose_feed(self, feed: Feed, known: CatalogFeed | None) -> Build:
        described = self._analysis.described[feed.name]
        changelog = self._on_broker[feed.changelog]
        entry = CatalogFeed(
            name=feed.name,
            changelog=feed.changelog,
            topic_id=changelog.id,
            partitions=changelog.partitions,
            generation=0,
            key=described.key,
            columns=described.columns,
            definition=definition(feed, self._settings.number("state-partitions"), described.texts),
            sources={feed.source.name: self._on_broker[feed.source.name].id},
            schemas=self._schemas(feed),
            hold=durations.seconds(feed.hold),
            retain=feed.retain,
            length=feed.length,
            age=durations.seconds(feed.age),
            ordered=ordered(feed, readings(feed, self._reach.types, self._registered)),
        )
        same = known is not None and (known.definition, known.sources, known.topic_id) == (
            entry.definition,
            entry.sources,
            entry.topic_id,
        )
        generation = known.generation if known is not None else None
        above = self._held(changelog) if known is None else 0
        build = choose_feed(self._app.name, feed, generation, changelog.id, self._checkpoints, same=same, above=above)
        if known is not None and known.sources == entry.sources:
            # A feed that is declared differently goes on where it was: what was sent is not sent again. A checkpoint
            # that holds offsets already goes by these, one that was made just before a crash does not.
            processed = self._progress(feed.name, known.generation).offsets
            counts = {feed.source.name: self._on_broker[feed.source.name].partitions}
            build = replace(build, starts=feed_starts(processed, counts))
        origin = lineage(self._app.name, feed.name, self._on_broker[feed.source.name].id)
        build = replace(build, origin=origin)
        self._feeds[feed.name] = replace(entry, generation=build.generation)
        return build

    def _held(self, changelog: TopicOnBroker) -> int:
        """The highest generation in a changelog that the catalog does not know: its rows must not outrank new ones."""
        return highest_generation(self._reach.servers, changelog.name, changelog.partitions)

    def _schemas(self, output: View | Feed) -> dict[str, tuple[str | None, str | None]]:
        found = [one.topic for _, one in readings(output, self._reach.types, self._registered)]
        return {topic.name: (topic.schema, topic.key_schema) for topic in found if topic.registry}

    def _view_query(self, chosen: Chosen) -> Query:
        return self._query(chosen.build, handing_over=chosen.handing_over)

    def _query(self, build: Build, *, handing_over: bool = False) -> Query:
        output = build.output
        what = "view" if isinstance(output, View) else "feed"
        task = Task(
            name=output.name,
            subject=f"{what} {output.name}",
            writer=lambda mode: self._started(build, mode),
            live=LIVE if output.mode == REAL_TIME else BATCHES,
            batch_seconds=self._reach.batch_seconds,
            servers=self._reach.servers,
            group=f"{self._reach.group}.{output.name}",
            partitions={s.name: self._on_broker[s.name].partitions for _, s in output.sources},
            starts=build.starts,
            building=handing_over,
            caught_up=lambda: self._hand_over(build),
            learn=self._registered.learn,
        )
        progress = self._progress(output.name, build.generation)
        if isinstance(output, Feed) and not progress.offsets:
            # Should this build end before its first batch has, the next one finds where it was to begin.
            begun = {t: {p: offset for p, offset in of.items() if offset >= 0} for t, of in build.starts.items()}
            progress = replace(progress, offsets=begun)
        return Query(task, progress, self._report)

    def _forgets(self, output: View | Feed) -> bool:
        found = (dedupe(one) for _, one in readings(output, self._reach.types, self._registered))
        return any(step is not None and step.within is not None for step in found)

    def _started(self, build: Build, mode: str) -> DataStreamWriter:
        forget_unfinished(build.checkpoint)
        longest = self._on_kafka.longest(build.output.changelog)
        writer = changelog_writer(self._session, build, self._reach, batches=mode != LIVE, longest=longest)
        if mode == LIVE:
            return real_time(writer, self._reach.batch_seconds)
        return writer.trigger(availableNow=True) if mode == CATCHING_UP else writer

    def _dead_letters(self, source: Topic | Table) -> Search:
        declared = reading(source, {}, self._registered)
        outputs = [
            (output, found)
            for output in self._app.outputs
            for _, found in readings(output, self._reach.types, self._registered)
            if found.topic.name == source.name
        ]
        on_broker, context = self._on_broker[source.name], self._session.sparkContext
        name = dead_letter_topic(source.name)
        found = self._records.get(DEAD_LETTER_RECORDS + source.name)
        progress = Progress.decode(found) if found is not None else _nothing(source.name, 1)
        if progress.topic_id != on_broker.id:
            progress = replace(_nothing(source.name, 1), topic_id=on_broker.id)

        def search(starts: Offsets, ends: Offsets) -> Found:
            context.setJobGroup(name, f"dead letters of {source.name}", interruptOnCancel=True)
            longest = self._on_kafka.longest(name)
            return write_dead_letters(self._session, declared, outputs, self._reach, starts, ends, longest)

        def report(progress: Progress) -> None:
            self._writer.put(DEAD_LETTER_RECORDS + progress.view, progress.encode())

        return Search(
            Place(source.name, on_broker.partitions, self._reach.servers, f"{self._reach.group}.{name}"),
            progress,
            search=search,
            cancel=lambda: context.cancelJobGroup(name),
            accounts=lambda: {output.name: self._account(output.name, source.name) for output, _ in outputs},
            learn=self._registered.learn,
            report=report,
            batch_seconds=self._reach.batch_seconds,
        )

    def _account(self, output: str, topic: str) -> Account:
        """What an output says of a topic that it reads."""
        query = self.queries[output]
        skipped = query.progress.unseen + sum(query.progress.skipped.get(reason, 0) for reason in REASONS)
        offsets = query.progress.processed.get(topic, {})
        return Account(query.progress.generation, offsets, skipped, whole=not query.task.starts)

    def _hand_over(self, build: Build) -> None:
        """Readers get the new generation, as soon as the store has what its changelog holds now."""
        name = build.output.name
        before = self._views[name]
        entry = before.next
        if entry is None:
            return
        group = Group(self._reach.servers, f"{self._reach.group}.{name}")
        try:
            bounds = group.bounds({entry.changelog: entry.partitions})[entry.changelog]
        finally:
            group.close()
        since = {str(number): end - 1 for number, (_, end) in bounds.items()}
        self._views[name] = replace(entry, since=since)
        try:
            self._write_catalog()
        except Unreachable:
            self._views[name] = before
            raise
        log.info("view %s: generation %d takes over", name, entry.generation)
        remove_older(build)

    def _asked(self, name: str, value: bytes) -> None:
        """Begin what an operator has asked for, unless it is done already."""
        self._records[REQUEST_RECORDS + name] = value
        view = next((view for view in self._app.views if view.name == name), None)
        request = request_for(name, self._records)
        if view is None or request is None:
            return
        entry = self._views[name]
        if request.after != (entry.next or entry).generation:
            return
        try:
            chosen = self._choose(view, entry)
        except DefinitionChanged:
            return
        self.queries[name].stop()
        self._write_catalog()
        self.queries[name] = self._view_query(chosen)
        self._report(self.queries[name].progress)

    def _write_catalog(self) -> None:
        catalog = Catalog(app=self._app.name, views=self._views, feeds=self._feeds, topics=self._topics)
        self._writer.put(APP_RECORD, catalog.encode())
        self._writer.flush()

    def _report(self, progress: Progress) -> None:
        self._writer.put(PROGRESS_RECORDS + progress.view, progress.encode())

    def _progress(self, name: str, generation: int) -> Progress:
        """The totals of a build so far; a new generation counts from zero."""
        if (data := self._records.get(PROGRESS_RECORDS + name)) is not None:
            progress = Progress.decode(data)
            if progress.generation == generation:
                return progress
        return _nothing(name, generation)


def _nothing(name: str, generation: int) -> Progress:
    return Progress(view=name, generation=generation, batch=-1, inputs=0, skipped=dict.fromkeys(REASONS, 0))

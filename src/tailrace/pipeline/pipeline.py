"""The pipeline: every query of an app, from what the catalog knows to what runs.

Order of a start: create topics → choose generations → write the catalog → start the queries. While it runs it watches
them, notices partitions that are added to topics, follows requests on the catalog topic, and hands over new
generations: see `rebuilds`.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from tailrace.contracts.catalog import (
    APP_RECORD,
    BUILDING_RECORDS,
    DEAD_LETTER_RECORDS,
    PROGRESS_RECORDS,
    Catalog,
    CatalogFeed,
    CatalogView,
    Column,
    Progress,
    catalog_topic,
)
from tailrace.contracts.position import lineage
from tailrace.contracts.requests import REQUEST_RECORDS, Request, request_for
from tailrace.declarations import durations
from tailrace.declarations.app import App
from tailrace.declarations.topics import Table, Topic
from tailrace.declarations.views import REAL_TIME, Feed, View
from tailrace.errors import DefinitionChanged, TailraceError, Unreachable
from tailrace.kafka.catalog_topic import CatalogReader, CatalogWriter
from tailrace.kafka.dead_letters import dead_letter_topic
from tailrace.kafka.generations import highest_generation
from tailrace.kafka.groups import Group
from tailrace.kafka.partition_counts import PartitionCounts
from tailrace.kafka.topics import Policy, TopicOnBroker, Topics
from tailrace.pipeline.analysis.analysis import Analysis
from tailrace.pipeline.analysis.declared import declared_topics
from tailrace.pipeline.analysis.definitions import definition
from tailrace.pipeline.analysis.resources import all_slots, read_topics, used
from tailrace.pipeline.changelog.changelog import QueryContext, build_readings, changelog_writer, real_time
from tailrace.pipeline.dead_letters.dead_letters import write_dead_letters
from tailrace.pipeline.dead_letters.search import Search, SearchedTopic, SearchResult
from tailrace.pipeline.dead_letters.search_plan import Offsets, SkipReport
from tailrace.pipeline.lifecycle.checkpoints import forget_unfinished
from tailrace.pipeline.lifecycle.generations import (
    Build,
    Chosen,
    choose_build,
    choose_feed,
    parents_of,
    remove_older,
    starts_within,
)
from tailrace.pipeline.lifecycle.past import Past
from tailrace.pipeline.lifecycle.query import BATCHES, CATCHING_UP, LIVE, Query, Task
from tailrace.pipeline.lifecycle.rebuilds import Rebuilds
from tailrace.pipeline.lifecycle.rehearsal import Rehearsal
from tailrace.pipeline.lifecycle.replays import Replays
from tailrace.pipeline.source.reading import Ground, reading, readings
from tailrace.pipeline.source.registry_schemas import RegistrySchemas
from tailrace.pipeline.spark.session import too_few_slots
from tailrace.pipeline.view.events import REASONS, dedupe
from tailrace.pipeline.view.plan import (
    accumulates,
    ordered,
    ordered_topics,
    versioning,
    versions_are_offsets,
    watermarked,
)
from tailrace.settings import Settings

log = logging.getLogger(__name__)

_ALLOWLIST = "spark.sql.streaming.realTimeMode.allowlistCheck"
# What may make rows stale.
_MOVED = "moved"
_TOMBSTONES = "tombstones"
_SLOTS = "slots"
_STANDING = "standing"


class Pipeline:
    """The running queries. `watch` is to be called about once a second, `stop` at the end."""

    def __init__(
        self,
        app: App,
        session: SparkSession,
        analysis: Analysis,
        settings: Settings,
        on_broker: dict[str, TopicOnBroker],
        registry_schemas: RegistrySchemas,
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
        self._registry_schemas = registry_schemas
        self._context = QueryContext(servers, group, length, dict(analysis.types), registry_schemas)
        self._policies = self._on_kafka.policies(read_topics(app))
        self._reader = CatalogReader(servers, topic)
        self._records = self._reader.read_whole()
        self._past = Past(app.name, self._records)
        known = self._past.catalog()
        self._views: dict[str, CatalogView] = {}
        self._feeds: dict[str, CatalogFeed] = {}
        self._topics = declared_topics(app, session)
        # By view and by what, why some of its rows may be stale.
        self._stale: dict[str, dict[str, str]] = {}
        chosen = {view.name: self._choose(view, known.views.get(view.name)) for view in app.views}
        feeds = [self._choose_feed(feed, known.feeds.get(feed.name)) for feed in app.feeds]
        self._counts = PartitionCounts(servers, list(on_broker), {name: t.partitions for name, t in on_broker.items()})
        self._writer = CatalogWriter(servers, topic)
        self._write_catalog()
        # Spark's list for real-time mode lacks the dedupe that forgets; that it works there is tested. A query looks at
        # the setting some time after its start, so it is the same for all.
        session.conf.set(_ALLOWLIST, "false" if any(map(self._forgets, app.outputs)) else "true")
        # What readers have, and what is being built to take the place of some of it. A build that has nothing beside it
        # which could go on is in both.
        self.queries: dict[str, Query] = {}
        self.rebuilds = Rebuilds(self._hand_over)
        for one in chosen.values():
            self._take_up(one)
        self.queries.update({build.output.name: self._query(build) for build in feeds})
        self.dead_letters = {source.name: self._dead_letters(source) for source in used(app)}
        for query in self.queries.values():
            self._report(query.progress)
        self._tell_stale()
        builds = (*(one.build for one in chosen.values()), *feeds)
        rehearsed = [build for build in builds if build.output.mode == REAL_TIME]
        if settings.text("rehearse") == "no":
            rehearsed = []
        self._rehearsal = Rehearsal(session, rehearsed, self._context, scratch)
        self._check_slots()

    @property
    def started(self) -> bool:
        """Whether every query has been started."""
        return all(query.started for query in self.queries.values())

    def watch(self) -> None:
        """Watch every query, and do what was asked for."""
        for key, value in self._reader.poll(0):
            if key.startswith(REQUEST_RECORDS) and value is not None:
                self._try(key.removeprefix(REQUEST_RECORDS), value)
        self._look_for_partitions()
        for query in list(self.queries.values()):
            if not query.building:
                query.watch()
        self.rebuilds.watch(self.queries)
        if self.started:
            for search in self.dead_letters.values():
                search.watch()
        if self.rebuilds.under_way:
            # Both use the slots that are kept free for one of them.
            self._rehearsal.stop()
        elif all(query.live for query in self.queries.values()):
            self._rehearsal.watch()

    def reasons(self) -> list[str]:
        """Why the pipeline is not current; empty where it is."""
        parts: list[Query | Search] = [*self.queries.values(), *self.dead_letters.values()]
        return [reason for part in parts for reason in part.reasons()]

    def degraded(self) -> list[tuple[str, str]]:
        """Views of which some rows may be stale, and why."""
        return [(name, reason) for name, query in self.queries.items() for reason in query.progress.degraded]

    def partitions(self) -> dict[str, int]:
        """How many partitions the topics have that the app reads and writes."""
        return {name: topic.partitions for name, topic in self._on_broker.items()}

    def near_boundary(self) -> bool:
        """Whether some open batch is about to end."""
        return any(query.near_boundary() for query in self.queries.values())

    def rest(self) -> None:
        """Stop what only warms up."""
        self._rehearsal.stop()

    def stop(self) -> None:
        """Stop every query."""
        self.rest()
        self._counts.close()
        for search in self.dead_letters.values():
            search.stop()
        self.rebuilds.stop()
        for query in reversed(self.queries.values()):
            query.stop()
        self._writer.flush()
        self._reader.close()

    def _choose(self, view: View, known: CatalogView | None) -> Chosen:
        described = self._analysis.described[view.name]
        changelog = self._on_broker[view.changelog]
        state = self._settings.number("state-partitions")
        found = readings(view, self._context.types, self._registry_schemas)
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
            schemas=self._schemas(view),
            by_offset=versions_are_offsets(view, found),
            parents={name: newest(self._views[name]).generation for name in parents},
            reads={name: _columns(self._context.types[name]) for name in parents},
            counts={name: self._on_broker[name].partitions for name in ordered_topics(view, found)},
            versioning=versioning(view, found),
        )
        request = request_for(view.name, self._records)
        if request is not None:
            read = {source.name for _, source in view.sources}
            counts = {name: topic.partitions for name, topic in self._on_broker.items() if name in read}
            request = replace(request, starts=starts_within(request.starts, counts))
        above = self._held(changelog) if known is None else 0
        chosen = choose_build(
            self._app.name,
            view,
            known,
            wanted,
            self._checkpoints,
            request,
            above=above,
            keep_moved=self._settings.text("new-partitions") == "refuse",
        )
        self._views[view.name] = chosen.entry
        self._mark_stale(view.name, _MOVED, chosen.stale)
        standing = chosen.handing_over and chosen.served is None
        building = f"generation {chosen.build.generation} is being built: rows stand still until it is complete"
        self._mark_stale(view.name, _STANDING, building if standing else "")
        if changelog.partitions > chosen.entry.partitions:
            log.warning(
                "view %s: its changelog %s has %d partitions, and %d of them are used: rows stay where they are",
                view.name,
                view.changelog,
                changelog.partitions,
                chosen.entry.partitions,
            )
        return chosen

    def _take_up(self, chosen: Chosen) -> None:
        """Have a chosen build run, and what readers have beside it."""
        name = chosen.build.output.name
        if not chosen.handing_over:
            self.queries[name] = self._query(chosen.build)
            return
        build = self._query(chosen.build, building=True)
        if chosen.served is None:
            if name in self.queries:
                self.queries[name].stop()
            self.queries[name] = build
        elif name not in self.queries or self.queries[name].building:
            self.queries[name] = self._query(chosen.served)
        self.rebuilds.add(name, build, chosen.build, parents_of(chosen.build.output))

    def _choose_feed(self, feed: Feed, known: CatalogFeed | None) -> Build:
        described = self._analysis.described[feed.name]
        changelog = self._on_broker[feed.changelog]
        wanted = CatalogFeed(
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
            ordered=ordered(feed, readings(feed, self._context.types, self._registry_schemas)),
        )
        request = request_for(feed.name, self._records)
        above = self._held(changelog) if known is None else 0
        build, entry = choose_feed(self._app.name, feed, known, wanted, self._checkpoints, request, above=above)
        if known is not None and known.sources == entry.sources and known.reset == entry.reset:
            # A feed that is declared differently goes on where it was: what was sent is not sent again. A checkpoint
            # that holds offsets already goes by these, one that was made just before a crash does not.
            processed = self._progress(feed.name, known.generation).offsets
            counts = {feed.source.name: self._on_broker[feed.source.name].partitions}
            build = replace(build, starts=starts_within(processed, counts))
        source = self._on_broker[feed.source.name].id
        # After a reset, events are told from those that were sent before.
        origin = lineage(self._app.name, feed.name, f"{source} {entry.reset}" if entry.reset else source)
        build = replace(build, origin=origin)
        self._feeds[feed.name] = entry
        return build

    def _held(self, changelog: TopicOnBroker) -> int:
        """The highest generation in a changelog that the catalog does not know: its rows must not outrank new ones."""
        return highest_generation(self._context.servers, changelog.name, changelog.partitions)

    def _schemas(self, output: View | Feed) -> dict[str, tuple[str | None, str | None]]:
        found = [one.topic for _, one in readings(output, self._context.types, self._registry_schemas)]
        return {topic.name: (topic.schema, topic.key_schema) for topic in found if topic.registry}

    def _query(self, build: Build, *, building: bool = False) -> Query:
        output = build.output
        what = "view" if isinstance(output, View) else "feed"
        task = Task(
            name=output.name,
            subject=f"{what} {output.name}",
            writer=lambda mode, base: self._started(build, mode, base),
            live=LIVE if output.mode == REAL_TIME else BATCHES,
            batch_seconds=self._context.batch_seconds,
            servers=self._context.servers,
            group=f"{self._context.group}.{output.name}" + (".building" if building else ""),
            partitions=lambda: {s.name: self._on_broker[s.name].partitions for _, s in output.sources},
            starts=build.starts,
            building=building,
            replays=self._replays(build),
            outdated=lambda why: self._rebuild(output.name, build.generation, why),
            durable=lambda: self._writer.flush(),
            learn=self._registry_schemas.learn,
        )
        progress = self._progress(output.name, build.generation)
        if isinstance(output, Feed) and not progress.offsets:
            # Should this build end before its first batch has, the next one finds where it was to begin.
            begun = {t: {p: offset for p, offset in of.items() if offset >= 0} for t, of in build.starts.items()}
            progress = replace(progress, offsets=begun)
        return Query(task, progress, self._report_building if building else self._report)

    def _replays(self, build: Build) -> Replays:
        """What may be different when a build reads records again; a table that can't be asked about is compacted."""
        found = build_readings(build, self._context)
        events = {reading.topic.name for _, reading in found if not reading.is_table}
        tables = {reading.topic.name: self._policies.get(reading.topic.name, Policy()) for _, reading in found}
        return Replays(
            accumulates=accumulates(build.output, found),
            watermarked=watermarked(build.output, found),
            compacted=frozenset(name for name in events if (p := self._policies.get(name)) is not None and p.compacted),
            tombstones={name: p.tombstones for name, p in tables.items() if p.compacted and name not in events},
        )

    def _forgets(self, output: View | Feed) -> bool:
        found = (dedupe(one) for _, one in readings(output, self._context.types, self._registry_schemas))
        return any(step is not None and step.within is not None for step in found)

    def _started(self, build: Build, mode: str, base: int) -> DataStreamWriter:
        forget_unfinished(build.checkpoint)
        longest = self._on_kafka.longest(build.output.changelog)
        writer = changelog_writer(self._session, build, self._context, batches=mode != LIVE, longest=longest, base=base)
        if mode == LIVE:
            return real_time(writer, self._context.batch_seconds)
        return writer.trigger(availableNow=True) if mode == CATCHING_UP else writer

    def _dead_letters(self, source: Topic | Table) -> Search:
        declared = reading(source, {}, self._registry_schemas)
        outputs = [
            (output, found)
            for output in self._app.outputs
            for _, found in readings(output, self._context.types, self._registry_schemas)
            if found.topic.name == source.name
        ]
        on_broker, context = self._on_broker[source.name], self._session.sparkContext
        name = dead_letter_topic(source.name)
        progress = self._past.progress(DEAD_LETTER_RECORDS + source.name) or _nothing(source.name, 1)
        if progress.topic_id != on_broker.id:
            progress = replace(_nothing(source.name, 1), topic_id=on_broker.id)

        def search(starts: Offsets, ends: Offsets) -> SearchResult:
            context.setJobGroup(name, f"dead letters of {source.name}", interruptOnCancel=True)
            longest = self._on_kafka.longest(name)
            return write_dead_letters(self._session, declared, outputs, self._context, starts, ends, longest)

        def report(progress: Progress) -> None:
            self._writer.put(DEAD_LETTER_RECORDS + progress.view, progress.encode())

        return Search(
            SearchedTopic(
                source.name,
                lambda: self._on_broker[source.name].partitions,
                self._context.servers,
                f"{self._context.group}.{name}",
            ),
            progress,
            search=search,
            cancel=lambda: context.cancelJobGroup(name),
            skip_reports=lambda: {output.name: self._skip_report(output.name, source.name) for output, _ in outputs},
            learn=self._registry_schemas.learn,
            report=report,
            batch_seconds=self._context.batch_seconds,
        )

    def _skip_report(self, output: str, topic: str) -> SkipReport:
        """What an output says of a topic that it reads."""
        query = self.queries[output]
        skipped = query.progress.unseen + sum(query.progress.skipped.get(reason, 0) for reason in REASONS)
        offsets = query.progress.processed.get(topic, {})
        return SkipReport(query.progress.generation, offsets, skipped, whole=not query.task.starts)

    def _hand_over(self, builds: Mapping[str, tuple[Build, Query]]) -> None:
        """Readers get new generations of some views, all named at once, as soon as the store has what they hold now."""
        before = dict(self._views)
        for name in builds:
            entry = newest(self._views[name])
            group = Group(self._context.servers, f"{self._context.group}.{name}")
            try:
                bounds = group.bounds({entry.changelog: entry.partitions})[entry.changelog]
            finally:
                group.close()
            self._views[name] = replace(entry, since={str(number): end - 1 for number, (_, end) in bounds.items()})
        try:
            self._write_catalog()
        except Unreachable:
            self._views = before
            raise
        for name, (build, query) in builds.items():
            log.info("view %s: generation %d takes over", name, build.generation)
            if self.queries[name] is not query:
                self.queries[name].stop()
            query.promote()
            self.queries[name] = query
            query.reported_by(self._report, f"{self._context.group}.{name}")
            self._writer.put(BUILDING_RECORDS + name, None)
            self._stale.pop(name, None)
            remove_older(build)
        self._tell_stale()

    def _try(self, name: str, value: bytes) -> None:
        """Do what was asked for; a request that fails in a way nobody foresaw is passed over."""
        try:
            self._asked(name, value)
        except TailraceError:
            raise
        except Exception:
            log.exception("the request for %s failed, and is passed over: %r", name[:200], value[:200])
            self._past.set_aside["request"] += 1
            self._records.pop(REQUEST_RECORDS + name, None)

    def set_aside(self) -> dict[str, int]:
        """How many records could not be read, or failed, and were passed over, by what they were to be."""
        return dict(self._past.set_aside)

    def _asked(self, name: str, value: bytes) -> None:
        """Begin what an operator has asked for, unless it is done already."""
        self._records[REQUEST_RECORDS + name] = value
        request = request_for(name, self._records)
        if request is None:
            self._past.set_aside["request"] += 1
            return
        if name in self._feeds and request.after == self._feeds[name].generation:
            feed = next(feed for feed in self._app.feeds if feed.name == name)
            self._restart_feed(feed)
        elif name in self._views and request.after == newest(self._views[name]).generation:
            self._choose_again()

    def _rebuild(self, name: str, generation: int, why: str) -> None:
        """Have the next generation of a view built, because of what is wrong with one."""
        if name not in self._views or newest(self._views[name]).generation != generation:
            return
        self._mark_stale(name, _TOMBSTONES, why)
        request = Request(generation, {}, why)
        self._records[REQUEST_RECORDS + name] = request.encode()
        # The request is followed as any other when it comes back; a crash before that is found out again.
        self._writer.put(REQUEST_RECORDS + name, request.encode())

    def _restart_feed(self, feed: Feed) -> None:
        build = self._choose_feed(feed, self._feeds[feed.name])
        self.queries[feed.name].stop()
        self._write_catalog()
        self.queries[feed.name] = self._query(build)
        self._report(self.queries[feed.name].progress)

    def _choose_again(self) -> None:
        """Choose the builds of all views anew, and begin those that are new: of a view, and of those that read it."""
        before = dict(self._views)
        try:
            chosen = {view.name: self._choose(view, before[view.name]) for view in self._app.views}
        except DefinitionChanged as error:
            log.error("%s", error)
            self._views = before
            return
        except Exception:
            self._views = before
            raise
        changed = [one for name, one in chosen.items() if self._views[name] != before[name]]
        begun = [one for one in changed if one.entry.next is not None and one.entry.next != before_next(before, one)]
        for one in begun:
            self.rebuilds.give_up(one.build.output.name)
        self._write_catalog()
        for one in begun:
            self._take_up(one)
        self._tell_stale()

    def _look_for_partitions(self) -> None:
        """Take in partitions that were added to topics."""
        counts = self._counts.current()
        grown = {name: count for name, count in counts.items() if count > self._on_broker[name].partitions}
        if not grown:
            return
        for name, count in sorted(grown.items()):
            log.warning("topic %s: has %d partitions now, and had %d", name, count, self._on_broker[name].partitions)
            self._on_broker[name] = replace(self._on_broker[name], partitions=count)
        self._choose_again()
        if not self._check_slots():
            return
        for output in self._app.outputs:
            if any(source.name in grown for _, source in output.sources):
                # Spark would find them when its batch ends.
                self.queries[output.name].again("partitions were added")

    def _check_slots(self) -> bool:
        """Whether Spark has as many task slots as all queries need; tells if not."""
        partitions = {name: topic.partitions for name, topic in self._on_broker.items()}
        grounds = {name: Ground(entry.parents, newest(entry).spread) for name, entry in self._views.items()}
        state, types = self._settings.number("state-partitions"), self._context.types
        needed = all_slots(self._app, types, partitions, self._settings.number("partitions"), state, grounds)
        found = self._session.sparkContext.defaultParallelism
        master = self._settings.text("spark-master")
        why = "" if found >= needed else too_few_slots(needed, found, master)
        if why:
            log.error("%s", why)
        for output in self._app.outputs:
            self._mark_stale(output.name, _SLOTS, why)
        self._tell_stale()
        return not why

    def _mark_stale(self, name: str, what: str, why: str) -> None:
        reasons = self._stale.setdefault(name, {})
        if why:
            if reasons.get(what) != why:
                log.warning("%s: some rows may be stale: %s", name, why)
            reasons[what] = why
        else:
            reasons.pop(what, None)

    def _tell_stale(self) -> None:
        """Report why rows may be stale, also those of views that read such rows."""
        for output in self._app.outputs:
            if output.name not in self.queries:
                continue
            reasons = list(self._stale.get(output.name, {}).values())
            stale = [parent for parent in parents_of(output) if self.queries[parent].progress.degraded]
            reasons += [f"it reads {parent}, of which some rows may be stale" for parent in stale]
            self.queries[output.name].degrade(reasons)

    def _write_catalog(self) -> None:
        catalog = Catalog(app=self._app.name, views=self._views, feeds=self._feeds, topics=self._topics)
        self._writer.put(APP_RECORD, catalog.encode())
        self._writer.flush()

    def _report(self, progress: Progress) -> None:
        self._put(PROGRESS_RECORDS + progress.view, progress)

    def _report_building(self, progress: Progress) -> None:
        self._put(BUILDING_RECORDS + progress.view, progress)

    def _put(self, key: str, progress: Progress) -> None:
        data = progress.encode()
        self._records[key] = data
        self._writer.put(key, data)

    def _progress(self, name: str, generation: int) -> Progress:
        """The totals of a build so far; a new generation counts from zero."""
        for key in (PROGRESS_RECORDS + name, BUILDING_RECORDS + name):
            progress = self._past.progress(key)
            if progress is not None and progress.generation == generation:
                return replace(progress, degraded=())
        return _nothing(name, generation)


def _nothing(name: str, generation: int) -> Progress:
    return Progress(view=name, generation=generation, batch=-1, inputs=0, skipped=dict.fromkeys(REASONS, 0))


def newest(entry: CatalogView) -> CatalogView:
    """The build that is being made, or else the one that is served."""
    return entry.next or entry


def before_next(before: Mapping[str, CatalogView], chosen: Chosen) -> CatalogView | None:
    """The build that was being made of a view."""
    return before[chosen.build.output.name].next


def _columns(columns: Sequence[Column]) -> str:
    return ", ".join(f"{column.name} {column.type}" for column in columns)

"""Supervision: every query, build and search of an app, started, watched, and put in the place of another.

What is served is in `queries`, and what is being built to take the place of some of it in `rebuilds`. A build that has
nothing beside it which could go on is in both.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from tailrace.contracts.requests import Request
from tailrace.declarations.app import App
from tailrace.declarations.topics import Table, Topic
from tailrace.declarations.views import REAL_TIME, Feed, View
from tailrace.errors import Unreachable
from tailrace.kafka.dead_letters import dead_letter_topic
from tailrace.kafka.groups import Group
from tailrace.kafka.topics import Policy, TopicOnBroker, Topics
from tailrace.pipeline.analysis.resources import all_slots, read_topics, used
from tailrace.pipeline.changelog.changelog import QueryContext, build_readings, changelog_writer, real_time
from tailrace.pipeline.dead_letters.dead_letters import write_dead_letters
from tailrace.pipeline.dead_letters.search import Search, SearchedTopic, SearchResult
from tailrace.pipeline.dead_letters.search_plan import Offsets, SkipReport
from tailrace.pipeline.lifecycle.build_choice import newest
from tailrace.pipeline.lifecycle.catalog import PipelineCatalog
from tailrace.pipeline.lifecycle.checkpoints import forget_unfinished
from tailrace.pipeline.lifecycle.generations import Build, Chosen, parents_of, remove_older
from tailrace.pipeline.lifecycle.query import BATCHES, CATCHING_UP, LIVE, Query, Task
from tailrace.pipeline.lifecycle.rebuilds import Rebuilds
from tailrace.pipeline.lifecycle.rehearsal import Rehearsal
from tailrace.pipeline.lifecycle.replays import Replays
from tailrace.pipeline.source.reading import Ground, reading, readings
from tailrace.pipeline.spark.session import too_few_slots
from tailrace.pipeline.view.events import REASONS
from tailrace.pipeline.view.plan import accumulates, watermarked
from tailrace.settings import Settings

log = logging.getLogger(__name__)

# What may make rows stale.
_MOVED = "moved"
_TOMBSTONES = "tombstones"
_SLOTS = "slots"
_STANDING = "standing"


class Supervision:
    """Runs what `begin` and `take_up` are given. `watch` is to be called about once a second, `stop` at the end.

    `on_broker` has the topics as they are now.
    """

    def __init__(
        self,
        app: App,
        session: SparkSession,
        settings: Settings,
        on_broker: Mapping[str, TopicOnBroker],
        context: QueryContext,
        catalog: PipelineCatalog,
    ) -> None:
        self._app = app
        self._session = session
        self._settings = settings
        self._on_broker = on_broker
        self._context = context
        self._catalog = catalog
        self._topics = Topics(context.kafka.brokers)
        self._policies = self._topics.policies(read_topics(app))
        # By view and by what, why some of its rows may be stale.
        self._stale: dict[str, dict[str, str]] = {}
        self.queries: dict[str, Query] = {}
        self.dead_letters: dict[str, Search] = {}
        self._rebuilds = Rebuilds(self._hand_over)
        self._rehearsal: Rehearsal | None = None

    def begin(self, views: Iterable[Chosen], feeds: Iterable[Build], scratch: Path) -> None:
        """Have everything run that was chosen."""
        views, feeds = list(views), list(feeds)
        for one in views:
            self.take_up(one)
        self.queries.update({build.output.name: self._query(build) for build in feeds})
        self.dead_letters.update({source.name: self._search(source) for source in used(self._app)})
        for query in self.queries.values():
            self._catalog.report(query.progress)
        self.tell_stale()
        builds = (*(one.build for one in views), *feeds)
        rehearsed = [build for build in builds if build.output.mode == REAL_TIME]
        if self._settings.text("rehearse") == "no":
            rehearsed = []
        self._rehearsal = Rehearsal(self._session, rehearsed, self._context, scratch)
        self.check_slots()
        log.info(
            "supervises %d queries, %d builds and %d searches for dead letters: one that fails is started again",
            len(self.queries),
            self._rebuilds.count,
            len(self.dead_letters),
        )

    def take_up(self, chosen: Chosen) -> None:
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
        self._rebuilds.add(name, build, chosen.build, parents_of(chosen.build.output))

    def give_up(self, name: str) -> None:
        """Stop a build that another one is to take the place of."""
        self._rebuilds.give_up(name)

    def stop_query(self, name: str) -> None:
        """Stop a query; `run` starts it again as another build."""
        self.queries[name].stop()

    def run(self, build: Build) -> None:
        """Have the build of a feed run in the place of the one before."""
        query = self._query(build)
        self.queries[build.output.name] = query
        self._catalog.report(query.progress)

    @property
    def started(self) -> bool:
        """Whether every query has been started."""
        return all(query.started for query in self.queries.values())

    def watch(self) -> None:
        """Watch every query, build and search."""
        for query in list(self.queries.values()):
            if not query.building:
                query.watch()
        self._rebuilds.watch(self.queries)
        if self.started:
            for search in self.dead_letters.values():
                search.watch()
        if self._rehearsal is None:
            return
        if self._rebuilds.under_way:
            # Both use the slots that are kept free for one of them.
            self._rehearsal.stop()
        elif all(query.live for query in self.queries.values()):
            self._rehearsal.watch()

    def reasons(self) -> list[str]:
        """Why the pipeline is not current; empty if it is."""
        parts: list[Query | Search] = [*self.queries.values(), *self.dead_letters.values()]
        return [reason for part in parts for reason in part.reasons()]

    def rest(self) -> None:
        """Stop what only warms up."""
        if self._rehearsal is not None:
            self._rehearsal.stop()

    def stop(self) -> None:
        """Stop everything; each goes on from its checkpoint."""
        for search in self.dead_letters.values():
            search.stop()
        self._rebuilds.stop()
        for query in reversed(self.queries.values()):
            query.stop()

    def again(self, topics: Iterable[str]) -> None:
        """Start the queries that read some topics again, whose new partitions Spark would find after its batch."""
        grown = set(topics)
        for output in self._app.outputs:
            if any(source.name in grown for _, source in output.sources):
                self.queries[output.name].again("partitions were added")

    def all_again(self, why: str) -> None:
        """Start everything again that runs, because it can't take in a change as it is."""
        for query in (*self.queries.values(), *self._rebuilds.queries()):
            query.again(why)

    def note(self, chosen: Chosen) -> None:
        """Note why rows may be stale while a chosen build runs."""
        name = chosen.build.output.name
        self._mark_stale(name, _MOVED, chosen.stale)
        standing = chosen.handing_over and chosen.served is None
        building = f"generation {chosen.build.generation} is being built: rows stand still until it is complete"
        self._mark_stale(name, _STANDING, building if standing else "")

    def tell_stale(self) -> None:
        """Report why rows may be stale, also those of views that read such rows."""
        for output in self._app.outputs:
            if output.name not in self.queries:
                continue
            reasons = list(self._stale.get(output.name, {}).values())
            stale = [parent for parent in parents_of(output) if self.queries[parent].progress.degraded]
            reasons += [f"it reads {parent}, of which some rows may be stale" for parent in stale]
            self.queries[output.name].degrade(reasons)

    def check_slots(self) -> bool:
        """Whether Spark has as many task slots as all queries need; tells if not."""
        partitions = {name: topic.partitions for name, topic in self._on_broker.items()}
        grounds = {name: Ground(entry.parents, newest(entry).spread) for name, entry in self._catalog.views.items()}
        state, types = self._settings.number("state-partitions"), self._context.types
        needed = all_slots(self._app, types, partitions, self._settings.number("partitions"), state, grounds)
        found = self._session.sparkContext.defaultParallelism
        master = self._settings.text("spark-master")
        why = "" if found >= needed else too_few_slots(needed, found, master)
        if why:
            log.error("%s", why)
        for output in self._app.outputs:
            self._mark_stale(output.name, _SLOTS, why)
        self.tell_stale()
        return not why

    def _mark_stale(self, name: str, what: str, why: str) -> None:
        reasons = self._stale.setdefault(name, {})
        if why:
            if reasons.get(what) != why:
                log.warning("%s: some rows may be stale: %s", name, why)
            reasons[what] = why
        else:
            reasons.pop(what, None)

    def _hand_over(self, builds: Mapping[str, tuple[Build, Query]]) -> None:
        """Readers get new generations of some views, all named at once, as soon as the store has what they hold now."""
        before = dict(self._catalog.views)
        for name in builds:
            entry = newest(self._catalog.views[name])
            group = Group(self._context.kafka.brokers, f"{self._context.group}.{name}")
            try:
                bounds = group.bounds({entry.changelog: entry.partitions})[entry.changelog]
            finally:
                group.close()
            since = {str(number): end - 1 for number, (_, end) in bounds.items()}
            self._catalog.views[name] = replace(entry, since=since)
        try:
            self._catalog.write()
        except Unreachable:
            self._catalog.views = before
            raise
        for name, (build, query) in builds.items():
            log.info("view %s: generation %d takes over", name, build.generation)
            if self.queries[name] is not query:
                self.queries[name].stop()
            query.promote()
            self.queries[name] = query
            query.reported_by(self._catalog.report, f"{self._context.group}.{name}")
            self._catalog.forget_building(name)
            self._stale.pop(name, None)
            remove_older(build)
        self.tell_stale()

    def _rebuild(self, name: str, generation: int, why: str) -> None:
        """Have the next generation of a view built, because of what is wrong with one."""
        if name not in self._catalog.views or newest(self._catalog.views[name]).generation != generation:
            return
        self._mark_stale(name, _TOMBSTONES, why)
        # The request is followed as any other when it comes back; a crash before that is found out again.
        self._catalog.ask(name, Request(generation, {}, why))

    def _query(self, build: Build, *, building: bool = False) -> Query:
        output = build.output
        what = "view" if isinstance(output, View) else "feed"
        task = Task(
            name=output.name,
            subject=f"{what} {output.name}",
            writer=lambda mode, base: self._writer(build, mode, base),
            live=LIVE if output.mode == REAL_TIME else BATCHES,
            batch_seconds=self._context.batch_seconds,
            brokers=self._context.kafka.brokers,
            group=f"{self._context.group}.{output.name}" + (".building" if building else ""),
            partitions=lambda: {s.name: self._on_broker[s.name].partitions for _, s in output.sources},
            starts=build.starts,
            building=building,
            replays=self._replays(build),
            outdated=lambda why: self._rebuild(output.name, build.generation, why),
            durable=self._catalog.flush,
            learn=self._learn,
        )
        progress = self._catalog.progress(output.name, build.generation)
        if isinstance(output, Feed) and not progress.offsets:
            # Should this build end before its first batch has, the next one finds where it was to begin.
            begun = {t: {p: offset for p, offset in of.items() if offset >= 0} for t, of in build.starts.items()}
            progress = replace(progress, offsets=begun)
        return Query(task, progress, self._catalog.report_building if building else self._catalog.report)

    def _learn(self, error: str) -> bool:
        return self._context.registry_schemas is not None and self._context.registry_schemas.learn(error)

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

    def _writer(self, build: Build, mode: str, base: int) -> DataStreamWriter:
        forget_unfinished(build.checkpoint)
        longest = self._topics.longest(build.output.changelog)
        writer = changelog_writer(self._session, build, self._context, batches=mode != LIVE, longest=longest, base=base)
        if mode == LIVE:
            return real_time(writer, self._context.batch_seconds)
        return writer.trigger(availableNow=True) if mode == CATCHING_UP else writer

    def _search(self, source: Topic | Table) -> Search:
        """The search for the dead letters of a source."""
        schemas = self._context.registry_schemas
        declared = reading(source, {}, schemas)
        outputs = [
            (output, found)
            for output in self._app.outputs
            for _, found in readings(output, self._context.types, schemas)
            if found.topic.name == source.name
        ]
        context, name = self._session.sparkContext, dead_letter_topic(source.name)

        def search(starts: Offsets, ends: Offsets) -> SearchResult:
            context.setJobGroup(name, f"dead letters of {source.name}", interruptOnCancel=True)
            longest = self._topics.longest(name)
            return write_dead_letters(self._session, declared, outputs, self._context, starts, ends, longest)

        return Search(
            SearchedTopic(
                source.name,
                lambda: self._on_broker[source.name].partitions,
                self._context.kafka.brokers,
                f"{self._context.group}.{name}",
            ),
            self._catalog.dead_letters_of(source.name, self._on_broker[source.name].id),
            search=search,
            cancel=lambda: context.cancelJobGroup(name),
            skip_reports=lambda: {output.name: self._skip_report(output.name, source.name) for output, _ in outputs},
            learn=self._learn,
            report=self._catalog.report_dead_letters,
            batch_seconds=self._context.batch_seconds,
        )

    def _skip_report(self, output: str, topic: str) -> SkipReport:
        """What an output has read and skipped of a topic."""
        query = self.queries[output]
        skipped = query.progress.unseen + sum(query.progress.skipped.get(reason, 0) for reason in REASONS)
        offsets = query.progress.processed.get(topic, {})
        return SkipReport(query.progress.generation, offsets, skipped, whole=not query.task.starts)

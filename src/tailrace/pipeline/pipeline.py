"""The pipeline: every query of an app, from what the catalog knows to what runs.

Order of a start: create topics → choose builds → write the catalog → start the queries. While it runs it supervises
them, notices partitions that are added to topics, follows requests on the catalog topic, and hands over new
generations: see `supervision` and `rebuilds`.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from pyspark.sql import SparkSession

from tailrace.contracts.catalog import CatalogView
from tailrace.declarations.app import App
from tailrace.declarations.views import Feed, View
from tailrace.errors import DefinitionChanged, TailraceError
from tailrace.kafka.brokers import Brokers
from tailrace.kafka.partition_counts import PartitionCounts
from tailrace.kafka.topics import TopicOnBroker
from tailrace.pipeline.analysis.analysis import Analysis
from tailrace.pipeline.changelog.changelog import QueryContext
from tailrace.pipeline.dead_letters.search import Search
from tailrace.pipeline.lifecycle.build_choice import BuildChoice, newest
from tailrace.pipeline.lifecycle.catalog import PipelineCatalog, catalog_topics
from tailrace.pipeline.lifecycle.generations import Chosen
from tailrace.pipeline.lifecycle.query import Query
from tailrace.pipeline.lifecycle.supervision import Supervision
from tailrace.pipeline.source.reading import readings
from tailrace.pipeline.source.registry_schemas import RegistrySchemas
from tailrace.pipeline.spark.spark_kafka import SparkKafka
from tailrace.pipeline.view.events import dedupe
from tailrace.settings import Settings

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
        registry_schemas: RegistrySchemas,
        scratch: Path,
        brokers: Brokers,
    ) -> None:
        self._app = app
        self._on_broker = on_broker
        length = settings.seconds("batch-interval")
        self._brokers, self._revision = brokers, brokers.revision
        context = QueryContext(
            SparkKafka(brokers, scratch), f"tailrace.{app.name}", length, dict(analysis.types), registry_schemas
        )
        self._catalog = PipelineCatalog(app.name, brokers, catalog_topics(app, session))
        self._choice = BuildChoice(app.name, analysis, settings, on_broker, scratch.parent, context, self._catalog)
        self._supervision = Supervision(app, session, settings, on_broker, context, self._catalog)
        known = self._catalog.known
        chosen = [self._choose(view, known.views.get(view.name)) for view in app.views]
        feeds = [self._choice.feed(feed, known.feeds.get(feed.name)) for feed in app.feeds]
        self._counts = PartitionCounts(brokers, list(on_broker), {name: t.partitions for name, t in on_broker.items()})
        self._catalog.write()
        # Spark's list for real-time mode lacks the dedupe that forgets; that it works there is tested. A query looks at
        # the setting some time after its start, so it is the same for all.
        forgets = any(_forgets(output, context) for output in app.outputs)
        session.conf.set(_ALLOWLIST, "false" if forgets else "true")
        self._supervision.begin(chosen, feeds, scratch)

    @property
    def queries(self) -> Mapping[str, Query]:
        """What readers have, by view and feed."""
        return self._supervision.queries

    @property
    def dead_letters(self) -> Mapping[str, Search]:
        """The searches for dead letters, by topic."""
        return self._supervision.dead_letters

    @property
    def started(self) -> bool:
        """Whether every query has been started."""
        return self._supervision.started

    def watch(self) -> None:
        """Watch everything that runs, and do what was asked for."""
        for name, value in self._catalog.asked():
            self._try(name, value)
        self._look_for_partitions()
        if self._brokers.revision != self._revision:
            self._revision = self._brokers.revision
            self._supervision.all_again("credentials or certificates of Kafka have changed")
        self._supervision.watch()

    def reasons(self) -> list[str]:
        """Why the pipeline is not current; empty if it is."""
        return [*self._brokers.problems(), *self._supervision.reasons()]

    def degraded(self) -> list[tuple[str, str]]:
        """Views of which some rows may be stale, and why."""
        return [(name, reason) for name, query in self.queries.items() for reason in query.progress.degraded]

    def partitions(self) -> dict[str, int]:
        """How many partitions the topics have that the app reads and writes."""
        return {name: topic.partitions for name, topic in self._on_broker.items()}

    def set_aside(self) -> dict[str, int]:
        """How many records could not be read, or failed, and were passed over, by what they were to be."""
        return dict(self._catalog.set_aside)

    def near_boundary(self) -> bool:
        """Whether some open batch is about to end."""
        return any(query.near_boundary() for query in self.queries.values())

    def rest(self) -> None:
        """Stop what only warms up."""
        self._supervision.rest()

    def stop(self) -> None:
        """Stop every query."""
        self.rest()
        self._counts.close()
        self._supervision.stop()
        self._catalog.close()

    def _choose(self, view: View, known: CatalogView | None) -> Chosen:
        chosen = self._choice.view(view, known)
        self._supervision.note(chosen)
        return chosen

    def _try(self, name: str, value: bytes) -> None:
        """Do what was asked for; a request that fails in a way nobody foresaw is passed over."""
        try:
            self._follow(name, value)
        except TailraceError:
            raise
        except Exception:
            log.exception("the request for %s failed, and is passed over: %r", name[:200], value[:200])
            self._catalog.refuse_request(name)

    def _follow(self, name: str, value: bytes) -> None:
        """Begin what an operator has asked for, unless it is done already."""
        request = self._catalog.take_request(name, value)
        if request is None:
            return
        views, feeds = self._catalog.views, self._catalog.feeds
        if name in feeds and request.after == feeds[name].generation:
            self._restart_feed(next(feed for feed in self._app.feeds if feed.name == name))
        elif name in views and request.after == newest(views[name]).generation:
            self._choose_again()

    def _restart_feed(self, feed: Feed) -> None:
        build = self._choice.feed(feed, self._catalog.feeds[feed.name])
        self._supervision.stop_query(feed.name)
        self._catalog.write()
        self._supervision.run(build)

    def _choose_again(self) -> None:
        """Choose the builds of all views anew, and begin those that are new: of a view, and of those that read it."""
        before = dict(self._catalog.views)
        try:
            chosen = {view.name: self._choose(view, before[view.name]) for view in self._app.views}
        except DefinitionChanged as error:
            log.error("%s", error)
            self._catalog.views = before
            return
        except Exception:
            self._catalog.views = before
            raise
        changed = [one for name, one in chosen.items() if self._catalog.views[name] != before[name]]
        begun = [one for one in changed if one.entry.next is not None and one.entry.next != _next_before(before, one)]
        for one in begun:
            self._supervision.give_up(one.build.output.name)
        self._catalog.write()
        for one in begun:
            self._supervision.take_up(one)
        self._supervision.tell_stale()

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
        if self._supervision.check_slots():
            self._supervision.again(grown)


def _forgets(output: View | Feed, context: QueryContext) -> bool:
    """Whether a dedupe of an output forgets what is too old."""
    found = (dedupe(one) for _, one in readings(output, context.types, context.registry_schemas))
    return any(step is not None and step.within is not None for step in found)


def _next_before(before: Mapping[str, CatalogView], chosen: Chosen) -> CatalogView | None:
    """The build that was being made of a view."""
    return before[chosen.build.output.name].next

"""The pipeline process.

Order of a start: mistakes that need no Spark → what Kafka has → Spark → mistakes in SQL → create topics → choose
generations → write the catalog → start the queries. Nothing is created for an app that has mistakes.
"""

from __future__ import annotations

import logging
import shutil
import time
from pathlib import Path
from threading import Event

from pyspark.sql import SparkSession

from tailrace.app import App
from tailrace.catalog import APP_RECORD, PROGRESS_RECORDS, Catalog, CatalogView, Progress, catalog_topic
from tailrace.dev import jars
from tailrace.errors import DeclarationError, SettingError, TopicError
from tailrace.health import HealthServer
from tailrace.kafka.catalog_topic import CatalogReader, CatalogWriter
from tailrace.kafka.topics import COMPACTED, TopicOnBroker, Topics
from tailrace.mistakes import find_mistakes
from tailrace.pipeline.analysis import Analysis
from tailrace.pipeline.builds import Build, choose_build, definition
from tailrace.pipeline.changelog import Reach
from tailrace.pipeline.counters import Counters
from tailrace.pipeline.lock import CheckpointLock
from tailrace.pipeline.plans import REASONS, state_stages
from tailrace.pipeline.query import ViewQuery
from tailrace.pipeline.rehearsal import Rehearsal
from tailrace.pipeline.session import Jvm, start_session
from tailrace.settings import Settings
from tailrace.stopping import stop_event
from tailrace.views import View

log = logging.getLogger(__name__)

# In the checkpoint directory; no view can have this name.
SCRATCH = ".scratch"
_WATCH_EVERY = 1.0
_SHORTEST_BATCH = 5
_LONGEST_STOP = 7.0


def run(app: App, settings: Settings) -> int:
    """Compute the views of an app until SIGTERM or SIGINT."""
    stopping = stop_event()
    if mistakes := find_mistakes(app):
        raise DeclarationError(mistakes)
    if settings.seconds("batch-interval") < _SHORTEST_BATCH:
        raise SettingError(
            f"--batch-interval: expected at least {_SHORTEST_BATCH} s, because nothing flows for some tenths of a "
            f"second between two batches, got {settings.text('batch-interval')!r}"
        )
    checkpoints = _checkpoints(settings)
    lock = CheckpointLock(checkpoints)
    scratch = checkpoints / SCRATCH
    # What a pipeline that was killed has left there.
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir()
    topics = Topics(settings.text("kafka"))
    found = _sources(app, topics, settings)
    session = start_session(
        app.name,
        slots=_slots(app, found, settings),
        state_partitions=settings.number("state-partitions"),
        jars=jars.ensure("spark", _directory(settings)),
        scratch=scratch,
    )
    jvm = Jvm(session)
    lock.keep_for(jvm.pid)
    try:
        with jvm.watched():
            _run(app, session, jvm, topics, settings, stopping)
    finally:
        jvm.stop()
        shutil.rmtree(scratch, ignore_errors=True)
        lock.release()
    return 0


def _run(app: App, session: SparkSession, jvm: Jvm, topics: Topics, settings: Settings, stopping: Event) -> None:
    """Start the queries, watch them until it is time to stop, and stop them."""
    queries, rehearsal, writer = _prepare(app, session, topics, settings, _checkpoints(settings))
    health = _health(settings, Counters(queries), queries)
    while not stopping.wait(_WATCH_EVERY if all(q.started for q in queries) else 0.05):
        jvm.check()
        for query in queries:
            query.watch()
        if all(query.live for query in queries):
            rehearsal.watch()
    log.info("stopping")
    rehearsal.stop()
    patience = time.monotonic() + _LONGEST_STOP
    while any(query.near_boundary() for query in queries) and time.monotonic() < patience:
        time.sleep(0.05)
    for query in reversed(queries):
        query.stop()
    writer.flush()
    if health is not None:
        health.close()


def _checkpoints(settings: Settings) -> Path:
    return Path(settings.text("checkpoints")).absolute()


def _directory(settings: Settings) -> Path | None:
    return Path(settings.text("jars")) if settings.text("jars") else None


def _sources(app: App, topics: Topics, settings: Settings) -> dict[str, TopicOnBroker]:
    """The source topics that exist; a missing one is an error unless it may be created."""
    names = sorted({view.source.name for view in app.views})
    found = topics.describe(names)
    missing = [name for name in names if name not in found]
    if missing and settings.text("create-topics") != "all":
        raise TopicError(
            f"expected the topics {', '.join(names)} on {settings.text('kafka')}, did not find {', '.join(missing)}: "
            "create them, correct their names, or start with --create-topics all"
        )
    return found


def _slots(app: App, found: dict[str, TopicOnBroker], settings: Settings) -> int:
    """Real-time mode keeps a task per source and per state partition running, for every view and for a rehearsal."""
    new, state = settings.number("partitions"), settings.number("state-partitions")

    def needed(view: View) -> int:
        source = found.get(view.source.name)
        return (source.partitions if source is not None else new) + state * state_stages(view)

    return sum(map(needed, app.views)) + max(map(needed, app.views))


def _prepare(
    app: App, session: SparkSession, topics: Topics, settings: Settings, checkpoints: Path
) -> tuple[list[ViewQuery], Rehearsal, CatalogWriter]:
    analysis = Analysis(session)
    analysis.examine(app)
    if analysis.mistakes:
        raise DeclarationError(analysis.mistakes)
    on_broker = _create_topics(app, topics, settings)
    servers, records_topic = settings.text("kafka"), catalog_topic(app.name)
    reader = CatalogReader(servers, records_topic)
    records = reader.read_whole()
    reader.close()
    known = Catalog.decode(records[APP_RECORD]).views if APP_RECORD in records else {}
    builds: list[Build] = []
    entries: dict[str, CatalogView] = {}
    for view in app.views:
        key, columns = analysis.columns[view.name]
        changelog, source = on_broker[view.changelog], on_broker[view.source.name]
        wanted = CatalogView(
            name=view.name,
            changelog=view.changelog,
            topic_id=changelog.id,
            partitions=changelog.partitions,
            generation=0,
            key=key,
            columns=columns,
            definition=definition(view, settings.number("state-partitions")),
            sources={source.name: source.id},
        )
        build, entries[view.name] = choose_build(app.name, view, known.get(view.name), wanted, checkpoints)
        builds.append(build)
    writer = CatalogWriter(servers, records_topic)
    writer.put(APP_RECORD, Catalog(app=app.name, views=entries).encode())
    writer.flush()
    reach = Reach(servers, f"tailrace.{app.name}", settings.seconds("batch-interval"))

    def report(progress: Progress) -> None:
        writer.put(PROGRESS_RECORDS + progress.view, progress.encode())

    queries = []
    for build in builds:
        source = on_broker[build.view.source.name]
        partitions = {source.name: source.partitions}
        queries.append(ViewQuery(session, build, reach, partitions, _progress(build, records), report))
    for query in queries:
        report(query.progress)
    return queries, Rehearsal(session, builds, reach, checkpoints / SCRATCH), writer


def _create_topics(app: App, topics: Topics, settings: Settings) -> dict[str, TopicOnBroker]:
    replication, partitions = settings.number("replication"), settings.number("partitions")
    sources = {view.source.name for view in app.views}
    changelogs = {view.changelog for view in app.views}
    names = sorted(sources | changelogs | {catalog_topic(app.name)})
    found = topics.describe(names)
    for name in names:
        if name not in found:
            compacted = name not in sources
            topics.create(
                name,
                partitions=1 if name == catalog_topic(app.name) else partitions,
                replication=replication,
                config=COMPACTED if compacted else {},
            )
            log.info("created topic %s", name)
        elif name not in sources:
            topics.require_compacted(name)
    return topics.describe(names)


def _progress(build: Build, records: dict[str, bytes]) -> Progress:
    """The totals of a build so far; a new generation counts from zero."""
    name = build.view.name
    if (data := records.get(PROGRESS_RECORDS + name)) is not None:
        progress = Progress.decode(data)
        if progress.generation == build.generation:
            return progress
    return Progress(view=name, generation=build.generation, batch=-1, inputs=0, skipped=dict.fromkeys(REASONS, 0))


def _health(settings: Settings, counters: Counters, queries: list[ViewQuery]) -> HealthServer | None:
    if not settings.text("health-port"):
        return None

    def reasons() -> list[str]:
        return [reason for query in queries for reason in query.reasons()]

    return HealthServer(settings.number("health-port"), counters.registry, reasons)
